"""SGD against torch.optim.SGD, bit for bit, and what is left of one taken up by the other."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from autodo.train.sgd import SGD

KINDS = [{"momentum": 0.9, "weight_decay": 5e-4}, {"momentum": 0.0, "weight_decay": 0.1}]


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), (2, 1, 3)]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def ours(held: list[Tensor], **kind: float) -> SGD:
    return SGD(held, lr=0.1, **kind)


def torchs(held: list[Tensor], **kind: Any) -> torch.optim.SGD:
    return torch.optim.SGD(held, lr=0.1, nesterov=kind["momentum"] > 0, fused=False, **kind)


def take(optimizer: SGD | torch.optim.SGD, held: list[Tensor], steps: range) -> None:
    """Steps of different rates; the last parameter has no gradient in the first of all."""
    for step in steps:
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        generator = torch.Generator().manual_seed(step)
        for k, parameter in enumerate(held):
            if step > 0 or k < 2:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_its_steps_are_those_of_torch_bit_for_bit(kind: dict[str, float]) -> None:
    mine, theirs = parameters(), parameters()
    take(ours(mine, **kind), mine, range(4))
    take(torchs(theirs, **kind), theirs, range(4))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[0], parameters()[0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("first", "then"), [(ours, ours), (torchs, ours), (ours, torchs)], ids=["own", "in", "out"]
)
def test_what_one_left_is_taken_up_by_another(
    first: Any, then: Any, kind: dict[str, float]
) -> None:
    through, stopped = parameters(), parameters()
    take(torchs(through, **kind), through, range(5))
    before = first(stopped, **kind)
    take(before, stopped, range(2))
    stored = copy.deepcopy(before.state_dict())
    after = then(stopped, **kind)
    after.load_state_dict(stored)
    take(after, stopped, range(2, 5))
    assert all(torch.equal(a, b) for a, b in zip(through, stopped, strict=True))


def test_the_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="3 parameters, and here 2"):
        ours(parameters()[:2], **KINDS[0]).load_state_dict(
            ours(parameters(), **KINDS[0]).state_dict()
        )


def test_it_does_not_bring_in_the_compiler() -> None:
    code = (
        "import sys, torch; from autodo.train.sgd import SGD;"
        "p = torch.ones(1, requires_grad=True); p.grad = p.detach();"
        "SGD([p], lr=1.0, momentum=0.9, weight_decay=0.1).step();"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
