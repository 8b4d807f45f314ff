"""Files that are either whole or absent: written beside their place, then moved into it.

A copy of them may still be cut off; ``readable`` says so of one that does not read back.
"""

from __future__ import annotations

import errno
import os
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from autodo.errors import AutodoError, RunFolderError

AGAIN = (
    "copy the run again, or let the autodo fit that made it write that file anew from its "
    "checkpoint, with --resume"
)
"""The cure of a damaged file that is written when a run ends."""


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


@contextmanager
def readable(path: Path, cure: str = AGAIN) -> Iterator[None]:
    """Reading the file ``path`` of a run: whatever is wrong in it is the user's to mend, no bug.

    >>> import json
    >>> with readable(Path("runs/x/view/about.json"), "copy it again"):
    ...     json.loads("{")
    Traceback (most recent call last):
        ...
    autodo.errors.RunFolderError: 'runs/x/view/about.json' cannot be read: \
it is damaged, perhaps by copying (JSONDecodeError: Expecting property name enclosed in double \
quotes: line 1 column 2 (char 1)). copy it again.
    """
    try:
        yield
    except AutodoError:
        raise
    except Exception as error:  # every format has its own errors, few of them documented
        # The disk says itself what is wrong; EINVAL is what torch says of a file that is cut off.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        said = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
        raise unreadable(path, f"it is damaged, perhaps by copying ({said})", cure) from error


def unreadable(path: Path, cause: str, cure: str = AGAIN) -> RunFolderError:
    """The error that the file ``path`` of a run cannot be read."""
    return RunFolderError(f"'{path}' cannot be read", cause, cure)


def write_with(path: Path, write: Callable[[Any], object]) -> None:
    """Let ``write`` fill an atomic file that it is given open."""
    with atomic(path) as file:
        write(file)
