"""Work done a few items ahead on a thread of its own, while the caller is busy with the last one.

For work that leaves Python alone, such as copying images: the thread then takes no time from the
caller. The items are drawn, and random numbers with them, on the caller's thread and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Parts = TypeVarTuple("Parts")
Done = TypeVar("Done")

DEPTH = 2
"""Items done or under way beyond the one that the caller has."""


def in_background(
    work: Callable[[*Parts], Done], items: Iterable[tuple[*Parts]], *, depth: int = DEPTH
) -> Iterator[Done]:
    """``work(*item)`` of each item, in order; an error of it is raised in its turn.

    The thread ends with the iterator, whether that is exhausted, closed or forgotten; what it is
    doing at that moment is finished, what waits is not begun.

    >>> list(in_background(pow, [(3, 2), (2, 5)]))
    [9, 32]
    """
    waiting: deque[Future[Done]] = deque()
    thread = ThreadPoolExecutor(1, thread_name_prefix="autodo")
    try:
        for item in items:
            waiting.append(thread.submit(work, *item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        thread.shutdown()
