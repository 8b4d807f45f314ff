"""The demo as a short run: what it prints and writes, and that its verdict follows its numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from autodo.config import Config
from autodo.data import Examples
from autodo.experiment import demo
from autodo.experiment.methods import (
    ALTERNATIVES,
    BASELINES,
    LONGER,
    Score,
    run_baseline,
    without_learning,
)
from autodo.experiment.task import digits_task
from autodo.models.head import find_head
from autodo.train.loop import Trainer


def score(error: float, auc: float | None = None) -> Score:
    return Score(
        test_error=error, rare_error=error, seconds=1.0, auc=auc, corrected=auc, broken=auc
    )


def test_it_prints_the_table_the_labels_and_the_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "demo"
    out.mkdir(parents=True)
    (out / "config.toml").touch()  # an earlier demo is replaced
    scores = demo.run(out, progress=False, epochs=8)
    said = capsys.readouterr().out
    assert list(scores) == [*BASELINES, "AutoDO"]
    for name in scores:
        assert name.split(",")[0] in said
    assert "wrong labels" in said
    assert f"autodo review {out}" in said.replace("\n", "")
    assert "->" in said
    for name in ("points.parquet", "model.safetensors", "metrics.jsonl", "demo.png"):
        assert str(out / name) in said.replace("\n", "")
        assert (out / name).stat().st_size > 0
    assert pq.read_table(out / "points.parquet").num_rows == len(digits_task(noise=0.4).train)
    assert Image.open(out / "demo.png").size[0] > 400


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [(0.01, 0.02, "AutoDO is best"), (0.02, 0.02, "level"), (0.03, 0.02, "plain is better")],
)
def test_the_verdict_follows_the_numbers(ours: float, theirs: float, words: str) -> None:
    assert words in demo.verdict({"plain": score(theirs), "AutoDO": score(ours, 0.9)})


def test_trusted_alone_takes_as_many_steps_as_the_others() -> None:
    task = digits_task(noise=0.4)
    config = demo.Config(epochs=10, device="cpu")
    data, changed = BASELINES["trusted alone"](task, config)
    steps = (len(task.train) + len(task.trusted)) // config.batch_size
    assert changed.epochs * (len(data) // config.batch_size) == 10 * steps


@pytest.mark.parametrize(("folds", "rounds", "epochs"), [(2, 2, 30), (3, 1, 30), (0, 2, 10)])
def test_longer_training_takes_as_many_steps_as_all_networks_of_autodo(
    folds: int, rounds: int, epochs: int
) -> None:
    task = digits_task(noise=0.4)
    config = Config(
        epochs=10, batch_size=10, belief_folds=folds, belief_rounds=rounds, device="cpu"
    )
    data, changed = ALTERNATIVES[LONGER](task, without_learning(config))
    assert changed.epochs == epochs
    assert changed.prior_adjustment == 1

    def steps(data: Examples, config: Config) -> int:
        model = demo.digits_model(0)
        head = find_head(model, data.images[:2].float())
        return Trainer(model, head, data, task.trusted, config).total_steps

    of_theta = dataclasses.replace(config, start_epoch=config.epochs)  # and none of lambda
    assert steps(data, changed) == pytest.approx(steps(task.train, of_theta), rel=0.02)


def test_baselines_learn_nothing_of_the_dataset() -> None:
    """Two runs that differ only in lambda's rates end alike."""
    task = digits_task(noise=0.4)
    errors = {
        run_baseline(
            "train + trusted, logit adjustment",
            task,
            demo.Config(epochs=2, device="cpu", label_lr=rate),
            lambda: demo.digits_model(0),
        ).test_error
        for rate in (0.0, 9.0)
    }
    assert len(errors) == 1
