"""scipy's L-BFGS, with its own arithmetic on one thread.

The vectors of a step are short, and OpenBLAS wakes threads for them all the same, which go on
spinning while torch computes the objective on the same cores: on two cores heads then take three to
seven times as long, and more on many cores that several processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize  # type: ignore[import-untyped]
from threadpoolctl import LibController, ThreadpoolController

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def lbfgs(
    objective: Objective,
    first: np.ndarray,
    *,
    bounds: Sequence[tuple[float, float]] | None = None,
    options: dict[str, Any] | None = None,
) -> np.ndarray:
    """The x (n,) that minimises ``objective``, which gives its value and its gradient (n,).

    >>> lbfgs(lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3)), np.zeros(2)).round(6).tolist()
    [3.0, 3.0]
    """
    with _one_thread():
        found = minimize(
            objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    return np.asarray(found.x)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for every OpenBLAS with threads of its own that is not torch's."""
    before = [(pool, pool.num_threads) for pool in _pools()]
    try:
        for pool, _ in before:
            pool.set_num_threads(1)
        yield
    finally:
        for pool, threads in before:
            pool.set_num_threads(threads)


@cache
def _pools() -> list[LibController]:
    torchs = Path(torch.__file__).parent
    return [
        pool
        for pool in ThreadpoolController().lib_controllers
        if pool.internal_api == "openblas"
        and getattr(pool, "threading_layer", None) == "pthreads"
        and torchs not in Path(pool.filepath).parents
    ]
