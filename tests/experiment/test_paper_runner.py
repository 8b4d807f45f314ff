"""Running cells: all eight configurations, the ablations, skipping, resuming, what is refused."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from paper_data import TINY, write_policy
from shared_files import shared_path
from torch import nn

from autodo import fitting
from autodo.data import Examples
from autodo.data.checks import SharedImages
from autodo.errors import InputError, RunFolderError
from autodo.experiment.paper import runner
from autodo.experiment.paper.analysis import load_analysis
from autodo.experiment.paper.cells import METHODS, ON_TEST, find
from autodo.experiment.paper.protocol import FULL
from autodo.experiment.paper.results import SeedResult, collect
from autodo.experiment.task import Task
from autodo.models import ResNet18, WideResNet
from autodo.train.run_folder import RunFolder


def run(name: str, data_dir: Path, out: Path, **options: object) -> list[SeedResult]:
    cell = find(*name.split())
    values = {"seeds": 1, "scale": TINY, "device": "cpu", "progress": False, **options}
    return runner.run_cell(cell, out=out, data_dir=data_dir, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_all_eight_configurations_run(method: str, data_dir: Path, tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy.json") if method in ("faa", "dada") else None
    out = tmp_path / "runs"
    (result,) = run(f"cifar10 10-0.1 {method}", data_dir, out, policy_file=policy)
    folder = out / "cifar10" / "10-0.1" / method / "seed-0"
    history = RunFolder(folder).read_metrics()
    assert result.test_error == history[-1]["test_error"]
    assert result.best_test_error == min(m["test_error"] for m in history)
    assert history[result.best_epoch - 1]["test_error"] == result.best_test_error
    # What was learned, and only that, is no longer what it was at the start.
    points = pq.read_table(RunFolder(folder).points)
    assert (len(set(points["weight"].to_pylist())) > 1) == (method in ("aw", "aws"))
    assert (len(set(points["label_score"].to_pylist())) > 1) == (method == "aws")
    config = RunFolder(folder).read_config()["config"]
    assert config["policy"].endswith("standard:cifar")
    assert config["epochs"] == TINY.epochs


def test_full_scale_builds_the_networks_of_the_paper() -> None:
    def network(name: str, size: int) -> nn.Module:
        images = torch.zeros(2, 3, size, size, dtype=torch.uint8)
        data = Examples.from_arrays(images, [0, 1])
        task = Task(train=data, trusted=data, test=data, true_labels=data.labels)
        return runner._network(find(*name.split()), task, FULL, seed=0)

    svhn = network("svhn 1-0.0 aws", 32)
    assert isinstance(svhn, WideResNet)
    assert (len(svhn.stages), svhn.fc.in_features) == (12, 640)
    imagenet = network("imagenet 10-0.0 aws", 256)
    assert isinstance(imagenet[1], ResNet18)  # type: ignore[index]
    assert imagenet[1].stem[0].kernel_size == (7, 7)  # type: ignore[index]
    # Tested on the centre of what is stored, trained on what the policy has cropped.
    seen = [imagenet[0](torch.zeros(1, 3, size, size)).shape[-1] for size in (256, 224)]  # type: ignore[index]
    assert seen == [224, 224]


def test_a_finished_seed_leaves_all_that_the_figures_and_a_reader_need(
    data_dir: Path, tmp_path: Path
) -> None:
    (result,) = run("cifar10 10-0.1 baseline", data_dir, tmp_path)
    folder = tmp_path / "cifar10/10-0.1/baseline/seed-0"
    analysis = load_analysis(folder)
    confusion = analysis["confusion"]
    assert confusion.shape == (10, 10)
    assert confusion.sum() == TINY.test
    assert 1 - np.trace(confusion) / confusion.sum() == pytest.approx(result.test_error, abs=1e-6)
    accuracy = np.diagonal(confusion) / confusion.sum(1)
    assert result.class_accuracy == pytest.approx(accuracy)
    assert result.rare_accuracy == pytest.approx(accuracy[5:].mean())
    assert result.interclass_deviation == pytest.approx(accuracy.std())
    assert analysis["features"].shape == (TINY.embedded, 256)
    with np.load(folder / "sets.npz") as sets:
        assert len(sets["train_ids"]) == len(sets["given_labels"]) == len(sets["true_labels"])
        points = pq.read_table(RunFolder(folder).points)
        assert points["id"].to_pylist() == sets["train_ids"].tolist()
        assert points["given_label"].to_pylist() == sets["given_labels"].tolist()
        assert (sets["given_labels"] != sets["true_labels"]).any()
    about = json.loads((folder.parent / "cell.json").read_text())
    assert about["paper_error_percent"] == "22.8±1.09"
    assert about["scale"] == "tiny"


@pytest.mark.parametrize("name", ["aws-on-test", "aws-on-all", "raa-on-all"])
def test_ablations_run_without_a_warning_about_what_they_are(
    name: str, data_dir: Path, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SharedImages)
        (result,) = run(f"svhn 1-0.0 {name}", data_dir, tmp_path)
    stored = RunFolder(tmp_path / "svhn/1-0.0" / name / "seed-0").read_config()["data"]
    if name == "aws-on-test":
        assert stored["trusted"] == stored["test"] == TINY.test
        assert result.note == ON_TEST
        assert json.loads((tmp_path / "svhn/1-0.0" / name / "cell.json").read_text())["note"] == (
            ON_TEST
        )
    else:
        assert TINY.train is not None
        assert TINY.trusted is not None
        assert stored["train"] == stored["trusted"] == TINY.train + TINY.trusted


def test_finished_seeds_are_skipped_without_reading_data(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cifar10 10-0.1 aw"
    first = run(name, data_dir, tmp_path)
    file = tmp_path / "cifar10/10-0.1/aw/seed-0/model.safetensors"
    before = file.stat().st_mtime_ns
    told: list[str] = []
    both = run(name, data_dir, tmp_path, seeds=2, tell=told.append)
    assert both[0] == first[0]
    assert both[1].seed == 1
    assert file.stat().st_mtime_ns == before
    assert "seed 0 is finished already" in told[0]
    monkeypatch.setattr(runner, "load_pair", None)  # calling it would raise
    assert run(name, data_dir, tmp_path, seeds=2) == both
    assert collect(tmp_path, find(*name.split())) == both


def test_an_interrupted_seed_ends_as_if_it_had_not_been(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cifar10 10-0.1 aws"
    whole = run(name, data_dir, tmp_path / "whole")

    def stop(writer: object, metrics: dict[str, object]) -> None:
        if metrics["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_to_tensorboard", stop)
        with pytest.raises(KeyboardInterrupt):
            run(name, data_dir, tmp_path / "cut")
    folder = tmp_path / "cut/cifar10/10-0.1/aws/seed-0"
    assert collect(tmp_path / "cut", find(*name.split())) == []
    assert len(RunFolder(folder).read_metrics()) == 2
    (resumed,) = run(name, data_dir, tmp_path / "cut")
    assert dataclasses.replace(resumed, seconds=0) == dataclasses.replace(whole[0], seconds=0)
    assert (folder / "model.safetensors").read_bytes() == (
        tmp_path / "whole/cifar10/10-0.1/aws/seed-0/model.safetensors"
    ).read_bytes()


def test_a_run_that_was_stopped_before_its_result_was_written(
    data_dir: Path, tmp_path: Path
) -> None:
    name = "cifar10 10-0.1 baseline"
    (first,) = run(name, data_dir, tmp_path)
    (tmp_path / "cifar10/10-0.1/baseline/seed-0/result.json").unlink()
    assert run(name, data_dir, tmp_path) == [first]


def test_two_scales_do_not_get_into_one_mean(data_dir: Path, tmp_path: Path) -> None:
    run("cifar10 10-0.1 baseline", data_dir, tmp_path)
    other = dataclasses.replace(TINY, name="other")
    with pytest.raises(RunFolderError, match="runs at the scale 'tiny'"):
        run("cifar10 10-0.1 baseline", data_dir, tmp_path, scale=other)


def test_a_finished_run_of_other_settings_is_not_counted(data_dir: Path, tmp_path: Path) -> None:
    run("cifar10 10-0.1 baseline", data_dir, tmp_path)
    other = dataclasses.replace(TINY, lr=0.01)
    with pytest.raises(RunFolderError, match=r"lr was 0.05 and is now 0.01"):
        run("cifar10 10-0.1 baseline", data_dir, tmp_path, scale=other)


def test_shared_trusted_batches_are_another_setting(data_dir: Path, tmp_path: Path) -> None:
    run("cifar10 10-0.1 aws", data_dir, tmp_path, trusted_every=2, measure_every=3)
    stored = RunFolder(tmp_path / "cifar10/10-0.1/aws/seed-0").read_config()["config"]
    assert (stored["trusted_every"], stored["measure_every"]) == (2, 3)
    # How often it was measured makes no other run of it.
    run("cifar10 10-0.1 aws", data_dir, tmp_path, trusted_every=2)
    with pytest.raises(RunFolderError, match="trusted_every was 2 and is now 1"):
        run("cifar10 10-0.1 aws", data_dir, tmp_path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "abacus"}, "'abacus'"),
        ({"policy_file": "nowhere.json"}, "no policy file"),
        ({}, "faa needs a policy file"),
    ],
)
def test_bad_options_are_told_before_anything_is_written(
    options: dict[str, object], error: str, data_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=error):
        run("cifar10 10-0.1 faa", data_dir, tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_a_spoilt_policy_is_told_before_anything_is_written(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "spoilt.json").write_text("{")
    with pytest.raises(InputError, match=r"spoilt\.json"):
        run("cifar10 10-0.1 faa", data_dir, tmp_path / "runs", policy_file=tmp_path / "spoilt.json")
    assert not (tmp_path / "runs").exists()


def test_an_imbalance_that_leaves_a_class_empty_is_told(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leaves no example"):
        run("svhn 100-0.1 baseline", data_dir, tmp_path)
    assert not (tmp_path / "svhn/100-0.1/baseline/seed-0").exists()


def test_real_svhn_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    source = shared_path("data", "svhn")
    for split in ("train", "test"):
        (tmp_path / "data/svhn").mkdir(parents=True, exist_ok=True)
        table = pq.ParquetFile(min(source.glob(f"{split}-*"))).read_row_group(0).slice(0, 600)
        pq.write_table(table, tmp_path / "data/svhn" / f"{split}-00000-of-00001.parquet")
    scale = dataclasses.replace(TINY, image_size=None, train=400, trusted=100, epochs=2)
    (result,) = run("svhn 1-0.1 a", tmp_path / "data", tmp_path / "runs", scale=scale)
    assert result.epochs == 2
    config = RunFolder(tmp_path / "runs/svhn/1-0.1/a/seed-0").read_config()
    assert config["data"]["train"] == 400
    assert config["config"]["policy"] == "randaugment:3,7,colour+standard:svhn"
