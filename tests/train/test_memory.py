"""Memory that steps free is asked for again, in a process of its own each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from autodo.train.memory import keep_freed_memory

ROUNDS, MEGABYTES = 20, 48  # more than glibc keeps by itself, whatever it has learned
FAULTS = f"""
import resource, sys
import torch
from autodo.train.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for k in range(2 * {ROUNDS}):
    if k == {ROUNDS}:
        before = faults()
    torch.ones({MEGABYTES}, 2**18)
print(faults() - before)
"""


def faults(how: str) -> int:
    """Pages that the system had to give while blocks came and went."""
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="malloc cannot be told to keep memory")
def test_blocks_that_are_freed_are_used_again() -> None:
    # 0 and 245,780 where pages have 4 KiB; large ones, where the system has them, have 2 MiB.
    assert faults("kept") < ROUNDS * MEGABYTES / 4
    assert faults("as it comes") >= ROUNDS * MEGABYTES / 4


def test_a_malloc_that_cannot_be_told_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_freed_memory.__wrapped__()
