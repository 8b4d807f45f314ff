"""Whether the kernels of the ``*_triton`` modules can be compiled here."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def has_triton() -> bool:
    """Whether Triton is installed; asked in every step, looked up once."""
    return importlib.util.find_spec("triton") is not None
