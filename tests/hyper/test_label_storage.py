"""Every storage of the labels, from the first epoch to the export: it learns, stops and goes on."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from made_runs import make_run, messy_digits, network
from torch import nn
from typer.testing import CliRunner

import autodo
from autodo.cli import app
from autodo.config import Config
from autodo.errors import InputError
from autodo.export.learned import Learned
from autodo.hyper import DatasetModel
from autodo.hyper.relabel import STORAGES, initial_label_logits, label_table
from autodo.train.loop import Trainer
from autodo.train.run_folder import RunFolder

WAYS = [
    pytest.param({"label_storage": "float32", "tables_on": "host"}, id="host"),
    pytest.param({"label_storage": "bfloat16"}, id="bfloat16"),
    pytest.param({"label_storage": "top-k", "label_top": 3}, id="top-3"),
    pytest.param({"label_storage": "top-k", "label_top": 10}, id="top-10"),
]
QUICK = Config(
    epochs=8, belief_epochs=2, belief_rounds=1, batch_size=32, lr=0.1, hyper_batch_size=32,
    label_lr=0.1, device="cpu",
)  # fmt: skip


def trainer(**changes: object) -> Trainer:
    train, trusted, _ = messy_digits()
    model = network()
    head = model[-1]  # type: ignore[index]
    assert isinstance(head, nn.Linear)
    return Trainer(model, head, train, trusted, dataclasses.replace(QUICK, **changes))  # type: ignore[arg-type]


MAKE = """
import resource, sys, torch
from autodo.hyper.relabel import label_table
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
labels = torch.arange(200_000) % 1000
label_table(labels[:100], 1000, storage=sys.argv[1])
before = peak()
table = label_table(labels, 1000, storage=sys.argv[1])
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss has other units")
@pytest.mark.parametrize(
    ("storage", "bytes_per_point"), [("float32", 4000), ("bfloat16", 2000), ("top-k", 52)]
)
def test_a_table_is_made_in_little_more_than_its_own_memory(
    storage: str, bytes_per_point: int
) -> None:
    command = [sys.executable, "-c", MAKE, storage]
    peak = int(subprocess.run(command, capture_output=True, check=True).stdout)
    # Beside it only what a part of 65,536 points takes.
    assert peak <= 200_000 * bytes_per_point + 32e6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10, 777])
def test_initial_logits_are_the_formula_to_the_bit(classes: int, dtype: torch.dtype) -> None:
    labels = torch.arange(20) % classes
    onehot = nn.functional.one_hot(labels, classes).to(dtype)
    expected = (onehot - 0.5) * np.log(1 - classes + classes / 0.1)
    assert torch.equal(initial_label_logits(labels, classes, 0.1, dtype), expected)


