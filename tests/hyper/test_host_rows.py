"""Rows that stay on the host: on a CPU they are any rows; a GPU reads and writes them there."""

from __future__ import annotations

import pytest
import torch

from autodo.errors import InputError
from autodo.hyper import DatasetModel
from autodo.hyper.host_rows import read_rows, within_reach, write_rows
from autodo.hyper.relabel import STORAGES, label_table
from autodo.hyper.table import Table
from autodo.train.recorded import WARM_UP, Recorded

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
POINTS, CLASSES = 40, 37
LABELS = torch.arange(POINTS) % CLASSES


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(storage: str, *, host: bool, device: str) -> Table:
    return label_table(LABELS, CLASSES, storage=storage, top=5, host=host).to(device)


def stored(table: Table) -> dict[str, torch.Tensor]:
    return {name: value.cpu().clone() for name, value in table.state_dict().items()}


def index_of(seed: int) -> torch.Tensor:
    """With duplicates, within a batch and from batch to batch."""
    return torch.randint(POINTS, (16,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("storage", STORAGES)
def test_on_a_cpu_host_and_device_are_the_same(storage: str) -> None:
    host, device = (made(storage, host=host, device="cpu") for host in (True, False))
    for k in range(5):
        for table in (host, device):
            table.step(index_of(k), drawn(k, 16, CLASSES), 0.1)
    assert host.device == torch.device("cpu")
    assert all(torch.equal(value, stored(host)[name]) for name, value in stored(device).items())


def test_moving_the_type_of_a_table_on_the_host_leaves_its_rows() -> None:
    table = made("float32", host=True, device="cpu").double()
    assert table.rows.dtype == torch.float32
    assert table.optimizer.square.dtype == torch.float64


def test_all_tables_of_a_point_can_be_on_the_host_but_not_a_shared_row() -> None:
    data = DatasetModel(
        LABELS, num_classes=CLASSES, augment="affine", shared_augment=True, tables_on="host"
    )
    assert {name: table.host for name, table in data.tables.items()} == {
        "augment": False, "weight": True, "label": True,
    }  # fmt: skip


def test_places_and_devices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match=r"'disk'.*device, host"):
        DatasetModel(LABELS, num_classes=CLASSES, tables_on="disk")
    with pytest.raises(InputError, match=r"from meta: .*Triton.*tables_on"):
        within_reach(torch.zeros(1, 1), torch.device("meta"))
    with pytest.raises(InputError, match=r"tables on the host.*rmsprop"):
        Table(torch.zeros(2, 2), "rmsprop", host=True)


# On a GPU


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.int32])
@pytest.mark.parametrize("columns", [1, 14, 1000, 1500])
def test_gpu_reads_and_writes_pinned_rows(dtype: torch.dtype, columns: int) -> None:
    rows = (100 * drawn(0, POINTS, columns)).to(dtype)
    pinned, index = within_reach(rows.clone(), torch.device("cuda")), index_of(1).cuda()
    assert pinned.is_pinned()
    read = read_rows(pinned, index)
    assert read.is_cuda
    assert torch.equal(read.cpu(), rows[index.cpu()])
    write_rows(pinned, index, read * 2)
    torch.cuda.synchronize()
    expected = rows.clone()
    expected[index.cpu()] = (read * 2).cpu()
    assert torch.equal(pinned, expected)


@needs_gpu
def test_gpu_touches_nothing_for_an_index_beyond_the_table() -> None:
    rows = within_reach(drawn(0, POINTS, 3), torch.device("cuda"))
    before, index = rows.clone(), torch.tensor([0, POINTS, -1, 2**40], device="cuda")
    read = read_rows(rows, index).cpu()
    assert torch.equal(read[0], before[0])
    assert read[1:].isnan().all()
    write_rows(rows, index[1:], torch.zeros(3, 3, device="cuda"))
    torch.cuda.synchronize()
    assert torch.equal(rows, before)


@needs_gpu
def test_gpu_refuses_rows_that_are_not_pinned() -> None:
    with pytest.raises(ValueError, match="cpu tensor"):
        read_rows(torch.zeros(2, 2), torch.tensor([0], device="cuda"))


@needs_gpu
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("storage", STORAGES)
def test_gpu_host_tables_equal_device_tables_bit_for_bit(storage: str, recorded: bool) -> None:
    """Also when the step is recorded, and where one batch shares points with the next."""
    ends = []
    for host in (True, False):
        table = made(storage, host=host, device="cuda")
        assert table.rows.is_cuda != host

        def step(index, gradient, lr, table=table):  # type: ignore[no-untyped-def]
            rows = table.gather(index)
            table.step(index, gradient + 0.1 * rows, lr)
            return (rows,)

        run = Recorded(step, torch.device("cuda"), enabled=recorded)
        seen = []
        for k in range(WARM_UP + 8):
            lr = torch.full((), 0.1 / (k + 1), device="cuda")
            seen.append(run(index_of(k).cuda(), drawn(k, 16, CLASSES).cuda(), lr)[0].cpu())
        assert (run._graph is not None) == recorded
        ends.append((stored(table), seen))
    assert all(torch.equal(ends[0][0][name], value) for name, value in ends[1][0].items())
    assert all(torch.equal(a, b) for a, b in zip(ends[0][1], ends[1][1], strict=True))


@needs_gpu
@pytest.mark.parametrize("storage", STORAGES)
def test_gpu_host_tables_are_saved_and_loaded(storage: str) -> None:
    first, second = (made(storage, host=True, device="cuda") for _ in range(2))
    for k in range(20):  # saved at once, while steps are still under way
        first.step(index_of(k).cuda(), drawn(k, 16, CLASSES).cuda(), 0.1)
    second.load_state_dict(stored(first))
    assert second.rows.is_pinned()
    for table in (first, second):
        table.step(index_of(99).cuda(), drawn(99, 16, CLASSES).cuda(), 0.1)
    assert all(torch.equal(value, stored(second)[name]) for name, value in stored(first).items())
    assert torch.equal(first.values(POINTS), second.values(POINTS))
