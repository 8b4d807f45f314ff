"""Files that are either whole or absent: written beside their place, then moved into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write; it takes the name ``path`` only when the block ends well.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "x"
    >>> with atomic(target) as file:
    ...     _ = file.write(b"whole")
    >>> target.read_bytes(), [p.name for p in target.parent.iterdir()]
    (b'whole', ['x'])
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a run's files follow the user's umask like any other.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as file:
        file.write(text.encode())


def write_with(path: Path, write: Callable[[Any], object]) -> None:
    """Let ``write`` fill an atomic file that it is given open."""
    with atomic(path) as file:
        write(file)
