"""Symmetries of images: whether they may be mirrored, put upside down or turned.

A photograph of a dog is still one when left and right change places; a digit is not. A network that
has never seen such images tells which it is: it recognises them nearly as well as the others, or
not. Changes are asked for in order, and each is of use only with those before it:

    mirror      left and right change places             "mirror": 2 ways to see an image
    upside_down top and bottom do                        "flips":  4, a half turn among them
    diagonal    rows and columns do (square images)      "turns":  8, quarter turns among them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import mean

import torch
from torch import Generator, Tensor

SYMMETRIES = ("none", "mirror", "flips", "turns")
"""By how many of the changes images are drawn with."""

CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "mirror": lambda images: images.flip(-1),
    "upside_down": lambda images: images.flip(-2),
    "diagonal": lambda images: images.transpose(-1, -2),
}

AS_WELL = 0.9
"""Share of what is recognised, beyond chance, that must still be recognised after a change."""
SURELY = 2.0
"""Standard errors by which it must be more."""
FEW = 5
"""Images of a class that do not tell its own variance."""
MOST = 100
"""Images as which those of a class count, at the most. All classes counted alike, a few images of
rare ones would decide."""
LOST = 0.5
"""Of one class less than this share, where at least ENOUGH are recognised: the change may make
another class of it, as of left shoes."""
ENOUGH = 10


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """How well a network recognises images after a change, as a share of how well before."""

    share: float
    error: float
    """Its standard error."""
    lost: bool
    """Whether it no longer recognises one of the classes."""


def changes(level: int, size: tuple[int, int]) -> dict[str, Callable[[Tensor], Tensor]]:
    """The first ``level`` changes; images of a ``size`` (H, W) that is not square have no diagonal.

    >>> list(changes(3, (8, 8))), list(changes(3, (8, 6))), list(changes(1, (8, 8)))
    (['mirror', 'upside_down', 'diagonal'], ['mirror', 'upside_down'], ['mirror'])
    """
    first = list(CHANGES.items())[:level]
    return {name: change for name, change in first if name != "diagonal" or size[0] == size[1]}


def draw(count: int, size: tuple[int, int], level: int, generator: Generator | None) -> Tensor:
    """(changes, count) which of its changes each of ``count`` images gets; ways equally likely."""
    device = None if generator is None else generator.device
    shape = (len(changes(level, size)), count)
    return torch.rand(shape, generator=generator, device=device) < 0.5


def turn(images: Tensor, level: int, generator: Generator | None = None) -> Tensor:
    """Images (B, C, H, W), each seen in one of the ways of the symmetry at place ``level``."""
    if level == 0:
        return images
    drawn = draw(len(images), (images.shape[-2], images.shape[-1]), level, generator)
    if images.is_cuda and not drawn.is_cuda:
        drawn = drawn.pin_memory()  # so that nothing waits
    return turned(images, drawn.to(images.device, non_blocking=True))


def turned(images: Tensor, drawn: Tensor) -> Tensor:
    """Images (B, C, H, W) with the changes that were ``drawn`` (level, B) for each.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> turned(image, torch.tensor([[True]])).flatten().tolist()
    [2, 1, 4, 3]
    >>> turned(image, torch.tensor([[True], [False], [True]])).flatten().tolist()  # a quarter turn
    [2, 4, 1, 3]
    """
    for change, is_drawn in zip(CHANGES.values(), drawn, strict=False):
        images = torch.where(is_drawn[:, None, None, None], change(images), images)
    return images


def recognition(before: Tensor, after: Tensor, labels: Tensor, num_classes: int) -> Recognition:
    """How well a network recognises images that it takes for ``after`` (n,) a change.

    ``before`` (n,) is what it takes them for without, ``labels`` (n,) are those given. Chance
    counts nothing: a network that names one class for all recognises nothing.

    >>> labels = torch.arange(40) % 2
    >>> [round(recognition(labels, after, labels, 2).share, 6) for after in (labels, 1 - labels)]
    [1.0, -1.0]
    """
    counts = torch.bincount(labels, minlength=num_classes).double()
    weight = counts.clamp_max(MOST) / counts.clamp_max(MOST).sum()
    counts = counts.clamp_min(1)

    def by_class(values: Tensor) -> Tensor:
        sums = torch.zeros_like(counts).index_add_(0, labels, values.double())
        return sums / counts

    def beyond_chance(taken_for: Tensor) -> tuple[Tensor, float]:
        """(C,) how many of each class are recognised, and of all the share that guesses are not."""
        right = by_class(taken_for == labels)
        named = torch.bincount(taken_for, weights=(weight / counts)[labels], minlength=num_classes)
        return right * counts, float(weight @ (right - named))

    (right, known), (still, kept) = beyond_chance(before), beyond_chance(after)
    margin = (after == labels).double() - AS_WELL * (before == labels).double()
    variance = by_class((margin - by_class(margin)[labels]).square()) / counts
    # One or two images do not tell how much a class varies: as much as all images together.
    if len(margin) > 1:
        variance = torch.where(counts < FEW, margin.var() / counts, variance)
    lost = bool(((right >= ENOUGH) & (still < LOST * right)).any())
    if known <= 0:
        return Recognition(share=0.0, error=0.0, lost=lost)
    error = float((weight.square() @ variance).sqrt())
    return Recognition(share=kept / known, error=error / known, lost=lost)


def is_enough(found: Sequence[Recognition]) -> bool:
    """Whether images are still what they were after a change, by what several networks say of it.

    >>> sure, unsure = (Recognition(share=0.99, error=error, lost=False) for error in (0.01, 0.1))
    >>> is_enough([sure]), is_enough([unsure]), is_enough([sure, unsure]), is_enough([unsure] * 5)
    (True, False, False, True)
    """
    return _surplus(found) > SURELY * _error(found) and not any(one.lost for one in found)


def is_too_much(found: Recognition) -> bool:
    """Whether what other networks say cannot matter any more."""
    return found.lost or _surplus([found]) < -SURELY * _error([found])


def _surplus(found: Sequence[Recognition]) -> float:
    return mean(one.share for one in found) - AS_WELL


def _error(found: Sequence[Recognition]) -> float:
    return hypot(*(one.error for one in found)) / len(found)
