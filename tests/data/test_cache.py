"""The cache: decoded once, mapped, safe to write to, and never trusted when it is damaged."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import made_sets as made
import numpy as np
import pytest
import torch
from made_sets import channels_first, encoded, write_parquet

from autodo.data import cache, decode
from autodo.data.sources import load
from autodo.errors import InputError

PIXELS, LABELS = made.images(40), made.labels(40)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pngs = [encoded(image) for image in PIXELS]
    return write_parquet(tmp_path / "a.parquet", pngs, LABELS, names=made.NAMES)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per image that is decoded from here on."""
    seen: list[int] = []
    original = decode._decode_one

    def counting(*given: object) -> object:
        seen.append(1)
        return original(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(decode, "_decode_one", counting)
    return seen


def entry(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.is_dir()]
    return found


def check(path: Path) -> None:
    data = load(path)
    assert np.array_equal(data.images.numpy(), channels_first(PIXELS))
    assert data.labels.tolist() == LABELS.tolist()
    assert data.class_names == tuple(made.NAMES)
    assert data.ids[39] == "a.parquet#39"


def test_a_set_is_decoded_once(source: Path, own_cache: Path, decoded: list[int]) -> None:
    for _ in range(3):
        check(source)
    assert len(decoded) == 40
    about = json.loads((entry(own_cache) / "about.json").read_text())
    assert about["source"] == str(source)


def test_an_entry_is_plain_arrays_and_text(source: Path, own_cache: Path) -> None:
    load(source)
    names = sorted(path.name for path in entry(own_cache).iterdir())
    assert names == ["about.json", "ids.json", "images.npy", "labels.npy"]
    images = np.load(entry(own_cache) / "images.npy", allow_pickle=False)
    assert np.array_equal(images, channels_first(PIXELS))


def test_what_is_written_to_mapped_images_stays_in_memory(source: Path) -> None:
    load(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of read-only arrays
        data = load(source)
    data.images.fill_(7)
    data.labels.fill_(1)
    assert torch.all(data.images == 7)
    check(source)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux shows what is mapped")
def test_images_are_mapped_for_as_long_as_they_are_used(source: Path, own_cache: Path) -> None:
    data = load(source)
    file = str(entry(own_cache) / "images.npy")
    assert file in Path("/proc/self/maps").read_text()
    first = data.images[0]
    del data
    assert torch.equal(first, torch.from_numpy(channels_first(PIXELS)[0].copy()))
    del first
    assert file not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    "options", [{"image_size": 8}, {"image_size": 8, "crop": True}, {"channels": 1}]
)
def test_other_options_are_another_entry(
    source: Path, own_cache: Path, decoded: list[int], options: dict
) -> None:
    load(source)
    other = load(source, **options)
    assert torch.equal(other.images, load(source, cache=False, **options).images)
    assert len(decoded) == 3 * 40
    check(source)


def test_a_changed_file_is_decoded_anew(source: Path, decoded: list[int]) -> None:
    check(source)
    status = source.stat()
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    check(source)
    assert len(decoded) == 80
    write_parquet(source, [encoded(image) for image in PIXELS[:5]], LABELS[:5])
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(load(source)) == 5


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


DAMAGE = {
    "images cut off": lambda e: os.truncate(e / "images.npy", 500),
    "images longer": lambda e: (e / "images.npy").open("ab").write(b"x"),
    "a bit of an image": lambda e: flip(e / "images.npy", 1000),
    "the last bit of the images": lambda e: flip(e / "images.npy", -1),
    "a bit of the header": lambda e: flip(e / "images.npy", 20),
    "images gone": lambda e: (e / "images.npy").unlink(),
    "a bit of a label": lambda e: flip(e / "labels.npy", -1),
    "labels empty": lambda e: (e / "labels.npy").write_bytes(b""),
    "a bit of the ids": lambda e: flip(e / "ids.json", 5),
    "about.json gone": lambda e: (e / "about.json").unlink(),
    "about.json cut off": lambda e: os.truncate(e / "about.json", 50),
    "about.json is no dict": lambda e: (e / "about.json").write_text("[1]"),
    "about.json of another format": lambda e: change(e / "about.json", format=0),
    "another shape": lambda e: change(e / "about.json", shape=[20, 6, 5, 4]),
    "another type": lambda e: change(e / "about.json", dtype="|i1"),
    "a file without sum": lambda e: change(e / "about.json", files={"images.npy": {}}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_made_anew(
    source: Path, own_cache: Path, decoded: list[int], damage: str
) -> None:
    check(source)
    DAMAGE[damage](entry(own_cache))
    check(source)
    assert len(decoded) == 80
    check(source)
    assert len(decoded) == 80
    assert not [path for path in own_cache.iterdir() if path.name.startswith(".")]


def test_of_large_files_blocks_are_checked_that_are_spread(
    source: Path, own_cache: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_BLOCK", 100)
    monkeypatch.setattr(cache, "_CHECKED_BLOCKS", 5)
    for place in (0, -1):  # the first and the last are always among them
        check(source)
        before = len(decoded)
        flip(entry(own_cache) / "images.npy", place)
        check(source)
        assert len(decoded) == before + 40


def test_a_link_to_nothing_is_a_corrupt_file_until_it_leads_somewhere(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(encoded(PIXELS[0]))
    (folder / "b.png").symlink_to(tmp_path / "moved.png")
    (folder / "c.png").symlink_to("c.png")
    with pytest.raises(InputError, match=r"2 image files .* cat/b\.png \(FileNotFoundError"):
        load(tmp_path / "photos")
    with pytest.warns(UserWarning, match="left out 2 images"):
        assert load(tmp_path / "photos", skip_corrupt=True).ids == ("cat/a.png",)
    (tmp_path / "moved.png").write_bytes(encoded(PIXELS[1]))
    with pytest.warns(UserWarning, match="left out 1 image"):
        assert load(tmp_path / "photos", skip_corrupt=True).ids == ("cat/a.png", "cat/b.png")


def test_an_interrupted_reading_leaves_nothing(source: Path, own_cache: Path) -> None:
    def interrupt(done: int, _: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(source, progress=interrupt)
    assert not [path for path in own_cache.iterdir() if path.is_dir()]
    check(source)


def run(code: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_a_killed_reading_is_cleared_away(source: Path, own_cache: Path) -> None:
    code = """
        import os, sys
        from autodo.data.sources import load
        load(sys.argv[1], progress=lambda done, _: done == 33 and os.kill(os.getpid(), 9))
    """
    assert run(code, source).wait(60) == -9
    (left,) = [path for path in own_cache.iterdir() if path.is_dir()]
    assert left.name.startswith(".")
    check(source)
    assert not left.exists()


def _load_at_once(source: Path, marks: Path, start: Any) -> None:
    mark = marks / str(os.getpid())
    start.wait(60)
    data = load(source, progress=lambda done, _: done == 1 and mark.touch())
    assert np.array_equal(data.images.numpy(), channels_first(PIXELS))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forked processes start at the same moment")
def test_processes_at_once_decode_once_and_agree(tmp_path: Path, source: Path) -> None:
    marks = tmp_path / "decoded"
    marks.mkdir()
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    processes = [
        context.Process(target=_load_at_once, args=(source, marks, start)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert len(list(marks.iterdir())) == 1
    check(source)


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_costs_only_the_cache(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("AUTODO_CACHE", str(tmp_path / folder))
    with pytest.warns(UserWarning, match=r"not kept in the cache .*AUTODO_CACHE"):
        check(source)


def test_a_full_disk_costs_only_the_cache(
    source: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.NpyFile, "append", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        check(source)
    assert not [path for path in own_cache.iterdir() if path.is_dir()]


def test_the_place_of_the_cache(
    source: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.default_folder() == own_cache
    monkeypatch.delenv("AUTODO_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.default_folder() == tmp_path / "xdg" / "autodo"
    load(source)
    assert entry(tmp_path / "xdg" / "autodo")
    load(source, cache=tmp_path / "own")
    assert entry(tmp_path / "own")
    assert not list(own_cache.iterdir())
    load(source, cache=False)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.default_folder() == Path.home() / ".cache" / "autodo"
