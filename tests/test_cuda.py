"""Where kernels in CUDA C can be compiled; that they run right is tested with each of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autodo import cuda

DEVICE = torch.device("cuda", 0)


class Nvrtc:
    """As much of the library as says its version."""

    def __init__(self, *version: int) -> None:
        self.version = version

    def nvrtcVersion(self, major: Any, minor: Any) -> int:
        for to, number in zip((major, minor), self.version, strict=True):
            ctypes.cast(to, ctypes.POINTER(ctypes.c_int))[0] = number
        return 0


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    found = cuda.is_hopper, cuda.library  # tests replace the second
    for function in found:
        function.cache_clear()
    yield
    for function in found:
        function.cache_clear()


@pytest.mark.parametrize(
    ("capability", "library", "expected"),
    [
        ((9, 0), Nvrtc(12, 4), True),
        ((9, 0), Nvrtc(13, 0), True),
        ((9, 0), Nvrtc(12, 3), False),  # does not know how to limit registers
        ((9, 0), Nvrtc(11, 8), False),  # does not know the architecture
        ((9, 0), None, False),
        ((8, 0), Nvrtc(13, 0), False),
        ((10, 0), Nvrtc(13, 0), False),  # has not these instructions
    ],
)
def test_hopper_needs_the_device_and_a_compiler_that_knows_it(
    capability: tuple[int, int],
    library: Nvrtc | None,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(cuda, "library", lambda: library)
    assert cuda.is_hopper(DEVICE) is expected


@pytest.mark.parametrize("missing", [None, "cuLaunchKernel", "cuTensorMapEncodeTiled"])
def test_a_driver_that_lacks_a_function_is_none(
    missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of CUDA 11 knows no tensor maps; convolutions are then left to cuDNN."""
    names = {"nvrtcVersion", "cuLaunchKernel", "cuTensorMapEncodeTiled"} - {missing}
    library = SimpleNamespace(**dict.fromkeys(names))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    assert cuda.library() is (library if missing is None else None)


def test_an_error_of_the_library_is_told() -> None:
    with pytest.raises(RuntimeError, match="CUDA error 700 when launching convolve"):
        cuda._check(700, "launching convolve")
