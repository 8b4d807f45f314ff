"""What one fold shows of the noise in labels, and what another makes of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.config import Config
from autodo.experiment.demo import digits_model
from autodo.experiment.task import digits_task
from autodo.hyper.posterior import Seen
from autodo.train import loop
from autodo.train.belief import seen_elsewhere
from autodo.train.loop import Trainer

CONFIG = Config(epochs=1, belief_rounds=2, belief_epochs=1, batch_size=64, device="cpu")


def test_the_last_word_of_every_other_fold_counts_if_it_saw_noise() -> None:
    judged = [(1, 3.0, 0.1), (2, 0.0, 0.01), (3, 2.0, 0.3), (1, 5.0, 0.2)]
    history: list[dict[str, Any]] = [
        {"fold": fold, "noise_gain": gain, "noise_rate": rate} for fold, gain, rate in judged
    ]
    history.insert(1, {"fold": 2})  # an epoch that does not judge
    assert seen_elsewhere(history, 1) == [Seen(5.0, 0.2), Seen(2.0, 0.3)]
    assert seen_elsewhere(history, 0) == [Seen(2.0, 0.3)]


def test_folds_are_judged_with_what_the_others_showed_also_in_a_run_that_is_taken_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[list[Seen]] = []

    def believed(_: Tensor, given: Tensor, *rest: Tensor, seed: int, elsewhere: Sequence[Seen]):  # type: ignore[no-untyped-def]
        told.append(list(elsewhere))
        rate = 0.1 * len(told)
        return F.one_hot(given, 10).float(), torch.eye(10), {"noise_rate": rate, "noise_gain": 1.0}

    def trainer() -> Trainer:
        model = digits_model(0)
        return Trainer(model, model.fc, task.train, task.trusted, CONFIG)

    monkeypatch.setattr(loop, "believed_labels", believed)
    task = digits_task(noise=0.2)
    run = trainer()
    epochs = run.epochs()
    next(epochs)
    state = copy.deepcopy(run.state())
    list(epochs)
    whole = [[], [Seen(1.0, 0.1)], [Seen(1.0, 0.2)], [Seen(1.0, 0.1 * 3)]]
    assert told == whole

    del told[1:]
    again = trainer()
    again.load(state)
    list(again.epochs())
    assert told == whole
