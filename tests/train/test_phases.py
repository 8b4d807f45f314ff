"""Which phases a run has: all that the configuration says, or fewer where little is wrong."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autodo.config import Config
from autodo.experiment.demo import digits_model
from autodo.experiment.task import Task, digits_task
from autodo.train.loop import Trainer
from autodo.train.phases import WORTH_A_ROUND, Phase, in_words, plan
from autodo.train.run_folder import Metrics

QUICK = Config(epochs=6, warmup_epochs=1, batch_size=32, belief_epochs=4, device="cpu")


def judged(*rates: float) -> list[Metrics]:
    """The history of a run of ``QUICK`` whose networks found noise of these rates."""
    epochs = [{"epoch": k + 1} for k in range(4 * len(rates))]
    return [m | {"noise_rate": rates[k // 4]} if k % 4 == 3 else m for k, m in enumerate(epochs)]


def trainer(task: Task, config: Config) -> Trainer:
    model = digits_model(0)
    return Trainer(model, model.fc, task.train, task.trusted, config)


@pytest.mark.parametrize(
    "noise",
    [(), (0.001,), (0.3,), (0.3, 0.3), (0.001, 2.1 * WORTH_A_ROUND), (0.0, 0.0), (0.001, 0.0)],
)
def test_a_second_round_comes_unless_the_first_as_a_whole_found_hardly_a_wrong_label(
    noise: tuple[float, ...],
) -> None:
    """Exactly none is what a belief finds that tells nothing of the labels."""
    assert plan(QUICK, judged(*noise)) == plan(QUICK)
    assert len(plan(QUICK).phases) == 5
    assert in_words(QUICK, judged(*noise)) == ""


def test_without_wrong_labels_the_last_network_takes_the_epochs_of_the_second_round() -> None:
    made = plan(QUICK, judged(0.001, 0.01))
    assert made.phases[:2] == plan(QUICK).phases[:2]
    # Two networks that each see half of the points in four epochs.
    assert made.phases[2:] == (Phase(8, 6 + 4, None),)
    assert made.epochs - made.hyper_start == plan(QUICK).epochs - plan(QUICK).hyper_start == 5


def test_later_rounds_stop_as_well() -> None:
    three = dataclasses.replace(QUICK, belief_rounds=3)
    assert len(plan(three, judged(0.1, 0.1, 0.01, 0.001)).phases) == 5
    assert plan(three, judged(0.1, 0.1, 0.01, 0.001)).phases[-1] == Phase(16, 6 + 4, None)


@pytest.mark.parametrize("folds", [2, 3])
def test_a_run_takes_as_many_steps_whatever_it_finds(folds: int) -> None:
    task, config = digits_task(noise=0.0), dataclasses.replace(QUICK, belief_folds=folds)
    run = trainer(task, config)
    before = run.total_steps
    run.plan = plan(config, judged(*[0.001] * folds))
    assert run.plan.epochs < plan(config).epochs
    assert run.total_steps == pytest.approx(before, rel=0.03)  # epochs drop their last short batch


def test_right_labels_are_left_to_one_round() -> None:
    """551 digits with right labels, of which rare classes are known badly after few epochs."""
    quick = dataclasses.replace(QUICK, epochs=3, belief_epochs=3, warmup_epochs=0, batch_size=16)
    run = trainer(digits_task(noise=0.0), quick)
    history = list(run.epochs())
    assert sum("noise_rate" in metrics for metrics in history) == 2
    assert len(history) == 2 * 3 + 6
    assert run.done_steps == run.total_steps
    assert history[-1]["lr"] == pytest.approx(0.001 * QUICK.lr)
    given = run.data.labels[: run.count]
    kept = run.data.soft_labels(torch.arange(run.count)).argmax(-1) == given
    assert kept.float().mean() > 0.99
