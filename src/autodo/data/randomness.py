"""Seeds derived from seeds, and the global random state borrowed and given back.

Users' transforms draw from the global generators of torch, numpy and random.
Reading a batch under :func:`borrowed` makes those draws a function of a seed
alone, in any process, and leaves the generators of the caller as they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive(seed: int, *path: int) -> int:
    """A 63-bit seed for one purpose below ``seed``: distinct paths give unrelated streams,
    but for zeros at the end of a path, which do not count.

    >>> derive(0, 1) == derive(0, 1), derive(0, 1) == derive(0, 2), derive(0, 1) == derive(1, 1)
    (True, False, False)
    """
    words = [part % 2**64 for part in (seed, *path)]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) >> 1


def generator_for(seed: int, *path: int) -> torch.Generator:
    """A generator on the host for one purpose below ``seed``."""
    return torch.Generator().manual_seed(derive(seed, *path))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Torch's generators, of the host and of ``device``, seeded inside, unchanged afterwards."""
    on_cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def borrowed(seed: int) -> Iterator[None]:
    """Global CPU generators seeded with ``seed`` inside, unchanged afterwards."""
    # torch.manual_seed would seed the accelerators too, and reading items does not use them.
    states = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
