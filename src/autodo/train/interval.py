"""When a run writes a checkpoint.

The state of a small network is written in no time, that of a large one can take as long as an epoch
of a fast GPU. So unless the user says how often, what a checkpoint costs says it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.02
"""Of a run's time, that its checkpoints may take."""
NOTHING = 0.25
"""Seconds that nobody minds at the end of an epoch."""


class Interval:
    """The time between two checkpoints: so many epochs, or by what the last one took to write.

    >>> [epoch for epoch in range(1, 8) if Interval(3).is_over(epoch)]
    [3, 6]
    """

    def __init__(self, epochs: int | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.epochs, self.clock = epochs, clock
        self.took = 0.0
        self.written = clock()

    def is_over(self, epoch: int) -> bool:
        """Whether one is due at the end of ``epoch``, counted from 1."""
        if self.epochs is not None:
            return epoch % self.epochs == 0
        return self.took < NOTHING or self.clock() - self.written >= self.took / SHARE

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around the writing of one."""
        start = self.clock()
        yield
        self.written = self.clock()
        self.took = self.written - start
