"""Triton's compiler for Hopper, which needs no GPU and is stricter than the interpreter."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


class Launch:
    """Stands for a kernel: what would launch it compiles it, and notes what came out."""

    def __init__(self, kernel: Any, compiled: list[Any]) -> None:
        self.kernel = kernel
        self.compiled = compiled

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def warm_up(*args: Any, **meta: Any) -> None:
            self.compiled.append(self.kernel.warmup(*args, grid=grid, **meta))

        return warm_up


def compile_only(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *names: str) -> list[Any]:
    """From now on the named kernels of a module are compiled where they would be launched.

    The list that is returned holds, in the order of launches, what was compiled.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Hopper:
        """What Triton asks of a driver to compile for a GPU that need not be there."""

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    compiled: list[Any] = []
    monkeypatch.setattr(driver, "_active", Hopper())
    for name in names:
        monkeypatch.setattr(module, name, Launch(getattr(module, name), compiled))
    return compiled
