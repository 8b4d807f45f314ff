"""Which points say what the noise is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from autodo.auditing import belief
from autodo.hyper.posterior import LabelPosterior, label_posterior


@pytest.mark.parametrize("count", [40, 400])
def test_trusted_points_are_asked_too(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def listening(*args: Tensor, **options: Any) -> LabelPosterior:
        told.append(options["trusted"])
        return label_posterior(*args, **options)

    monkeypatch.setattr(belief, "label_posterior", listening)
    log_belief = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log().repeat(count // 2, 1)
    given = log_belief.argmax(-1)
    trusted = log_belief[:10], given[:10]
    shares, generator = torch.tensor([0.5, 0.5]), torch.Generator().manual_seed(0)
    labels = belief.estimate_labels(log_belief, given, shares, generator, trusted=trusted)
    assert told == [trusted]
    assert torch.equal(labels(log_belief, given).argmax(-1), given)
