"""The closed form against cases that an independent implementation computed in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shared_files import shared_path

from autodo.implicit import Neumann, head_hypergradient

CASES = range(5)


def load(number: int) -> dict[str, torch.Tensor]:
    prefix = f"case{number}/"
    with np.load(shared_path("golden", "head_hypergradient.npz")) as archive:
        return {
            name.removeprefix(prefix): torch.from_numpy(archive[name])
            for name in archive.files
            if name.startswith(prefix)
        }


def test_every_golden_case_is_tested():
    with np.load(shared_path("golden", "head_hypergradient.npz")) as archive:
        assert {name.split("/")[0] for name in archive.files} == {f"case{k}" for k in CASES}


@pytest.mark.parametrize("number", CASES)
def test_head_hypergradient_matches_golden_case(number: int):
    case = load(number)
    result = head_hypergradient(
        case["features"],
        case["head_weight"],
        case["head_bias"],
        case["weight_logits"],
        case["label_logits"],
        case["trusted_features"],
        case["trusted_labels"],
        solver=Neumann(steps=int(case["steps"]), alpha=float(case["alpha"])),
        symmetric=bool(case["symmetric"]),
        labels=None if case["relabel"] else case["labels"],
    )
    for name in ("weight_logits", "label_logits", "features"):
        expected = case[f"grad_{name}"]
        # Without this an archive of zeros would be matched by a gradient that is always tiny.
        if name != "label_logits" or case["relabel"]:
            assert expected.abs().max() > 1e-6
        torch.testing.assert_close(getattr(result, name), expected, rtol=0, atol=1e-9)
