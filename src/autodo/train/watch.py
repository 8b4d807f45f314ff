"""Watching for numbers that stop being finite, without waiting for the device at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from autodo.errors import NumericalError


class Watch:
    """Collects one boolean per step and looks at them together, every ``every`` steps.

    >>> watch = Watch("the training loss", "the learning rate is too high", "lower it", every=2)
    >>> watch.see(torch.tensor(True), torch.tensor([0, 1]))
    >>> watch.see(torch.tensor(False), torch.tensor([2, 3]))
    Traceback (most recent call last):
    autodo.errors.NumericalError: the training loss of the points 2, 3 is not finite: ...
    """

    def __init__(self, what: str, cause: str, cure: str, *, every: int = 64) -> None:
        self.what, self.cause, self.cure, self.every = what, cause, cure, every
        self._seen: list[tuple[Tensor, Tensor]] = []

    def see(self, good: Tensor, index: Tensor) -> None:
        """Note whether the step on the points ``index`` was good."""
        self._seen.append((good, index))
        if len(self._seen) >= self.every:
            self.look()

    def look(self) -> None:
        """Raise for the first bad step since the last look."""
        seen, self._seen = self._seen, []
        if not seen or bool(torch.stack([good for good, _ in seen]).all()):
            return
        index = next(index for good, index in seen if not bool(good))
        raise NumericalError(
            f"{self.what} of the points {preview(index)} is not finite", self.cause, self.cure
        )


def preview(index: Tensor, count: int = 256) -> str:
    """The indices of a batch, for messages.

    >>> preview(torch.arange(100), 3)
    '0, 1, 2, ... (100 in all)'
    """
    shown = ", ".join(str(i) for i in index[:count].tolist())
    return shown if len(index) <= count else f"{shown}, ... ({len(index)} in all)"
