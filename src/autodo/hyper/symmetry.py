"""Symmetries of images: whether they may be mirrored, put upside down or turned.

A photograph of a dog is still one when left and right change places; a digit is not. A network that
has never seen such images tells which it is: it recognises them nearly as well as the others, or
not. Changes are asked for in order, and each is of use only with those before it:

    mirror      left and right change places             "mirror": 2 ways to see an image
    upside_down top and bottom do                        "flips":  4, a half turn among them
    diagonal    rows and columns do (square images)      "turns":  8, quarter turns among them
"""

from __future__ import annotations

from collections.abc import Callable

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
LOST = 0.5
"""Of one class less than this share, where at least ENOUGH are recognised: the change may make
another class of it, as of left shoes."""
ENOUGH = 10


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


def judge(before: Tensor, after: Tensor, labels: Tensor, num_classes: int) -> tuple[float, bool]:
    """How well images are recognised after a change, as a share of how well before; is it enough?

    ``before`` and ``after`` (n,) are the classes that a network takes them for, ``labels`` (n,)
    those given. Classes count alike, and chance counts nothing: a network that names one class for
    all recognises nothing.

    >>> labels = torch.arange(40) % 2
    >>> judge(labels, labels, labels, 2), judge(labels, 1 - labels, labels, 2)
    ((1.0, True), (-1.0, False))
    """
    counts = torch.bincount(labels, minlength=num_classes).double()
    classes = max(1, int((counts > 0).sum()))
    counts = counts.clamp_min(1)
    chance = 1 / classes

    def by_class(values: Tensor) -> Tensor:
        sums = torch.zeros_like(counts).index_add_(0, labels, values.double())
        return sums / counts

    is_known, is_kept = before == labels, after == labels
    shares = by_class(is_known), by_class(is_kept)
    known, kept = (float(share.sum() / classes) - chance for share in shares)
    margin = is_kept.double() - AS_WELL * is_known.double()
    mean = by_class(margin)
    variance = by_class((margin - mean[labels]).square()) / counts
    error = float(variance.sum().sqrt()) / classes
    right, still = (share * counts for share in shares)
    lost = bool(((right >= ENOUGH) & (still < LOST * right)).any())
    enough = kept - AS_WELL * known > SURELY * error and not lost
    return (kept / known if known > 0 else 0.0), enough
