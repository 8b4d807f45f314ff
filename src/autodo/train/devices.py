"""Where a run computes and in which precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from autodo.errors import InputError


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {name!r} cannot be used", str(error).splitlines()[0], "use 'auto' or 'cpu'"
        ) from error
    return device


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """bfloat16 inside where asked for ("auto": on CUDA); the head's algebra stays in float32."""
    if precision == "bfloat16" or (precision == "auto" and device.type == "cuda"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def fast_convolutions(precision: str) -> AbstractContextManager[object]:
    """Inside, cuDNN times its algorithms at the first use of a shape and keeps the fastest.

    "float32" is that, and not the ten bits of mantissa that cuDNN else takes from it (TF32).
    """
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=True, deterministic=False, allow_tf32=precision != "float32"
    )
