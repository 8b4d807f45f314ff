"""How a command speaks when something is wrong: fact, cause and cure, exit code 2, no traceback."""

from __future__ import annotations

import errno
import functools
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from autodo.errors import AutodoError


@contextmanager
def told(interrupted: object) -> Iterator[None]:
    """Turn what a user can mend, warnings and Ctrl-C into plain words and an exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            yield
    except AutodoError as error:
        _say_error(error.fact, error.cause, error.cure)
        raise typer.Exit(2) from None
    except OSError as error:
        _say_error(*_os_error(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; {interrupted}", err=True)
        raise typer.Exit(130) from None


def telling(command: Callable[..., None], interrupted: object) -> Callable[..., None]:
    """A command of another module, with its errors and Ctrl-C told like those of ours."""

    @functools.wraps(command)
    def command_told(*arguments: Any, **options: Any) -> None:
        with told(interrupted):
            command(*arguments, **options)

    return command_told


def this_command(*, without: Collection[str], also: Sequence[str] = ()) -> str:
    """The command that was given, as a shell takes it, without some of its words."""
    words = [word for word in sys.argv[1:] if word not in without]
    return shlex.join(["autodo", *words, *also])


_CURES = {
    errno.EACCES: "give yourself the permission (chmod), or choose another place",
    errno.EPERM: "give yourself the permission (chmod), or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.ENOSPC: "make room, then continue with --resume",
    errno.EDQUOT: "make room, then continue with --resume",
    errno.ENOENT: "check the path",
}


def _os_error(error: OSError) -> tuple[str, str, str]:
    where = (
        f"'{error.filename}' cannot be used"
        if error.filename
        else "a file cannot be read or written"
    )
    reason = error.strerror or str(error) or type(error).__name__
    cure = _CURES.get(error.errno or 0, "check the path and the disk")
    return where, f"the system says: {reason}", cure


def _say_error(fact: str, cause: str, cure: str) -> None:
    _say("error: ", fact)
    _say("  why: ", cause)
    _say("   do: ", cure)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say("warning: ", str(message))


def _say(label: str, text: str) -> None:
    """On standard error: wrapped between words on a terminal, else one line for logs and grep."""
    lines = [text]
    if sys.stderr.isatty():
        width = max(40, shutil.get_terminal_size().columns - len(label))
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    typer.echo(label + ("\n" + " " * len(label)).join(lines), err=True)
