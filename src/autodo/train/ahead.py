"""Batches prepared one ahead of their step.

Sending a batch and augmenting it by a policy are copies and many small kernels. On CUDA they run on
a stream of their own while the step before keeps the device busy; elsewhere nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVarTuple

import torch
from torch import Tensor

Parts = TypeVarTuple("Parts")

QUEUED = 2
"""Steps that wait on the device when the host prepares a batch; each holds one in memory."""


def ahead(batches: Iterator[tuple[*Parts]], device: torch.device) -> Iterator[tuple[*Parts]]:
    """The same batches, tuples of tensors and other things, in the same order.

    >>> list(ahead(iter([(1,), (2,)]), torch.device("cpu")))
    [(1,), (2,)]
    """
    if device.type != "cuda":
        yield from batches
        return
    # Of two streams' blocks that wait for room the device takes those of the higher priority first:
    # small kernels do not queue behind each large one of the step.
    stream = torch.cuda.Stream(device, priority=-1)
    # What was computed before, such as a shuffled order, must be there.
    stream.wait_stream(torch.cuda.current_stream(device))

    def prepare() -> tuple[tuple[*Parts], torch.cuda.Event] | None:
        with torch.cuda.stream(stream):
            batch = next(batches, None)
            return None if batch is None else (batch, stream.record_event())

    launched: deque[torch.cuda.Event] = deque()
    prepared = prepare()
    while prepared is not None:
        batch, ready = prepared
        here = torch.cuda.current_stream(device)
        here.wait_event(ready)
        for part in batch:
            if isinstance(part, Tensor) and part.is_cuda:
                part.record_stream(here)  # its memory is not given away while this stream needs it
        yield batch
        # Launching is faster than stepping: unchecked, batches would pile up on the device.
        done = torch.cuda.Event(blocking=True)  # the core that waits is free for others
        done.record(torch.cuda.current_stream(device))
        launched.append(done)
        if len(launched) > QUEUED:
            launched.popleft().synchronize()
        prepared = prepare()
