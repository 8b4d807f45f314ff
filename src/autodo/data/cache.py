"""Decoded images kept on the disk and mapped into memory, so that a set is decoded once.

An entry is a folder with images.npy, labels.npy, ids.json and about.json, which holds the sizes
and checksums of the others and is the last to be written. Its name is a digest of the source's
files (path, size, time of change) and of the way they were read. An entry is made beside its place
and moved into it whole; one that does not check out is made anew. Nothing in it is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock

from autodo.data.gather import NPY_HEADER, Contents, NpyFile, gather, npy_header, read
from autodo.data.reading import Reading, Skipped, Source, refuse

FORMAT = 1
"""Raised when entries of earlier versions must not be read."""

_BLOCK = 2**24
_CHECKED_BLOCKS = 256
"""Blocks of a file that are compared with their checksums: all of it up to 4 GiB, beyond that
blocks spread evenly, since reading hundreds of gigabytes first would defeat the mapping."""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def default_folder() -> Path:
    """$AUTODO_CACHE, else ``autodo`` in the user's cache folder."""
    if own := os.environ.get("AUTODO_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "autodo"


def read_cached(source: Source, reading: Reading, folder: Path) -> Contents:
    """The contents of ``source``: mapped from its entry below ``folder``, which is made if need be.

    Where the folder cannot be written the set is read into memory, with a warning.
    """
    entry = folder / entry_name(source, reading)
    contents = _opened(entry)
    if contents is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # One process decodes, the others wait for it and find the entry.
            with FileLock(folder / f"{entry.name}.lock"):
                contents = _opened(entry)
                if contents is None:
                    contents = _made(source, reading, entry)
        except OSError as error:
            warnings.warn(
                f"the images of {reading.name} are not kept in the cache '{folder}' "
                f"({type(error).__name__}: {error}) and will be decoded again next time; "
                "AUTODO_CACHE names another folder",
                stacklevel=2,
            )
            return read(source, reading)
    if not reading.skip_corrupt:  # the entry may stem from a run that skipped them
        refuse(contents.skipped, source, reading.name)
    if reading.progress is not None:
        total = len(contents.labels) + len(contents.skipped)
        reading.progress(total, total)
    return contents


def entry_name(source: Source, reading: Reading) -> str:
    """A readable start and a digest of everything that the pixels and labels depend on."""
    digest = hashlib.blake2b(digest_size=16)
    how = [FORMAT, source.identity, reading.size, reading.crop, reading.channels]
    digest.update(json.dumps(how, sort_keys=True).encode())
    for file in source.files:
        try:
            status = file.stat()
            known = [str(file.resolve()), status.st_size, status.st_mtime_ns]
        except OSError as error:  # such as a link to nothing: one more file that cannot be read
            known = [str(file.absolute()), error.errno]
        digest.update(json.dumps(known).encode())
    start = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(source.place).name).strip("-.")[:40]
    return f"{start or 'set'}-{digest.hexdigest()}"


def _made(source: Source, reading: Reading, entry: Path) -> Contents:
    """Decode into a new entry and open it."""
    for left_over in entry.parent.glob(f".{entry.name}.*"):  # of a process that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{entry.name}."))
    try:
        with _written(work / "images.npy") as file:
            contents = gather(source, reading, NpyFile(file))
        with _written(work / "labels.npy") as file:
            file.write(npy_header(contents.labels.shape, contents.labels.dtype))
            file.write(contents.labels.data)
        with _written(work / "ids.json") as file:
            file.write(json.dumps(list(contents.ids)).encode())
        about = {
            "format": FORMAT,
            "source": source.place,
            "shape": [len(contents.labels), *contents.images.shape[1:]],
            "dtype": contents.images.dtype.str,
            "class_names": None if contents.class_names is None else list(contents.class_names),
            "skipped": [[s.where, s.reason] for s in contents.skipped],
            "files": {
                name: {"size": (work / name).stat().st_size, "crc32": _checksums(work / name)}
                for name in ("images.npy", "labels.npy", "ids.json")
            },
        }
        with _written(work / "about.json") as file:
            file.write(json.dumps(about).encode())
        _publish(work, entry)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    opened = _opened(entry)
    if opened is None:
        raise OSError(f"'{entry}' does not read back as it was written")
    return opened


def _publish(work: Path, entry: Path) -> None:
    """Move a finished entry to its place; a damaged one there makes way."""
    os.chmod(work, 0o777 & ~_umask())  # mkdtemp made it private
    if entry.exists():
        # Moved first: whoever has it open keeps its mapping, and nobody sees half an entry.
        away = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{entry.name}."))
        os.rename(entry, away / "old")
        shutil.rmtree(away, ignore_errors=True)
    try:
        os.rename(work, entry)
    except OSError:
        if not entry.exists():  # else another process was faster, where locks do not work
            raise


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A file that is on the disk, and not only on its way there, when the block ends."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _opened(entry: Path) -> Contents | None:
    """The contents of an entry, or None where it is absent, unfinished or damaged."""
    try:
        about = json.loads((entry / "about.json").read_bytes())
        if about["format"] != FORMAT:
            return None
        for name, known in about["files"].items():
            if not _intact(entry / name, known):
                return None
        labels = np.load(entry / "labels.npy", allow_pickle=False)
        ids = json.loads((entry / "ids.json").read_bytes())
        images = _mapped(entry / "images.npy", tuple(about["shape"]), np.dtype(about["dtype"]))
        skipped = tuple(Skipped(*pair) for pair in about["skipped"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Contents(images, labels, ids, about["class_names"], skipped)


def _mapped(path: Path, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A .npy file as an array that reads the file and keeps what is written to it to itself.

    Copy on write, because a tensor over read-only memory would let anybody write into it
    and crash. Nothing is reserved for such copies: a set may be larger than the memory.
    """
    with path.open("rb") as file:
        if file.read(NPY_HEADER) != npy_header(tuple(shape), dtype):
            raise ValueError(f"'{path}' does not begin as it was written")
        how: dict[str, Any]
        if hasattr(mmap, "MAP_PRIVATE"):
            how = {
                "flags": mmap.MAP_PRIVATE | _NORESERVE,
                "prot": mmap.PROT_READ | mmap.PROT_WRITE,
            }
        else:
            how = {"access": mmap.ACCESS_COPY}
        view = mmap.mmap(file.fileno(), 0, **how)
    return np.frombuffer(view, dtype, offset=NPY_HEADER).reshape(shape)


def _checksums(path: Path) -> list[int]:
    """crc32 of each block of a file."""
    with path.open("rb") as file:
        return [zlib.crc32(block) for block in iter(lambda: file.read(_BLOCK), b"")]


def _intact(path: Path, known: dict[str, Any]) -> bool:
    """Whether a file has its size and, in the blocks that are looked at, its checksums."""
    sums: list[int] = known["crc32"]
    if path.stat().st_size != known["size"]:
        return False
    blocks = range(len(sums))
    if len(sums) > _CHECKED_BLOCKS:
        blocks = np.linspace(0, len(sums) - 1, _CHECKED_BLOCKS).astype(int).tolist()
    with path.open("rb") as file:
        for k in blocks:
            file.seek(k * _BLOCK)
            if zlib.crc32(file.read(_BLOCK)) != sums[k]:
                return False
    return True


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
