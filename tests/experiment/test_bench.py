"""autodo bench: it runs anywhere, and its comparator computes the same hypergradient, slowly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from autodo.cli import app
from autodo.data.joined import Joined, Parts
from autodo.experiment.bench import host
from autodo.experiment.bench.host import DEVICE, HOST, WAYS, WORKERS, Fed, HostSetting
from autodo.experiment.bench.measure import PARTS, Bench, Setting, _forward_flops
from autodo.experiment.bench.published import PublishedSteps
from autodo.implicit import Neumann, head_hypergradient
from autodo.models import WideResNet
from autodo.train.hyper_optimizer import head_input

TINY = Setting(
    network="wrn-10-1", batch=8, points=32, trusted=16, device="cpu", repeats=1, sizes=(32, 64)
)
TINY_HOST = HostSetting(
    network="small_cnn", size=8, batch=8, points=40, classes=4, steps=2, device="cpu", workers=1
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "default", classmethod(lambda cls, device: TINY))
    monkeypatch.setattr(HostSetting, "default", classmethod(lambda cls, device: TINY_HOST))


@pytest.mark.usefixtures("tiny")
def test_everything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--json", str(file)])
    assert result.exit_code == 0, result.output
    stored = json.loads(file.read_text())
    names = [row["step"] for row in stored["timings"]]
    assert names == ["plain training", "training", "hyper A+W+S", "hyper W+S"]
    assert all(row["ms"] > 0 and row["times_floor"] > 0 for row in stored["timings"])
    assert set(stored["ms_by_rows"]) == {"32", "64"}
    assert "an epoch over the sum of its steps" in result.output
    fed = stored["host"]
    assert set(fed["images_per_s"]) == set(WAYS) == {"device", "host", "workers"}
    for way, speed in fed["images_per_s"].items():
        assert speed > 0
        assert fed["over_device"][way] == pytest.approx(speed / fed["images_per_s"]["device"])
    assert fed["gather_ms"] > 0
    assert fed["send_ms"] is None
    assert "gathered by a thread" in result.output


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("chosen", "measured"),
    [(["rows"], {"ms_by_rows"}), (["host"], {"host"}), (["host", "rows"], {"host", "ms_by_rows"})],
)
def test_only_what_is_asked_for(tmp_path: Path, chosen: list[str], measured: set[str]) -> None:
    file = tmp_path / "bench.json"
    options = [word for part in chosen for word in ("--only", part)]
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--json", str(file), *options])
    assert result.exit_code == 0, result.output
    stored = json.loads(file.read_text())
    parts = ("timings", "product_tflops", "epoch_over_steps", "ms_by_rows", "host")
    assert {part for part in parts if stored[part]} == measured


def test_a_part_that_does_not_exist_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "--only", "hosts"])
    assert result.exit_code == 2
    assert all(f"'{part}'" in result.output for part in PARTS)


def test_each_way_feeds_the_same_batches_from_where_it_says(tmp_path: Path) -> None:
    images = host.mapped_images(tmp_path / "images.npy", TINY_HOST)
    trusted = host.examples(images[:8].clone(), TINY_HOST)
    batches = {}
    for way in WAYS:
        make = host.as_items if way == WORKERS else host.examples
        points = Fed(TINY_HOST, make(images, TINY_HOST), trusted, way, workers=1).trainer.points
        assert (points._resident is not None) == (way == DEVICE)
        assert isinstance(points.dataset, Joined if way == WORKERS else Parts)
        assert (points._workers is not None) == (way == WORKERS)
        batches[way] = list(points.batches(16, seed=1))
    for way in (HOST, WORKERS):
        for ours, theirs in zip(batches[DEVICE], batches[way], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_steps_are_recorded_whatever_feeds_them(tmp_path: Path) -> None:
    setting = replace(TINY_HOST, device="cuda", steps=12)
    images = host.mapped_images(tmp_path / "images.npy", setting)
    trusted = host.examples(images[:8].clone(), setting)
    for way in WAYS:
        make = host.as_items if way == WORKERS else host.examples
        fed = Fed(setting, make(images, setting), trusted, way, workers=2)
        fed.measure()
        assert fed.trainer.take._theta.enabled
        assert fed.trainer.take._theta._graph is not None


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
    bench.encode_trusted()
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
