"""sources.load: every layout gives what was written into it, and says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import made_sets as made
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made_sets import NAMES, channels_first, encoded, write_parquet
from shared_files import shared_path

from autodo.data.examples import Examples
from autodo.data.sources import Skipped, load
from autodo.errors import InputError

PIXELS, LABELS = made.images(), made.labels()
PNGS = [encoded(image) for image in PIXELS]


def check(data: Examples, pixels: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> None:
    assert data.images.dtype == torch.uint8
    assert np.array_equal(data.images.numpy(), channels_first(pixels))
    assert data.labels.tolist() == labels.tolist()


def refusal(*given: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load(*given, **options)  # type: ignore[arg-type]
    return str(caught.value)


# Parquet


def test_parquet_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS, names=NAMES)
    data = load(path)
    check(data)
    assert data.class_names == ("cat", "dog", "fox")
    assert data.ids[5] == "a.parquet#5"


def test_parquet_with_plain_bytes_and_other_customary_names(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "a.parquet",
        PNGS,
        LABELS,
        image="img",
        label="fine_label",
        plain=True,
        others={"coarse_label": [0] * 6, "title": ["x"] * 6},
    )
    data = load(path)
    check(data)
    assert data.class_names == ("0", "1", "2")


def test_parquet_columns_can_be_named(tmp_path: Path) -> None:
    others = {"label": [0] * 6, "image": [b"?"] * 6}
    path = write_parquet(
        tmp_path / "a.parquet", PNGS, LABELS, image="scan", label="kind", others=others
    )
    check(load(path, image_key="scan", label_key="kind"))


def test_shards_of_a_split_follow_one_another(tmp_path: Path) -> None:
    for k in (1, 0):
        part = slice(3 * k, 3 * k + 3)
        name = f"train-0000{k}-of-00002.parquet"
        write_parquet(tmp_path / name, PNGS[part], LABELS[part])
    write_parquet(tmp_path / "test-00000-of-00001.parquet", PNGS[:2], LABELS[:2], names=NAMES)
    check(load(tmp_path, "train"))
    check(load(tmp_path, "test"), PIXELS[:2], LABELS[:2])
    assert load(tmp_path, "train").ids[3] == "train-00001-of-00002.parquet#0"
    assert "holds 2 splits: train, test" in refusal(tmp_path).replace("test, train", "train, test")
    assert "no split 'extra'" in refusal(tmp_path, "extra")


@pytest.mark.parametrize(
    "name",
    ["data/train-00000-of-00001.parquet", "train/0000.parquet", "train.parquet", "x_train.parquet"],
)
def test_a_split_is_known_by_the_name_of_its_file_or_folder(tmp_path: Path, name: str) -> None:
    write_parquet(tmp_path / name, PNGS, LABELS)
    check(load(tmp_path, "train"))
    check(load(tmp_path))  # the only one there is


def test_files_of_two_sets_are_not_joined(tmp_path: Path) -> None:
    pngs = [encoded(image) for image in made.images(3, (32, 32))]
    write_parquet(tmp_path / "svhn-train.parquet", pngs[:1], [4])
    write_parquet(tmp_path / "cifar10-train.parquet", pngs[1:], [1, 2])
    assert "holds 2 sets of Parquet files" in refusal(tmp_path, "train")
    assert load("svhn", data_dir=tmp_path).labels.tolist() == [4]
    assert load("cifar10", data_dir=tmp_path).labels.tolist() == [1, 2]


def test_files_without_splits_are_one_set(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0000.parquet", PNGS[:3], LABELS[:3])
    write_parquet(tmp_path / "0001.parquet", PNGS[3:], LABELS[3:])
    check(load(tmp_path))


def test_an_image_that_is_only_a_path_is_read_from_beside_the_file(tmp_path: Path) -> None:
    for k, png in enumerate(PNGS):
        (tmp_path / f"{k}.png").write_bytes(png)
    paths = [f"{k}.png" for k in range(6)]
    check(load(write_parquet(tmp_path / "a.parquet", [None] * 6, LABELS, paths=paths)))


def test_parquet_without_an_image_or_a_label_names_what_it_has(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS, label="score", image="scan")
    message = refusal(path, image_key="score")
    assert "column score" in message
    assert "int64" in message
    message = refusal(path, image_key="scam")
    assert "no image column 'scam'" in message
    assert "perhaps you mean scan" in message
    pq.write_table(pa.table({"text": ["a"], "number": [1.5]}), tmp_path / "b.parquet")
    message = refusal(tmp_path / "b.parquet")
    assert "has no image column" in message
    assert "text (string), number (double)" in message
    pq.write_table(pa.table({"image": [PNGS[0]], "label": [1.5]}), tmp_path / "c.parquet")
    message = refusal(tmp_path / "c.parquet")
    assert "has no label column" in message
    assert "label (double)" in message
    assert "of type double" in refusal(tmp_path / "c.parquet", label_key="label")


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet_with_names_for_labels(tmp_path: Path, kind: str) -> None:
    def write(rows: slice, file: str) -> None:
        names = pa.array([NAMES[k] for k in LABELS[rows]])
        names = names.dictionary_encode() if kind == "dictionary" else names.cast(kind)
        pq.write_table(pa.table({"image": PNGS[rows], "label": names}), tmp_path / file)

    for file in ("train-0-of-2.parquet", "train-1-of-2.parquet", "test.parquet"):
        write(slice(0, 2) if "-0-" in file else slice(2, 6), file)
    train = load(tmp_path, "train")  # the first file has two classes of the three
    check(train)
    assert train.class_names == ("cat", "dog", "fox")
    some = load(tmp_path, "test", class_names=["fox", "cat", "dog"])
    assert [some.class_names[k] for k in some.labels] == [NAMES[k] for k in LABELS[2:]]
    assert load(tmp_path, "test").class_names == ("cat", "dog", "fox")  # not what is cached
    message = refusal(tmp_path, "train", class_names=["cat", "dog"])
    assert "row 0 of " in message
    assert "label 'fox'" in message


def test_names_in_a_column_called_otherwise_are_not_guessed_at(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"image": PNGS, "kind": [NAMES[k] for k in LABELS]}), tmp_path / "a.parquet"
    )
    assert "has no label column" in refusal(tmp_path / "a.parquet")
    check(load(tmp_path / "a.parquet", label_key="kind"))


def test_several_columns_that_may_be_the_label_are_not_guessed_at(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS, label="a", others={"b": [0] * 6})
    assert "2 columns that may be the label" in refusal(path)


def test_a_missing_label_names_its_row(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, [0, 1, None, 0, 1, 2])
    assert f"row 2 of '{path}' has no label" in refusal(path)


def test_files_that_are_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    assert "a.parquet' cannot be read as Parquet" in refusal(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid x")
    assert "pointer of Git LFS" in refusal(tmp_path / "b.parquet")
    whole = write_parquet(tmp_path / "c.parquet", PNGS, LABELS).read_bytes()
    (tmp_path / "c.parquet").write_bytes(whole[: len(whole) // 2])
    assert "c.parquet' cannot be read as Parquet" in refusal(tmp_path / "c.parquet")


# what cannot be decoded


def test_corrupt_images_are_named_by_file_and_row(tmp_path: Path) -> None:
    data: list[bytes | None] = [*PNGS[:4], PNGS[4][:40], None]
    path = write_parquet(tmp_path / "a.parquet", data, LABELS)
    message = refusal(path)
    assert "2 images of train" in message
    assert "a.parquet#4 (" in message
    assert "a.parquet#5 (no image: the entry is empty)" in message
    assert "0x" not in message  # no address of a buffer
    assert "--skip-corrupt" in message


@pytest.mark.parametrize("cache", [None, False])
def test_corrupt_images_can_be_left_out_and_are_listed(tmp_path: Path, cache: bool | None) -> None:
    data = [*PNGS]
    data[2] = b"no image"
    path = write_parquet(tmp_path / "a.parquet", data, LABELS)
    for _ in range(2):  # from the cache too
        told: list[Skipped] = []
        left = load(path, skip_corrupt=True, on_skipped=told.extend, cache=cache)  # type: ignore[arg-type]
        check(left, np.delete(PIXELS, 2, 0), np.delete(LABELS, 2))
        assert [s.where for s in told] == ["a.parquet#2"]
        assert "cannot identify image file" in told[0].reason
    with pytest.warns(UserWarning, match=r"left out 1 image of train .* a\.parquet#2"):
        load(path, skip_corrupt=True, cache=cache)  # type: ignore[arg-type]
    # What a run that skipped has cached must not make another run skip.
    assert "a.parquet#2" in refusal(path, cache=cache)


def test_a_set_of_which_nothing_can_be_decoded_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [b"no"] * 6, LABELS)
    assert "6 images of train" in refusal(path, skip_corrupt=True)


def test_corrupt_files_of_a_folder_can_be_left_out(tmp_path: Path) -> None:
    made.write_class_folders(tmp_path, PIXELS, LABELS)
    (tmp_path / "cat" / "0.png").write_bytes(b"no image")
    told: list[Skipped] = []
    data = load(tmp_path, skip_corrupt=True, on_skipped=told.extend)
    assert len(data) == 5
    assert [s.where for s in told] == ["cat/0.png"]


def test_sizes_that_differ_point_to_image_size(tmp_path: Path) -> None:
    data = [*PNGS[:5], encoded(made.images(1, (9, 9))[0])]
    path = write_parquet(tmp_path / "a.parquet", data, LABELS)
    message = refusal(path)
    assert "5x4: 5 images such as a.parquet#0" in message
    assert "9x9: 1 image such as a.parquet#5" in message
    assert "--image-size" in message
    assert load(path, image_size=8).image_shape == (3, 8, 8)
    assert load(path, image_size=(8, 6), channels=1).image_shape == (1, 8, 6)


def test_crop_keeps_the_proportions(tmp_path: Path) -> None:
    wide = np.zeros((1, 10, 30, 3), dtype=np.uint8)
    wide[:, :, 10:20] = 255  # the middle third
    path = write_parquet(tmp_path / "a.parquet", [encoded(wide[0])], [0])
    assert load(path, image_size=10, crop=True).images.min() == 255
    assert load(path, image_size=10).images.min() == 0


# arrays


@pytest.mark.parametrize(
    ("image", "label"), [("images", "labels"), ("x", "y"), ("data", "targets")]
)
def test_npz_by_customary_names(tmp_path: Path, image: str, label: str) -> None:
    np.savez(tmp_path / "a.npz", **{image: PIXELS, label: LABELS, "class_names": NAMES})
    data = load(tmp_path / "a.npz")
    check(data)
    assert data.class_names == ("cat", "dog", "fox")
    assert data.ids == ("0", "1", "2", "3", "4", "5")


def test_npz_with_splits_inside_or_one_file_each(tmp_path: Path) -> None:
    half = {"x_train": PIXELS[:4], "y_train": LABELS[:4], "test_x": PIXELS[4:]}
    np.savez(tmp_path / "a.npz", **half, test_y=LABELS[4:, None])
    check(load(tmp_path / "a.npz", "train"), PIXELS[:4], LABELS[:4])
    check(load(tmp_path / "a.npz", "test"), PIXELS[4:], LABELS[4:])
    assert "no image array" in refusal(tmp_path / "a.npz")
    np.savez(tmp_path / "train.npz", images=PIXELS, labels=LABELS)
    check(load(tmp_path, "train"))
    check(load(tmp_path / "train.npz", "train"))
    assert "no image array" in refusal(tmp_path / "train.npz", "test")


def test_npz_with_keys_given(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", scans=PIXELS, kinds=LABELS)
    check(load(tmp_path / "a.npz", image_key="scans", label_key="kinds"))
    message = refusal(tmp_path / "a.npz")
    assert "no image array" in message
    assert "scans (uint8 (6, 5, 4, 3)), kinds (int64 (6,))" in message


def test_npz_of_floats_grey_and_channels_first(tmp_path: Path) -> None:
    floats = channels_first(PIXELS)[:, :1].astype(np.float64) / 255
    np.savez(tmp_path / "a.npz", images=floats, labels=LABELS)
    data = load(tmp_path / "a.npz")
    assert data.images.dtype == torch.float32
    assert torch.equal(data.images, torch.from_numpy(floats).float())
    assert load(tmp_path / "a.npz", image_size=8, channels=3).image_shape == (3, 8, 8)
    np.savez(tmp_path / "b.npz", images=PIXELS[..., 0], labels=LABELS)
    assert load(tmp_path / "b.npz").image_shape == (1, 5, 4)


def test_arrays_are_resized_as_encoded_images_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS)
    for options in ({"image_size": 7}, {"channels": 1}, {"image_size": 7, "crop": True}):
        a, b = load(tmp_path / "a.npz", **options), load(path, **options)  # type: ignore[arg-type]
        assert torch.equal(a.images, b.images)
    np.savez(tmp_path / "f.npz", images=PIXELS.astype(np.float32), labels=LABELS)
    for options in ({"image_size": 7}, {"channels": 1}, {"image_size": 7, "crop": True}):
        a, b = load(tmp_path / "f.npz", **options), load(path, **options)  # type: ignore[arg-type]
        assert (a.images - b.images).abs().max() <= 1  # uint8 is rounded, twice when resized


def test_what_an_npz_can_lack(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS[:4])
    assert "6 images and 4 labels" in refusal(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=np.array([{}, {}], dtype=object), labels=[0, 1])
    assert "array images" in refusal(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 and no more")
    assert "cannot be read as .npz" in refusal(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz")
    assert "it has none" in refusal(tmp_path / "d.npz")
    np.save(tmp_path / "e.npy", PIXELS)
    assert "one array of shape (6, 5, 4, 3)" in refusal(tmp_path / "e.npy")
    np.savez(tmp_path / "f.npz", images=PIXELS[0, :, :, 0], labels=LABELS)
    assert "5 images and 6 labels" in refusal(tmp_path / "f.npz")
    np.savez(tmp_path / "g.npz", images=PIXELS.astype(np.int64), labels=LABELS)
    assert "pixels of type torch.int64" in refusal(tmp_path / "g.npz")


# folders and paths


def test_a_folder_of_classes_and_one_of_splits(tmp_path: Path) -> None:
    made.write_class_folders(tmp_path / "train", PIXELS, LABELS)
    made.write_class_folders(tmp_path / "val", PIXELS[:3], LABELS[:3])
    data = load(tmp_path / "train")
    assert data.class_names == ("cat", "dog", "fox")
    assert data.ids == (
        "cat/0.png",
        "cat/3.png",
        "dog/1.png",
        "dog/4.png",
        "fox/2.png",
        "fox/5.png",
    )
    check(data, PIXELS[[0, 3, 1, 4, 2, 5]], np.array([0, 0, 1, 1, 2, 2]))
    assert torch.equal(load(tmp_path, "train").images, data.images)
    assert len(load(tmp_path, "validation")) == 3
    assert "holds 2 splits: train, validation" in refusal(tmp_path)
    message = refusal(tmp_path, "test")
    assert "no split 'test'" in message
    assert "it holds train, validation" in message


def test_classes_called_like_splits_are_classes(tmp_path: Path) -> None:
    for name, image in zip(("bus", "train"), PIXELS, strict=False):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(encoded(image))
    assert load(tmp_path).class_names == ("bus", "train")


def test_class_names_of_train_number_the_classes_of_a_folder(tmp_path: Path) -> None:
    made.write_class_folders(tmp_path, PIXELS[:3], LABELS[:3])
    for names in (["fox", "cat", "dog"], NAMES):  # the cache keeps the two apart
        data = load(tmp_path, class_names=names, name="trusted")
        assert [data.class_names[c] for c in data.labels] == [i.split("/")[0] for i in data.ids]


def test_numbers_beside_the_names_of_train_are_told(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Which name is which number the numbers do not say."""
    images, labels = np.zeros((3, 4, 4), np.uint8), np.array([0, 1, 1])
    np.savez(tmp_path / "few.npz", images=images, labels=labels)
    load(tmp_path / "few.npz", name="trusted", class_names=("0", "1"))
    assert not recwarn
    with pytest.warns(UserWarning, match="of trusted are numbers .* 0 is taken for 'amy', 1 is"):
        load(tmp_path / "few.npz", name="trusted", class_names=("amy", "bob"))


