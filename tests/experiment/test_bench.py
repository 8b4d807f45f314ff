"""autodo bench: it runs anywhere, and its comparator computes the same hypergradient, slowly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from autodo.cli import app
from autodo.experiment.bench.measure import Bench, Setting, _forward_flops
from autodo.experiment.bench.published import PublishedSteps
from autodo.implicit import Neumann, head_hypergradient
from autodo.models import WideResNet
from autodo.train.hyper_optimizer import head_input

TINY = Setting(
    network="wrn-10-1", batch=8, points=32, trusted=16, device="cpu", repeats=1, sizes=(32, 64)
)


def test_everything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "default", classmethod(lambda cls, device: TINY))
    file = tmp_path / "bench.json"
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--json", str(file)])
    assert result.exit_code == 0, result.output
    stored = json.loads(file.read_text())
    names = [row["step"] for row in stored["timings"]]
    assert names == ["plain training", "training", "hyper A+W+S", "hyper W+S"]
    assert all(row["ms"] > 0 and row["times_floor"] > 0 for row in stored["timings"])
    assert set(stored["ms_by_rows"]) == {"32", "64"}
    assert "an epoch over the sum of its steps" in result.output


def test_a_bad_network_is_refused_at_once() -> None:
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--network", "wrm-10-1"])
    assert result.exit_code == 2
    assert "wrn" in result.output


def test_steps_move_what_they_should() -> None:
    """The tables that are timed are the ones that are indexed, beyond the number of images too."""
    bench = Bench(TINY, 64)
    assert len(bench.trainer.data) == 64
    head = bench.trainer.head.weight.detach().clone()
    bench.trainer.model.train()
    bench.theta()
    assert not torch.equal(head, bench.trainer.head.weight)
    bench.trainer.model.eval()
    state = bench.trainer.data.table("label").optimizer.state.clone()  # type: ignore[union-attr]
    bench.hyper()
    after = bench.trainer.data.table("label").optimizer.state
    assert not torch.equal(state, after)  # type: ignore[arg-type]


def test_operations_of_a_forward_pass() -> None:
    """Twice the multiply-adds of the convolutions and the head, counted by hand."""
    convolutions = 3 * 16 + 16 * 16 * 2  # stem, and the first stage, at 32 x 32
    total = 9 * convolutions * 32**2
    total += 9 * (16 * 32 * 32**2 + 32 * 32 * 16**2) + 16 * 32 * 16**2
    total += 9 * (32 * 64 * 16**2 + 64 * 64 * 8**2) + 32 * 64 * 8**2
    total += 64 * 10
    assert _forward_flops(TINY, torch.device("cpu")) == 2 * TINY.batch * total


def test_the_comparator_computes_our_hypergradient() -> None:
    """Second-order autograd with dense parameters, against the closed form at the head."""
    torch.manual_seed(0)
    model = WideResNet(10, 1, channels=3, num_classes=4).double().eval()
    labels = torch.arange(12) % 4
    steps = PublishedSteps(model, model.fc, labels, 4)
    for name in ("a", "w", "s"):
        parameter = getattr(steps, name)
        parameter.data = parameter.data.double()
    steps.a.data[:, 7:] = -100.0  # gates closed: the warp moves nothing, but still smooths
    images, trusted = torch.rand(2, 6, 3, 16, 16, dtype=torch.float64)
    index, trusted_labels = torch.tensor([3, 1, 11, 5, 0, 8]), torch.arange(6) % 4
    encode = head_input(model, model.fc)
    with torch.no_grad():
        features, trusted_features = encode(steps._warp(images, index)), encode(trusted)
    expected = head_hypergradient(
        features, model.fc.weight.detach(), model.fc.bias.detach(), steps.w.detach()[index],
        steps.s.detach()[index], trusted_features, trusted_labels, solver=Neumann(5, 0.01),
    )  # fmt: skip
    steps.hyper(images, index, trusted, trusted_labels)
    assert steps.w.grad is not None
    assert steps.s.grad is not None
    torch.testing.assert_close(steps.w.grad[index], expected.weight_logits)
    torch.testing.assert_close(steps.s.grad[index], expected.label_logits)
