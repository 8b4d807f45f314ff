"""What suggested labels are worth, also where nothing is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from autodo.experiment.score import label_scores
from autodo.experiment.task import Task, digits_task

TASK = digits_task(noise=0.2)


def given(task: Task) -> np.ndarray:
    return task.train.labels.numpy().copy()


def test_suggestions_are_counted_against_the_truth() -> None:
    assert TASK.true_labels is not None
    wrong = TASK.wrong.numpy()
    suggested, score = given(TASK), np.where(wrong, 0.1, 0.9)
    put_right, lost = np.flatnonzero(wrong)[:10], np.flatnonzero(~wrong)[:3]
    suggested[put_right] = TASK.true_labels.numpy()[put_right]
    suggested[lost] = (suggested[lost] + 1) % 10
    found = label_scores(TASK, score, suggested)
    assert found["auc"] == found["average_precision"] == 1
    assert found["corrected"] == pytest.approx((len(wrong) - wrong.sum() + 10 - 3) / len(wrong))
    assert found["broken"] == pytest.approx(3 / (~wrong).sum())


def test_without_wrong_labels_changes_are_harm_and_nothing_is_ranked() -> None:
    clean = dataclasses.replace(TASK, train=TASK.train.with_labels(TASK.true_labels))
    suggested = given(clean)
    suggested[:5] = (suggested[:5] + 1) % 10
    found = label_scores(clean, np.linspace(0, 1, len(suggested)), suggested)
    assert found == {
        "corrected": pytest.approx(1 - 5 / len(suggested)),
        "broken": pytest.approx(5 / len(suggested)),
    }


def test_without_a_right_label_none_can_be_lost() -> None:
    assert TASK.true_labels is not None
    all_wrong = TASK.train.with_labels((TASK.true_labels + 1) % 10)
    task = dataclasses.replace(TASK, train=all_wrong)
    assert label_scores(task, np.zeros(len(all_wrong)), given(task)) == {"corrected": 0.0}


def test_without_the_truth_nothing_is_known() -> None:
    task = dataclasses.replace(TASK, true_labels=None)
    assert label_scores(task, np.zeros(len(task.train)), given(task)) == {}
    assert not torch.any(task.wrong)
