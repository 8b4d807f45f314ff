"""The fused step of a table against the torch operations.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import pytest
import torch
from interpreter import HAS_TRITON, INTERPRETED, PLACES, needs_gpu, pass_in_interpreter
from torch import Tensor

from autodo.hyper.relabel import STORAGES, label_table
from autodo.hyper.table import FUSED_COLUMNS, FUSED_ENTRIES, Table, can_fuse, sum_duplicates
from autodo.train.recorded import WARM_UP, Recorded

SHAPES = [(1, 1), (7, 1), (40, 10), (64, 3), (100, 64)]
POINTS = 90


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def index_of(seed: int, entries: int) -> Tensor:
    """With duplicates, within a batch and from batch to batch."""
    return torch.randint(POINTS, (entries,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
def test_the_kernels_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("entries", "columns"), SHAPES)
def test_fused_sums_of_equal_indices_are_the_sums(entries: int, columns: int, device: str) -> None:
    from autodo.hyper import table_triton

    index, gradient = index_of(1, entries) // 3, drawn(2, entries, columns)
    summed = table_triton.sum_duplicates(index.to(device), gradient.to(device)).cpu()
    torch.testing.assert_close(summed, sum_duplicates(index, gradient))
    for i in range(entries):  # to the bit: whichever is written last, it is the same row
        assert torch.equal(summed[i], summed[(index == index[i]).nonzero()[0, 0]])


@pytest.mark.parametrize("rate", ["number", "tensor"])
@pytest.mark.parametrize("moved", ["rows", "change"])
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("entries", "columns"), SHAPES)
def test_fused_steps_equal_the_torch_operations(
    entries: int, columns: int, moved: str, rate: str, device: str
) -> None:
    """From the first step, where the correction of the average is largest, on."""
    from autodo.hyper import table_triton

    ours = Table(drawn(0, POINTS, columns)).to(device)
    exact = Table(drawn(0, POINTS, columns).double())
    for k in range(4):
        index, gradient = index_of(k, entries), drawn(k, entries, columns) * 10.0 ** (-k)
        lr: float | Tensor = 0.1 / (k + 1)
        exact.step(index, gradient.double(), lr)
        if rate == "tensor":
            lr = torch.tensor(lr, device=device)
        there = index.to(device)
        rows = ours.rows if moved == "rows" else None
        change = table_triton.step(ours.optimizer, there, gradient.to(device), lr, rows)
        if change is not None:
            ours.rows[there] = ours.rows[there] - change
        torch.testing.assert_close(ours.rows.cpu().double(), exact.rows, rtol=1e-5, atol=1e-6)
        assert int(ours.optimizer.steps) == k + 1
        assert float(ours.optimizer.square) == pytest.approx(float(exact.optimizer.square), 1e-5)


@pytest.mark.parametrize("device", PLACES)
def test_fused_steps_late_in_a_run_equal_the_torch_operations(device: str) -> None:
    from autodo.hyper import table_triton

    for steps in (68, 70, 300, 10**6):  # 0.99^69 is about 1/2, where the series ends
        ours, exact = Table(torch.zeros(5, 2)).to(device), Table(torch.zeros(5, 2).double())
        for table in (ours, exact):
            table.optimizer.steps.fill_(steps)
            table.optimizer.square.fill_(0.25)
        index, gradient = torch.tensor([3, 0]), drawn(1, 2, 2)
        exact.step(index, gradient.double(), 0.1)
        table_triton.step(ours.optimizer, index.to(device), gradient.to(device), 0.1, ours.rows)
        torch.testing.assert_close(ours.rows.cpu().double(), exact.rows, rtol=2e-6, atol=0)


@pytest.mark.parametrize("device", PLACES)
def test_fused_steps_touch_nothing_for_an_index_beyond_the_table(device: str) -> None:
    from autodo.hyper import table_triton

    table = Table(drawn(0, POINTS, 3)).to(device)
    before = table.rows.clone()
    index = torch.tensor([POINTS, -1, 2**40, 5], device=device)
    table_triton.step(table.optimizer, index, drawn(1, 4, 3).to(device), 0.1, table.rows)
    assert torch.equal(table.rows[:5], before[:5])
    assert torch.equal(table.rows[6:], before[6:])
    assert not torch.equal(table.rows[5], before[5])


def test_off_cuda_and_for_large_batches_steps_are_torch_operations() -> None:
    index, gradient = index_of(0, 4), drawn(0, 4, 2)
    assert not can_fuse(index, gradient)
    for device in ("cuda",) if torch.cuda.is_available() and HAS_TRITON else ():
        there = index.to(device)
        assert can_fuse(there, gradient.to(device))
        assert not can_fuse(there, gradient.to(device).double())
        assert not can_fuse(there, drawn(0, 4, FUSED_COLUMNS + 1).to(device))
        assert not can_fuse(there, drawn(0, FUSED_ENTRIES + 1, 2).to(device))


@needs_gpu
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("optimizer", ["table", "rmsprop"])
@pytest.mark.parametrize("storage", STORAGES)
def test_gpu_tables_of_all_kinds_step_as_without_the_kernels(
    storage: str, optimizer: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if optimizer == "rmsprop" and storage != "float32":
        pytest.skip("those storages are for the table optimizer")
    monkeypatch.setattr("autodo.hyper.rounded.random_bits", _no_bits)
    ends = []
    for fused in (True, False):
        table = label_table(torch.arange(POINTS) % 10, 10, storage=storage, top=10,
                            optimizer=optimizer).cuda()  # fmt: skip
        table.fused = fused

        def step(index, gradient, lr, table=table):  # type: ignore[no-untyped-def]
            table.step(index, gradient, lr)
            return (table.gather(index),)

        run = Recorded(step, torch.device("cuda"), enabled=recorded)
        for k in range(WARM_UP + 5):
            lr = torch.full((), 0.1 / (k + 1), device="cuda")
            run(index_of(k, 64).cuda(), drawn(k, 64, 10).cuda(), lr)
        assert (run._graph is not None) == recorded
        ends.append(table.values(POINTS))
    tolerance = 0.05 if storage == "bfloat16" else 1e-5
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=tolerance)


def _no_bits(step: Tensor, index: Tensor, columns: int) -> Tensor:
    """Rounding is always down, so that two ways to a row can be compared."""
    return torch.zeros(len(index), columns, dtype=torch.int64, device=index.device)
