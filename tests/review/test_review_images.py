"""Where pictures come from: files, rows, arrays, or what the run kept; and if from nowhere, why."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from review_runs import SIZE, request, served

import autodo.review.images as images_module
from autodo.data import load_digits
from autodo.errors import InputError
from autodo.export.origin import Origin
from autodo.report.run import Run
from autodo.review.gallery import NoPicture, open_galleries
from autodo.review.images import Arrays, Rows, decoded, open_images, places


def shown(gallery: object, index: int, size: str = "large") -> Image.Image:
    return Image.open(io.BytesIO(gallery.picture(index, size).data))  # type: ignore[attr-defined]


def photos(run: Path) -> Path:
    return run.parent / "photos"


def test_files_are_shown_as_they_are_not_as_the_network_saw_them(folder_run: Path) -> None:
    run = Run.open(folder_run)
    train = open_galleries(run, source=Origin.of(photos(folder_run) / "train"))["train"]
    assert train.note == ""
    assert train.known(np.arange(200)).all()
    for index in (0, 57, 199):
        file = photos(folder_run) / "train" / run.points["id"][index].as_py()
        assert shown(train, index).size == (SIZE, SIZE)
        assert np.array_equal(
            np.asarray(shown(train, index).convert("L")), np.asarray(Image.open(file))
        )


def test_a_file_that_is_gone_falls_back_to_what_the_run_kept(folder_run: Path) -> None:
    run = Run.open(folder_run)
    name = run.points["id"][0].as_py()
    (photos(folder_run) / "train" / name).unlink()
    train = open_galleries(run, source=Origin.of(photos(folder_run) / "train"))["train"]
    assert "1 image of train" in train.note
    assert shown(train, 0).size == (8, 8)  # of the map


def test_a_file_that_cannot_be_decoded_says_why(folder_run: Path) -> None:
    shutil.rmtree(folder_run / "view")
    run = Run.open(folder_run)
    (photos(folder_run) / "train" / run.points["id"][0].as_py()).write_bytes(b"no image")
    source = Origin.of(photos(folder_run) / "train")
    train = open_galleries(run, source=source)["train"]
    with pytest.raises(NoPicture, match="UnidentifiedImageError"):
        train.picture(0, "small")
    with served(folder_run, source=source) as server:
        status, _, content = request(server.link, "image/train/0/small")
        assert status == 404
        assert b"UnidentifiedImageError" in content
        assert request(server.link, "image/train/1/small")[0] == 200


def test_another_folder_is_not_taken_for_the_set(folder_run: Path) -> None:
    run = Run.open(folder_run)
    other = photos(folder_run) / "trusted"
    train = open_galleries(run, source=Origin.of(other))["train"]
    assert "not the one of the run" in train.note
    trusted = open_galleries(run, trusted=Origin.of(photos(folder_run) / "train"))["trusted"]
    assert "200 examples, the run's had 100" in trusted.note


def test_the_trusted_set_is_shown_at_full_size_where_it_is_named(folder_run: Path) -> None:
    run = Run.open(folder_run)
    small = open_galleries(run)["trusted"]
    full = open_galleries(run, trusted=Origin.of(photos(folder_run) / "trusted"))["trusted"]
    assert shown(small, 5).size == (8, 8)
    assert shown(full, 5).size == (SIZE, SIZE)
    reduced = shown(full, 5).convert("L").resize((8, 8), Image.Resampling.BILINEAR)
    assert np.allclose(reduced, shown(small, 5).convert("L"), atol=2)


def test_a_run_knows_where_its_training_set_lies(folder_run: Path) -> None:
    galleries = open_galleries(Run.open(folder_run))
    assert galleries["train"].note == ""
    assert shown(galleries["train"], 5).size == (SIZE, SIZE)


def test_a_run_that_kept_nothing_says_so(folder_run: Path) -> None:
    shutil.rmtree(folder_run / "view")
    with served(folder_run) as server:
        note = server.session.galleries["train"].note
        assert "it kept small pictures of 0 of 200" in note
        assert "--source" in note
        assert request(server.link, "image/train/0/small")[0] == 404
        assert b'"similar": null' in request(server.link, "item/0")[2]


def write_parquet(path: Path, count: int, *, rows: int) -> np.ndarray:
    digits = load_digits()
    buffers = []
    for image in digits.images[:count]:
        buffer = io.BytesIO()
        Image.fromarray(image[0].numpy().astype(np.uint8)).save(buffer, format="PNG")
        buffers.append({"bytes": buffer.getvalue(), "path": None})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    labels = digits.labels[:count].numpy()
    table = pa.table({"image": pa.array(buffers, kind), "label": labels})
    pq.write_table(table, path, row_group_size=rows)
    return labels


def test_rows_of_parquet_are_found_in_any_order(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", 100, rows=7)
    images = open_images(Origin.of(tmp_path / "train.parquet"))
    assert isinstance(images, Rows)
    for index in (99, 0, 7, 6, 50, 0):
        expected = load_digits().images[index, 0].numpy().astype(np.uint8)
        assert np.array_equal(np.asarray(images.open(index, 100)), expected)


def test_parquet_with_huge_groups_is_mapped_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTODO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images_module, "_GROUP_BYTES", 10)
    labels = write_parquet(tmp_path / "train.parquet", 30, rows=30)
    images = open_images(Origin.of(tmp_path / "train.parquet"))
    assert isinstance(images, Arrays)
    ids = [f"train.parquet#{k}" for k in range(30)]
    assert places(images, ids, labels).tolist() == list(range(30))
    assert np.asarray(images.open(4, 100)).shape == (8, 8)


def test_numbered_examples_are_known_by_their_labels(tmp_path: Path) -> None:
    digits = load_digits()
    np.savez(tmp_path / "train.npz", images=digits.images[:20].numpy(), labels=digits.labels[:20])
    images = open_images(Origin.of(tmp_path / "train.npz"))
    ids = [str(k) for k in range(20)]
    labels = digits.labels[:20].numpy()
    assert places(images, ids, labels).tolist() == list(range(20))
    with pytest.raises(InputError, match="labels are others"):
        places(images, ids, (labels + 1) % 10)


@pytest.mark.parametrize("encoded", [False, True])
def test_trusted_rows_whose_labels_are_names_are_shown(folder_run: Path, encoded: bool) -> None:
    files = sorted((photos(folder_run) / "trusted").rglob("*.png"))
    names = pa.array([file.parent.name for file in files])
    table = {
        "image": [file.read_bytes() for file in files],
        "label": names.dictionary_encode() if encoded else names,
    }
    path = folder_run.parent / "trusted.parquet"
    pq.write_table(pa.table(table), path)
    trusted = open_galleries(Run.open(folder_run), trusted=Origin.of(path))["trusted"]
    assert trusted.note == ""
    assert shown(trusted, 5).size == (SIZE, SIZE)


def test_photographs_are_upright_and_not_decoded_in_full_for_a_thumbnail(tmp_path: Path) -> None:
    photo = Image.new("RGB", (1600, 800), "navy")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    photo.save(tmp_path / "a.jpg", exif=exif)
    small = decoded(tmp_path / "a.jpg", 96)
    assert small.height == 2 * small.width
    assert 96 <= small.height < 800
    assert torch.tensor(np.asarray(small)[0, 0].tolist()).argmax() == 2
