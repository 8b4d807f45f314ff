"""Stochastic gradient descent with Nesterov's momentum, which starts at once.

The first optimizer of torch.optim that is made imports torch's compiler: two to four seconds of
every command on a laptop. Its arithmetic is a function that does not; this is the class around it,
with the names and the state of torch.optim.SGD, so that either takes up what the other left. On
CUDA, where a recorded step needs more of it, torch's own is used (``train.steps``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

BUFFER = "momentum_buffer"


class SGD:
    """Moves parameters by their gradients.

    >>> p = torch.ones(1, requires_grad=True)
    >>> p.grad = torch.ones(1)
    >>> SGD([p], lr=0.1, momentum=0.5, weight_decay=0.0).step(); p.detach()
    tensor([0.8500])
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, momentum: float, weight_decay: float
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [
            {
                "params": list(parameters),
                "lr": lr,
                "momentum": momentum,
                "dampening": 0,
                "weight_decay": weight_decay,
                "nesterov": momentum > 0,
                "maximize": False,
                "foreach": None,
                "differentiable": False,
                "fused": False,
            }
        ]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        moved = [p for p in self._parameters if p.grad is not None]
        buffers = [self.state.get(p, {}).get(BUFFER) for p in moved]
        (group,) = self.param_groups
        names = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
        settings = {name: group[name] for name in names}
        sgd(moved, [p.grad for p in moved], buffers, foreach=False, fused=False, **settings)  # type: ignore[misc]
        for parameter, buffer in zip(moved, buffers, strict=True):
            if buffer is not None:
                self.state[parameter] = {BUFFER: buffer}

    def state_dict(self) -> dict[str, Any]:
        """As that of torch.optim.SGD: parameters are known by their place."""
        parameters = self._parameters
        state = {k: self.state[p] for k, p in enumerate(parameters) if p in self.state}
        group = self.param_groups[0] | {"params": list(range(len(parameters)))}
        return {"state": state, "param_groups": [group]}

    def load_state_dict(self, stored: dict[str, Any]) -> None:
        """Take up what ``state_dict`` gave, or that of torch.optim.SGD."""
        parameters, (group,) = self._parameters, stored["param_groups"]
        if len(group["params"]) != len(parameters):
            raise ValueError(f"{len(group['params'])} parameters, and here {len(parameters)}")
        self.param_groups = [group | {"params": parameters}]
        self.state = {
            parameters[k]: {BUFFER: held[BUFFER].to(parameters[k], copy=True)}
            for k, held in stored["state"].items()
            if held.get(BUFFER) is not None
        }

    @property
    def _parameters(self) -> list[Tensor]:
        parameters: list[Tensor] = self.param_groups[0]["params"]
        return parameters
