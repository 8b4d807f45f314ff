"""Finding the last linear layer of a network: theta of the hypergradient is its weight.

The layer is found by running the network, not by the order of its attributes: the head is the
nn.Linear whose output is the network's output.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autodo.errors import InputError


def find_head(model: nn.Module, images: Tensor) -> nn.Linear:
    """The final nn.Linear of ``model``, seen at work on ``images`` (B, C, H, W).

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> find_head(model, torch.zeros(2, 1, 2, 2)) is model[3]
    True
    """
    outputs: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda m, _, out: outputs.append((m, out)))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    training = [m for m in model.modules() if m.training]
    model.eval()
    parameter = next(model.parameters(), None)
    try:
        with torch.no_grad():
            result = model(images if parameter is None else images.to(parameter.device))
    finally:
        for module in training:
            module.training = True
        for hook in hooks:
            hook.remove()
    if not isinstance(result, Tensor) or result.ndim != 2:
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise InputError(
            f"the model returns {shape} for {len(images)} images",
            "AutoDO needs logits of shape (batch, classes)",
            "wrap the model so that forward returns its logits",
        )
    for module, out in reversed(outputs):
        if out.shape == result.shape and torch.equal(out, result):
            return module
    raise InputError(
        f"{type(model).__name__} does not end in nn.Linear",
        "no linear layer's output is the model's output"
        if outputs
        else "the model has no linear layer",
        "end the model with nn.Linear and return its raw logits (softmax belongs to the loss)",
    )


def check_head(head: nn.Module, num_classes: int) -> None:
    """Raise unless the head is nn.Linear with one output per class."""
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"head is a {type(head).__name__}",
            "the closed form needs the last layer to be nn.Linear",
            "pass the network's final nn.Linear, such as model.fc",
        )
    if head.out_features != num_classes:
        raise InputError(
            f"the head has {head.out_features} outputs but the data has {num_classes} classes",
            "the network was built for another number of classes",
            f"replace the head by nn.Linear({head.in_features}, {num_classes})",
        )
