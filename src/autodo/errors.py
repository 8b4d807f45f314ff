"""The errors a user meets. Each says the fact, its likely cause and the cure.

The command line prints the three parts and leaves with exit code 2; a caller of
the Python API catches one class, :class:`AutodoError`.
"""

from __future__ import annotations


class AutodoError(Exception):
    """Something the user can mend. ``str(error)`` reads as: fact. cause. cure.

    >>> str(InputError("trusted is empty", "the folder holds no images", "add some"))
    'trusted is empty: the folder holds no images. add some.'
    >>> str(InputError("a class is named 'cat'", "names are not numbers", "number them 0, 1, ..."))
    "a class is named 'cat': names are not numbers. number them 0, 1, ..."
    """

    def __init__(self, fact: str, cause: str, cure: str) -> None:
        self.fact, self.cause, self.cure = map(_without_stop, (fact, cause, cure))
        super().__init__(f"{self.fact}: {_with_stop(self.cause)} {_with_stop(self.cure)}")

    def __reduce__(self) -> tuple[type[AutodoError], tuple[str, str, str]]:
        # Errors cross processes (workers, distributed runs); the default would pass one argument.
        return type(self), (self.fact, self.cause, self.cure)


def _without_stop(part: str) -> str:
    """The parts are joined and shown one by one; an ellipsis is part of what they say."""
    return part if part.endswith("...") else part.rstrip(".")


def _with_stop(part: str) -> str:
    return part if part.endswith("...") else f"{part}."


class InputError(AutodoError, ValueError):
    """The data, the model or the configuration cannot be used as they are."""


class RunFolderError(AutodoError):
    """The run folder is taken, incomplete, or belongs to another configuration."""


class NumericalError(AutodoError, ArithmeticError):
    """A loss, a hypergradient or a solver left the finite numbers."""