def test_class_names_that_contradict_those_of_the_file_are_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS, names=NAMES)
    check(load(path, class_names=NAMES))
    assert "class 0 is 'dog'" in refusal(path, class_names=["dog", "cat", "fox"])


def test_paths_that_are_nothing(tmp_path: Path) -> None:
    assert "the trusted set" in refusal(tmp_path / "no" / "where", name="trusted")
    (tmp_path / "a.zip").write_bytes(b"PK")
    message = refusal(tmp_path / "a.zip")
    assert "is no set of images" in message
    assert ".parquet" in message
    (tmp_path / "empty").mkdir()
    assert "is empty" in refusal(tmp_path / "empty")
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS)
    assert "no split 'test' in the file" in refusal(path, "test")


@pytest.mark.parametrize("cache", [None, False])
def test_progress_ends_at_the_total(tmp_path: Path, cache: bool | None) -> None:
    path = write_parquet(tmp_path / "a.parquet", PNGS, LABELS)
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    for source in (path, path, tmp_path / "a.npz"):
        told: list[tuple[int, int]] = []
        load(source, progress=lambda *d, told=told: told.append(d), cache=cache)  # type: ignore[misc,arg-type]
        assert told[-1] == (6, 6)
        assert told == sorted(told)


# real data


def test_real_svhn_is_read_from_its_parquet_files(tmp_path: Path) -> None:
    shared = shared_path("data", "svhn", "test-00000-of-00001.parquet")
    part = next(pq.ParquetFile(shared).iter_batches(300))
    pq.write_table(pa.Table.from_batches([part]), tmp_path / "test-00000-of-00001.parquet")
    data = load("svhn", "test", data_dir=tmp_path)
    assert data.image_shape == (3, 32, 32)
    assert data.num_classes == 10
    assert data.class_names == tuple("0123456789")
    assert data.labels[:5].tolist() == [5, 2, 1, 0, 6]