@pytest.mark.parametrize("storage", STORAGES)
def test_labels_start_anew_from_q(storage: str) -> None:
    """More points than one part, and with the two classes of each q among those that are kept."""
    count = 70_000
    generator = torch.Generator().manual_seed(0)
    given, other = torch.randint(20, (2, count), generator=generator)
    data = DatasetModel(given, num_classes=20, label_storage=storage, label_top=4)
    q = torch.zeros(count, 20).scatter_(1, other[:, None], 0.7)
    q.scatter_add_(1, given[:, None], torch.full((count, 1), 0.3))
    index = torch.randperm(count, generator=generator)
    data.set_soft_labels(index, q[index], 0.1)
    tolerance = 0.02 if storage == "bfloat16" else 1e-6
    expected = 0.9 * q + 0.1 / 20
    torch.testing.assert_close(
        data.soft_labels(torch.arange(count)), expected, rtol=0, atol=tolerance
    )
    shares = data.class_shares()
    torch.testing.assert_close(shares, expected.mean(0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_run_goes_on_bit_for_bit(way: dict[str, object], tmp_path: Path) -> None:
    whole, first, second = (trainer(**way) for _ in range(3))
    list(whole.epochs())
    epochs = first.epochs()
    for _ in range(first.plan.hyper_start + 2):  # in the midst of hyper steps
        next(epochs)
    folder = RunFolder(tmp_path)
    folder.checkpoint.parent.mkdir()
    folder.save_checkpoint(first.state())
    state = folder.load_checkpoint()
    assert state is not None
    second.load(state)
    list(second.epochs())
    ends = [{**run.data.state_dict(), **run.model.state_dict()} for run in (whole, second)]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    started = label_table(whole.data.labels, 10, storage="float32").values(whole.count)
    assert not torch.allclose(whole.data.table("label").values(whole.count), started)


@pytest.mark.parametrize("way", WAYS[::3])
def test_what_is_exact_trains_to_the_same_bits(way: dict[str, object]) -> None:
    """Rows on the host (here the same place), and all ten classes kept of ten."""
    plain, run = trainer(), trainer(**way)
    for each in (plain, run):
        list(each.epochs())
    every = torch.arange(plain.count)
    assert torch.equal(plain.data.label_logits(every), run.data.label_logits(every))
    assert torch.equal(plain.head.weight, run.head.weight)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("way", WAYS[1:3])
def test_it_learns_reports_and_exports_as_the_plain_table_does(
    way: dict[str, object], plain: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", **way)
    points, expected = (pq.read_table(path / "points.parquet") for path in (run, plain))
    wrong = np.arange(200) < 30
    found = np.asarray(points["is_label_issue"])
    # Measured: 22 are found with bfloat16 and 23 with float32.
    assert found[wrong].sum() >= 21
    assert (found != np.asarray(expected["is_label_issue"])).sum() <= 4

    learned = Learned.load(run)
    assert learned.label_logits is not None
    assert learned.label_logits.dtype == torch.float32
    q = learned.soft_labels
    score = q.gather(1, learned.labels[:, None])[:, 0].numpy()
    assert np.array_equal(score, np.asarray(points["label_score"]))
    for command in ("report", "export"):
        result = CliRunner().invoke(app, [command, str(run)])
        assert result.exit_code == 0, result.output
    assert (run / "report.html").is_file()

    # Back into a run of the same storage: the rows as they are.
    train, trusted, _ = messy_digits()
    config = Config(epochs=2, batch_size=32, device="cpu", **way)  # type: ignore[arg-type]
    again = autodo.fit(network(), train, trusted, config=config, learned=run, progress=False)
    for column in ("label_score", "suggested_label", "weight"):
        assert np.allclose(np.asarray(again.points[column]), np.asarray(points[column]), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("storage", STORAGES)
def test_gpu_runs_with_tables_on_the_host_end_as_with_them_on_the_device(
    storage: str, tmp_path: Path
) -> None:
    """From fit to the report's pictures, in float32; sums of the network may differ in order."""
    ends = []
    for place in ("host", "device"):
        run = make_run(
            tmp_path / place, device="cuda", precision="float32",
            label_storage=storage, label_top=3, tables_on=place,
        )  # fmt: skip
        points = pq.read_table(run / "points.parquet")
        ends.append([np.asarray(points[name]) for name in ("label_score", "weight")])
        state = RunFolder(run).load_checkpoint()
        assert state is not None
        logits = Learned.load(run).label_logits
        assert logits is not None
        if storage != "top-k":
            stored = state["data"]["tables.label.rows"][: len(logits)].float()
            assert torch.equal(stored, logits)
    for on_host, on_device in zip(*ends, strict=True):
        assert np.abs(on_host - on_device).mean() < 0.01


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"label_storage": "float16"}, "float32, bfloat16, top-k"),
        ({"tables_on": "disk"}, "device, host"),
        ({"label_top": 1}, "label_top is 1"),
        ({"label_storage": "bfloat16", "lambda_optimizer": "rmsprop"}, "stored as bfloat16"),
        ({"label_storage": "top-k", "lambda_optimizer": "rmsprop"}, "stored as top-k"),
        ({"tables_on": "host", "lambda_optimizer": "rmsprop"}, "tables on the host"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Config(**values)  # type: ignore[arg-type]


def test_an_unknown_storage_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"'int8'.*float32, bfloat16, top-k"):
        DatasetModel(torch.tensor([0, 1]), num_classes=2, label_storage="int8")
