"""Names in error messages: the ones that are nearest to what was written."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str:
    """The likeliest choices in words, or all of them where none is near.

    >>> nearest("Equalise", ["Equalize", "Invert"]), nearest("xyz", ["Equalize", "Invert"])
    ("did you mean 'Equalize'?", "choose one of 'Equalize', 'Invert'")
    """
    choices = list(choices)
    lower = {choice.lower(): choice for choice in choices}
    close = [lower[match] for match in get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"choose one of {', '.join(map(repr, choices))}"
