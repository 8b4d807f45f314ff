"""Convex functions minimised together, each by an L-BFGS of its own.

They share each evaluation of their gradients, and the end: all go on until the last has arrived.
There is no search along a line, in which one would wait for the others: a step that went too far is
not taken, but what it told of the curvature makes the next one shorter. Only gradients are asked
for; values in float32 do not tell the last steps apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MEMORY = 10
"""Steps whose curvature is remembered."""
UPHILL = 0.5
"""A step went too far if it ends in a slope upwards of more than this share of the slope down at
its start; on a parabola, a share below 1 has come down."""


def descend(
    gradient: Callable[[Tensor], Tensor], x: Tensor, *, steps: int, tolerance: float
) -> Tensor:
    """x (K, P) whose gradients (K, P) are at most ``tolerance`` in every coordinate.

    The functions' curvature should be about 1, which is the first guess. The last x is returned
    if ``steps`` evaluations do not suffice.

    >>> goal, bend = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[1.0, 9.0], [0.1, 1.0]])
    >>> descend(lambda x: bend * (x - goal), torch.zeros(2, 2), steps=20, tolerance=1e-4).round()
    tensor([[3., 4.],
            [0., 1.]])
    """
    g = gradient(x)
    step, scale = -g, torch.ones_like(g[:, :1])
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(steps):
        if not float(g.abs().max()) > tolerance:  # nor if it is not a number
            break
        there = x + step
        g_there = gradient(there)
        change = g_there - g
        bent, size = _dot(step, change), _dot(change, change)
        # Nothing is learned from a step in which rounding hides the curvature.
        learned = bent > torch.finfo(x.dtype).eps ** 1.5 * size
        scale = torch.where(learned, bent / size, scale)
        seen = [*seen[1 - MEMORY :], (step, change, torch.where(learned, 1 / bent, 0.0))]
        near = _dot(g_there, step) <= -UPHILL * _dot(g, step)
        x, g = torch.where(near, there, x), torch.where(near, g_there, g)
        step = _direction(g, seen, scale)
    return x


def _direction(g: Tensor, seen: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """-H g, with the inverse Hessian H that the steps seen imply: the two loops of L-BFGS."""
    shares = []
    for step, change, inverse in reversed(seen):
        shares.append(inverse * _dot(step, g))
        g = torch.addcmul(g, shares[-1], change, value=-1)
    g = scale * g
    for step, change, inverse in seen:
        g = torch.addcmul(g, shares.pop() - inverse * _dot(change, g), step)
    return -g


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)
