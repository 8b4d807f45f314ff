"""How the errors of data/ name things: examples, classes, long lists.

A message is only useful when it points at something the reader can open, so
every check names examples by position and, where there is one, by file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def some(items: Iterable[object], limit: int = 5) -> str:
    """The first few items in words.

    >>> some([3, 1, 4]), some(range(100), limit=2)
    ('3, 1, 4', '0, 1 and 98 more')
    """
    texts = [str(item) for item in items]
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {more} more" if more > 0 else "")


def example(name: str, index: int, ids: Sequence[str] | None = None) -> str:
    """One example, with its id where that says more than its position.

    >>> example("train", 2), example("train", 2, ["a.png", "b.png", "c.png"])
    ('train[2]', "train[2] ('c.png')")
    """
    known = ids[index] if ids is not None else str(index)
    return f"{name}[{index}]" + (f" ('{known}')" if known != str(index) else "")


def classes(numbers: Iterable[int], class_names: Sequence[str]) -> str:
    """Classes by number and, where that says more, by name.

    >>> classes([1], ["0", "1"]), classes([0, 1], ["cat", "dog"])
    ('class 1', "classes 0 ('cat'), 1 ('dog')")
    """
    texts = [
        f"{c} ('{class_names[c]}')" if c < len(class_names) and class_names[c] != str(c) else str(c)
        for c in numbers
    ]
    return ("class " if len(texts) == 1 else "classes ") + some(texts)


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "image"), count(1797, "image")
    ('1 image', '1,797 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
