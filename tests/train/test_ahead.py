"""Batches ahead of their steps: the same batches, and not too many of them on the device."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from autodo.train.ahead import QUEUED, ahead
from autodo.train.recorded import WARM_UP, Recorded

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_batches_pass_unchanged() -> None:
    batches = [(torch.full((2,), float(k)), None, k) for k in range(4)]
    assert list(ahead(iter(batches), torch.device("cpu"))) == batches


@needs_gpu
def test_gpu_batches_are_whole_when_their_step_reads_them() -> None:
    device = torch.device("cuda")

    def batches() -> Iterator[tuple[Tensor, int]]:
        for k in range(8):
            torch.cuda._sleep(2_000_000)  # the batch is late, the step must wait for it
            yield torch.full((1 << 20,), float(k), device=device), k

    sums = [(batch.sum(), k) for batch, k in ahead(batches(), device)]
    assert [float(total) for total, _ in sums] == [k * float(1 << 20) for _, k in sums]
    assert [k for _, k in sums] == list(range(8))


@needs_gpu
def test_gpu_steps_that_take_long_do_not_let_batches_pile_up() -> None:
    device, size, steps = torch.device("cuda"), 1 << 20, 20

    def batches() -> Iterator[tuple[Tensor]]:
        for _ in range(steps):
            yield (torch.empty(size, dtype=torch.uint8, device=device),)

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    ended = []
    for _ in ahead(batches(), device):
        torch.cuda._sleep(20_000_000)
        ended.append(torch.cuda.Event())
        ended[-1].record()
        assert sum(not event.query() for event in ended) <= QUEUED + 1
    # Reserved memory comes in pieces of at least 2 MiB and up to 20 MiB.
    assert torch.cuda.memory_reserved() - before <= 20 << 20


@needs_gpu
def test_gpu_a_step_is_recorded_while_another_thread_pins_memory() -> None:
    """As the DataLoader's thread does; its calls may neither fail nor spoil the recording."""
    device, stop = torch.device("cuda"), threading.Event()
    pinned: list[Tensor] = []  # all kept, so that none is used again instead of asked for
    errors: list[Exception] = []

    def pin() -> None:
        try:
            while not stop.is_set():
                pinned.append(torch.empty(4096, dtype=torch.uint8).pin_memory())
        except Exception as error:
            errors.append(error)

    def step(x: Tensor) -> tuple[Tensor]:
        time.sleep(0.02)  # long enough for the other thread to ask for memory meanwhile
        return (x * 2,)

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        recorded = Recorded(step, device)
        for k in range(WARM_UP + 3):
            (twice,) = recorded(torch.full((4,), float(k), device=device))
            assert twice.tolist() == [2.0 * k] * 4
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert pinned
    assert recorded.enabled
    assert recorded._graph is not None
