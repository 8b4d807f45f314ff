"""Rows of a table, read and written by the device on which the batch is.

Rows on that device are ordinary tensors. Rows in pinned host memory are reached by kernels that
read and write them across the bus (``host_rows_triton``): unified addressing makes a pinned
address valid on the device. These are kernels like any other, ordered by their stream, so a step
can be recorded with them and nobody has to move rows ahead of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.kernels import has_triton


def read_rows(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index]: (B, K), on the device of ``index``.

    >>> read_rows(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0])).flatten()
    tensor([3., 1.])
    """
    if rows.device == index.device:
        # index_select and index_copy_ move whole rows; rows[index] fetches number by number, which
        # takes longer where every row misses the cache (see benchmarks/table_rows.py).
        return rows.index_select(0, index)
    from autodo.hyper import host_rows_triton

    return host_rows_triton.gather(rows, index)


def write_rows(rows: Tensor, index: Tensor, values: Tensor) -> None:
    """rows[index] = values (B, K); equal indices carry equal values.

    >>> rows = torch.zeros(3, 1)
    >>> write_rows(rows, torch.tensor([2, 2]), torch.ones(2, 1))
    >>> rows.flatten()
    tensor([0., 0., 1.])
    """
    if rows.device == index.device:
        rows.index_copy_(0, index, values)
        return
    from autodo.hyper import host_rows_triton

    host_rows_triton.scatter(rows, index, values)


def within_reach(rows: Tensor, device: torch.device) -> Tensor:
    """``rows`` of the host where ``device`` can reach them: the same, or a pinned copy."""
    if device.type == "cpu":
        return rows
    if device.type != "cuda" or not has_triton():
        raise InputError(
            f"tables on the host cannot be used from {device}",
            "their rows are reached by Triton kernels, which run on CUDA"
            if device.type != "cuda"
            else "their rows are reached by Triton kernels, and Triton is not installed",
            'keep them on the device with tables_on="device"; label_storage makes them smaller',
        )
    return rows if rows.is_pinned() else rows.pin_memory()
