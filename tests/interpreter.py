"""Triton's interpreter, in which kernels run where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from autodo.kernels import has_triton

HAS_TRITON = has_triton()
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether this process has chosen it, which must be done before Triton is imported."""

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or not HAS_TRITON or INTERPRETED,
    reason="needs a CUDA device and Triton",
)
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="runs in Triton's interpreter")
PLACES = [
    pytest.param("cpu", marks=needs_interpreter, id="interpreted"),
    pytest.param("cuda", marks=needs_gpu, id="gpu"),
]
"""Devices on which kernels can run."""


def pass_in_interpreter(file: str) -> None:
    """The tests of a file with ``interpreted`` in their names, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "interpreted"]
    result = subprocess.run(
        [*command, file], env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True
    )
    assert result.returncode == 0, result.stdout.decode()
