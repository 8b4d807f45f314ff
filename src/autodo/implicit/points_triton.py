"""The functions of a point that the kernels of ``head_triton`` share, and where its work begins.

The curvature of every loss is y - p sum(y) with y = p (m - p.m) t; t is 1 for KL and
cross-entropy and 1 + (d - p.d) / 2 for the symmetric KL, for p (m - p.m) sums to 0.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _log(x):  # type: ignore[no-untyped-def]
    """The logarithm of a positive number to float32's precision, also near 1."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23  # of x as m 2^e with m from sqrt(1/2) to sqrt(2)
    m = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    series = 1.0 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9))))
    value = exponent.to(tl.float32) * 0.6931471805599453 + 2.0 * s * series
    return tl.where(x < float("inf"), value, x)  # NaN stays NaN


@triton.jit
def _softplus(x):  # type: ignore[no-untyped-def]
    """max(x, 0) + log(1 + e^-|x|); the logarithm as 2 artanh(e / (2 + e)), exact for small e."""
    e = tl.exp(-tl.abs(x))
    s = e / (2.0 + e)
    s2 = s * s
    series = 1.0 / 11 + s2 * (1.0 / 13 + s2 * (1.0 / 15))
    series = 1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9 + s2 * series))
    series = 1.0 + s2 * (1.0 / 3 + s2 * series)
    return tl.where(x > 0, x, 0.0) + 2.0 * s * series


@triton.jit
def _log_softmax(z, known):  # type: ignore[no-untyped-def]
    """Of the columns ``known`` (1, CP) of z; 0 elsewhere."""
    z = tl.where(known, z, float("-inf"))
    z = z - tl.max(z, 1)[:, None]
    return tl.where(known, z - _log(tl.sum(tl.exp(z), 1))[:, None], 0.0)


@triton.jit
def curvature(m, p, t):  # type: ignore[no-untyped-def]
    """J m of each row, as the module's head has it."""
    y = p * (m - tl.sum(p * m, 1)[:, None]) * t
    return y - p * tl.sum(y, 1)[:, None]


@triton.jit
def centre(x, p):  # type: ignore[no-untyped-def]
    return x - tl.sum(p * x, 1)[:, None]


@triton.jit
def _prepare_training(  # type: ignore[no-untyped-def]
    block, logits_ptr, adjustment_ptr, label_ptr, weight_ptr, p_ptr, q_ptr, t_ptr, scale_ptr,
    B, C: tl.constexpr, ADJUST: tl.constexpr, HARD: tl.constexpr, SYMMETRIC: tl.constexpr,
    BR: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    row = block * BR + tl.arange(0, BR)
    column = tl.arange(0, CP)
    known = (column < C)[None, :]
    inside = (row < B)[:, None] & known
    at = row[:, None] * C + column[None, :]
    z = tl.load(logits_ptr + at, mask=inside, other=0.0)
    if ADJUST:
        z += tl.load(adjustment_ptr + column, mask=column < C, other=0.0)[None, :]
    log_p = _log_softmax(z, known)
    p = tl.where(known, tl.exp(log_p), 0.0)
    if HARD:
        label = tl.load(label_ptr + row, mask=row < B, other=0)
        q = tl.where(column[None, :] == label[:, None], 1.0, 0.0)
        t = tl.zeros([BR, CP], tl.float32) + 1.0
    else:
        log_q = _log_softmax(tl.load(label_ptr + at, mask=inside, other=0.0), known)
        q = tl.where(known, tl.exp(log_q), 0.0)
        if SYMMETRIC:
            t = 1.0 + 0.5 * centre(log_p - log_q, p)
        else:
            t = tl.zeros([BR, CP], tl.float32) + 1.0
    tl.store(p_ptr + at, p, mask=inside)
    tl.store(q_ptr + at, q, mask=inside)
    tl.store(t_ptr + at, t, mask=inside)
    weight = tl.load(weight_ptr + row, mask=row < B, other=0.0)
    tl.store(scale_ptr + row, _softplus(weight) * 1.4426950408889634 / B, mask=row < B)


@triton.jit
def _prepare_trusted(  # type: ignore[no-untyped-def]
    block, logits_ptr, label_ptr, residual_ptr, loss_ptr, count,
    C: tl.constexpr, BR: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    row = block * BR + tl.arange(0, BR)
    column = tl.arange(0, CP)
    known = (column < C)[None, :]
    inside = (row < count)[:, None] & known
    at = row[:, None] * C + column[None, :]
    log_p = _log_softmax(tl.load(logits_ptr + at, mask=inside, other=0.0), known)
    label = tl.load(label_ptr + row, mask=row < count, other=0)
    own = column[None, :] == label[:, None]
    tl.store(residual_ptr + at, (tl.exp(log_p) - tl.where(own, 1.0, 0.0)) / count, mask=inside)
    tl.store(loss_ptr + row, -tl.sum(tl.where(own, log_p, 0.0), 1), mask=row < count)


@triton.jit
def prepare(  # type: ignore[no-untyped-def]
    logits_ptr, adjustment_ptr, label_ptr, weight_ptr, p_ptr, q_ptr, t_ptr, scale_ptr,
    trusted_ptr, trusted_label_ptr, residual_ptr, loss_ptr, B, count, blocks,
    C: tl.constexpr, ADJUST: tl.constexpr, HARD: tl.constexpr, SYMMETRIC: tl.constexpr,
    BR: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """p, q, t and w / B of the batch (the first ``blocks`` programs); (p - y) / M of trusted."""
    block = tl.program_id(0)
    if block < blocks:
        _prepare_training(
            block, logits_ptr, adjustment_ptr, label_ptr, weight_ptr, p_ptr, q_ptr, t_ptr,
            scale_ptr, B, C, ADJUST, HARD, SYMMETRIC, BR, CP,
        )  # fmt: skip
    else:
        _prepare_trusted(
            block - blocks, trusted_ptr, trusted_label_ptr, residual_ptr, loss_ptr, count, C, BR, CP
        )
