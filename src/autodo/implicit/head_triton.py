"""The kernels of ``head``: the whole algebra of a Neumann solution in few launches, by its dual.

With Phi (B, D) the features, every vector of the series is c v + Phi^T Z with Z (B, C), and H is
seen through M = Phi x^T (B, C) and K = Phi Phi^T (B, B) alone:

    H x = Phi^T J,   J = w * curvature(M) / B,   Phi (H x)^T = K J,   |H x|^2 = <J, K J>

so that a term of the series is M' = M - alpha K J, one launch of small programs: each makes J of
the whole batch anew and two rows of K J. Power iteration goes the same way from Phi x0^T.

Sums over the batch are made per program and then over the programs, in a fixed order: results
repeat bit for bit. Nothing waits for the device. All arithmetic is float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from autodo.implicit.points_triton import centre, curvature, prepare
from autodo.implicit.solvers import POWER_ITERATIONS, Neumann, power_start

ROWS = 2
"""Rows of K J that a program makes: with 256 points about a program for each multiprocessor."""
POINTS = 16
"""Rows that a program works on where rows do not depend on each other."""
CHUNK = 2048
"""Numbers of a (C, D) matrix that the last kernel works on at a time."""


class Dual(NamedTuple):
    """What ``solve`` found; the names are those of ``HeadHypergradient`` and ``Solution``."""

    weight_logits: Tensor
    label_logits: Tensor
    weighted_residual: Tensor
    weighted_curvature: Tensor
    trusted_loss: Tensor
    trusted_gradient: Tensor
    finite: Tensor
    u: Tensor
    residual: Tensor
    diverged: Tensor


@triton.jit
def _alpha(  # type: ignore[no-untyped-def]
    squares_ptr, fixed, programs, AUTO: tl.constexpr, ITERATIONS: tl.constexpr, GP: tl.constexpr,
):  # fmt: skip
    """The fixed alpha, or 0.9 over the largest |H x| of the power iteration."""
    alpha = fixed
    if AUTO:
        k = tl.arange(0, ITERATIONS)[:, None]
        part = tl.arange(0, GP)[None, :]
        squares = tl.load(squares_ptr + k * GP + part, mask=part < programs, other=0.0)
        largest = tl.max(tl.sum(squares, 1), 0)
        eigenvalue = tl.sqrt(tl.where(largest < 0, 0.0, largest))
        alpha = 0.9 / tl.where(eigenvalue < 1e-6, 1e-6, eigenvalue)
    return alpha


@triton.jit
def _power(  # type: ignore[no-untyped-def]
    gram_ptr, m_ptr, m_stride, other_ptr, other_stride, p_ptr, t_ptr, scale_ptr,
    before_ptr, mixed_before_ptr, out_ptr, squares_ptr, mixed_ptr, norm, other_norm, B, programs,
    C: tl.constexpr, FIRST: tl.constexpr, JOIN: tl.constexpr, R: tl.constexpr,
    BP: tl.constexpr, CP: tl.constexpr, GP: tl.constexpr,
):  # fmt: skip
    """One x -> H x / |x| as M -> K J, with this program's part of <J, K J> and <J, other>.

    |x| is ``norm`` at the FIRST, after that the root of the parts before. JOIN adds the second
    start vector, of norm ``other_norm``, to the first.
    """
    row = tl.arange(0, BP)
    column = tl.arange(0, CP)
    inside = (row < B)[:, None] & (column < C)[None, :]
    at = row[:, None] * C + column[None, :]
    m = tl.load(m_ptr + row[:, None] * m_stride + column[None, :], mask=inside, other=0.0)
    if FIRST:
        m = m / norm
    else:
        part = tl.arange(0, GP)
        square = tl.sum(tl.load(before_ptr + part, mask=part < programs, other=0.0), 0)
        size = tl.sqrt(tl.where(square < 0, 0.0, square))
        size = tl.where(size < 1.1754943508222875e-38, 1.1754943508222875e-38, size)
        m = m / size
        if JOIN:
            mixed = tl.load(mixed_before_ptr + part, mask=part < programs, other=0.0)
            cosine = tl.sum(mixed, 0) / size / other_norm
            other_at = row[:, None] * other_stride + column[None, :]
            m += tl.load(other_ptr + other_at, mask=inside, other=0.0) / other_norm
            m = m / tl.sqrt(2.0 + 2.0 * cosine)
    p = tl.load(p_ptr + at, mask=inside, other=0.0)
    t = tl.load(t_ptr + at, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + row, mask=row < B, other=0.0)
    j = scale[:, None] * curvature(m, p, t)
    square_part = 0.0
    mixed_part = 0.0
    for r in tl.static_range(R):
        i = tl.program_id(0) * R + r
        mine = (column < C) & (i < B)
        gram = tl.load(gram_ptr + i * B + row, mask=(row < B) & (i < B), other=0.0)
        product = tl.sum(gram[:, None] * j, 0)
        own = tl.sum(tl.where((row == i)[:, None], j, 0.0), 0)
        other = tl.load(other_ptr + i * other_stride + column, mask=mine, other=0.0)
        tl.store(out_ptr + i * C + column, product, mask=mine)
        square_part += tl.sum(own * product, 0)
        mixed_part += tl.sum(own * other, 0)
    tl.store(squares_ptr + tl.program_id(0), square_part)
    tl.store(mixed_ptr + tl.program_id(0), mixed_part)


@triton.jit
def _term(  # type: ignore[no-untyped-def]
    gram_ptr, m_ptr, p_ptr, t_ptr, scale_ptr, out_ptr, squares_ptr, fixed, B, programs,
    C: tl.constexpr, AUTO: tl.constexpr, ITERATIONS: tl.constexpr, R: tl.constexpr,
    BP: tl.constexpr, CP: tl.constexpr, GP: tl.constexpr,
):  # fmt: skip
    """The next term of the series: M - alpha K J."""
    row = tl.arange(0, BP)
    column = tl.arange(0, CP)
    inside = (row < B)[:, None] & (column < C)[None, :]
    at = row[:, None] * C + column[None, :]
    alpha = _alpha(squares_ptr, fixed, programs, AUTO, ITERATIONS, GP)
    m = tl.load(m_ptr + at, mask=inside, other=0.0)
    p = tl.load(p_ptr + at, mask=inside, other=0.0)
    t = tl.load(t_ptr + at, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + row, mask=row < B, other=0.0)
    j = scale[:, None] * curvature(m, p, t)
    for r in tl.static_range(R):
        i = tl.program_id(0) * R + r
        mine = (column < C) & (i < B)
        gram = tl.load(gram_ptr + i * B + row, mask=(row < B) & (i < B), other=0.0)
        product = tl.sum(gram[:, None] * j, 0)
        own = tl.load(m_ptr + i * C + column, mask=mine, other=0.0)
        tl.store(out_ptr + i * C + column, own - alpha * product, mask=mine)


@triton.jit
def _gradients(  # type: ignore[no-untyped-def]
    terms_ptr, p_ptr, q_ptr, t_ptr, scale_ptr, weight_ptr, squares_ptr,
    grad_weight_ptr, grad_label_ptr, residual_ptr, curvature_ptr, pair_ptr,
    part_ptr, finite_ptr, fixed, B, programs,
    STEPS: tl.constexpr, C: tl.constexpr, AUTO: tl.constexpr, HARD: tl.constexpr,
    SYMMETRIC: tl.constexpr, ITERATIONS: tl.constexpr, BR: tl.constexpr, CP: tl.constexpr,
    GP: tl.constexpr,
):  # fmt: skip
    """Gradients of W and S from a = alpha sum_k M_k, and what u and the last term's norm need.

    term_k = v + Phi^T Z_k with Z_k = -alpha sum_{l<k} J_l, so u = alpha ((n + 1) v + Phi^T sum_k
    Z_k) and |term_n|^2 = |v|^2 + <Z_n, M_0 + M_n>. Beside J a, ``pair`` (B, 2 C) gets the Z of u.
    """
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    column = tl.arange(0, CP)
    known = (column < C)[None, :]
    inside = (row < B)[:, None] & known
    at = row[:, None] * C + column[None, :]
    alpha = _alpha(squares_ptr, fixed, programs, AUTO, ITERATIONS, GP)
    p = tl.load(p_ptr + at, mask=inside, other=0.0)
    q = tl.load(q_ptr + at, mask=inside, other=0.0)
    t = tl.load(t_ptr + at, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + row, mask=row < B, other=0.0)[:, None]
    first = tl.load(terms_ptr + at, mask=inside, other=0.0)
    last = first
    total = first
    z_last = tl.zeros([BR, CP], tl.float32)
    z_total = tl.zeros([BR, CP], tl.float32)
    for k in range(1, STEPS + 1):
        z_last -= alpha * scale * curvature(last, p, t)
        z_total += z_last
        last = tl.load(terms_ptr + k * B * C + at, mask=inside, other=0.0)
        total += last
    a = alpha * total
    r = p - q
    if SYMMETRIC:
        r = 0.5 * r + p * (t - 1.0)
    curved = scale * curvature(a, p, t)
    tl.store(residual_ptr + at, scale * r, mask=inside)
    tl.store(curvature_ptr + at, curved, mask=inside)
    pair_at = row[:, None] * (2 * C) + column[None, :]
    tl.store(pair_ptr + pair_at, alpha * z_total, mask=inside)
    tl.store(pair_ptr + pair_at + C, curved, mask=inside)

    weight = tl.load(weight_ptr + row, mask=row < B, other=0.0)
    slope = 1.4426950408889634 / (1.0 + tl.exp(-weight)) / B
    grad_weight = -tl.sum(r * a, 1) * slope
    tl.store(grad_weight_ptr + row, grad_weight, mask=row < B)
    # Compared, not subtracted from itself: a product less its rounded value is not 0 when fused.
    endless = float("inf")
    finite = tl.sum(tl.where((row < B) & ~(tl.abs(grad_weight) < endless), 1.0, 0.0), 0)
    if HARD:
        tl.store(grad_label_ptr + at, tl.zeros([BR, CP], tl.float32), mask=inside)
    else:
        if SYMMETRIC:
            grad_label = 0.5 * scale * (q * centre(a, q) + p * centre(a, p))
        else:
            grad_label = scale * q * centre(a, q)
        tl.store(grad_label_ptr + at, grad_label, mask=inside)
        bad = inside & ~(tl.abs(grad_label) < endless)
        finite += tl.sum(tl.sum(tl.where(bad, 1.0, 0.0), 1), 0)
    tl.store(finite_ptr + tl.program_id(0), finite)
    grown = tl.where(inside, z_last * (first + last), 0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.sum(grown, 1), 0))


@triton.jit
def _account(  # type: ignore[no-untyped-def]
    v_ptr, pair_ptr, squares_ptr, part_ptr, finite_ptr, loss_ptr, u_ptr, numbers_ptr, flags_ptr,
    fixed, numbers, count, steps, programs, parts, CHUNKS: tl.constexpr, LOSSES: tl.constexpr,
    AUTO: tl.constexpr, ITERATIONS: tl.constexpr, GP: tl.constexpr, PP: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """u, |v - H u| / |v| and the trusted loss; whether the series diverged, the gradients finite.

    ``pair`` (2 C, D) holds Phi^T Z of u, and H u.
    """
    alpha = _alpha(squares_ptr, fixed, programs, AUTO, ITERATIONS, GP)
    chunk = tl.arange(0, CHUNK)
    v_squares = tl.zeros([CHUNK], tl.float32)
    missing = tl.zeros([CHUNK], tl.float32)
    for k in range(0, CHUNKS):
        at = k * CHUNK + chunk
        inside = at < numbers
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
        z = tl.load(pair_ptr + at, mask=inside, other=0.0)
        hu = tl.load(pair_ptr + numbers + at, mask=inside, other=0.0)
        tl.store(u_ptr + at, alpha * (steps + 1.0) * v + z, mask=inside)
        v_squares += v * v
        missing += (v - hu) * (v - hu)
    losses = tl.zeros([CHUNK], tl.float32)
    for k in range(0, LOSSES):
        at = k * CHUNK + chunk
        losses += tl.load(loss_ptr + at, mask=at < count, other=0.0)
    part = tl.arange(0, PP)
    grown = tl.sum(tl.load(part_ptr + part, mask=part < parts, other=0.0), 0)
    finite = tl.sum(tl.load(finite_ptr + part, mask=part < parts, other=0.0), 0)
    v_square = tl.sum(v_squares, 0)
    size = tl.sqrt(v_square)
    least = tl.where(size < 1.1754943508222875e-38, 1.1754943508222875e-38, size)
    term = v_square + grown
    shrunk = tl.sqrt(tl.where(term < 0, 0.0, term)) <= 2.0 * size  # False where it is not a number
    tl.store(numbers_ptr, tl.sqrt(tl.sum(missing, 0)) / least)
    tl.store(numbers_ptr + 1, tl.sum(losses, 0) / count)
    tl.store(flags_ptr, tl.where(shrunk, 0, 1).to(tl.int8))
    tl.store(flags_ptr + 1, tl.where(finite == 0.0, 1, 0).to(tl.int8))


# Launches

_STARTS: dict[tuple[int, int, torch.device], tuple[Tensor, float, float]] = {}
"""Kept for good: a recorded step knows their addresses."""


def _start(classes: int, width: int, device: torch.device) -> tuple[Tensor, float, float]:
    """The two start vectors of the power iteration, (2 C, D), and their norms."""
    key = (classes, width, device)
    if key in _STARTS:
        return _STARTS[key]
    like = torch.empty(classes, width)
    norm, other_norm = (float(x.double().norm()) for x in power_start(like))
    start = torch.cat(power_start(like.to(device)))
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            return start, norm, other_norm  # memory of that graph, filled when it is replayed
        torch.cuda.current_stream(device).synchronize()  # this once, for all streams to come
    _STARTS[key] = start, norm, other_norm
    return _STARTS[key]


def solve(
    features: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None,
    weight_logits: Tensor,
    label_logits: Tensor,
    trusted_features: Tensor,
    trusted_labels: Tensor,
    *,
    solver: Neumann,
    loss: str,
    labels: Tensor | None,
    logit_adjustment: Tensor | None,
) -> Dual:
    """The hypergradient at the head; arguments are those of ``head_hypergradient``."""
    batch, width = features.shape
    classes, count = len(head_weight), len(trusted_features)
    features, weight_logits = features.contiguous(), weight_logits.contiguous()
    hard, symmetric = labels is not None, labels is None and loss == "symmetric_kl"
    auto, steps = isinstance(solver.alpha, str), solver.steps
    fixed = 0.0 if isinstance(solver.alpha, str) else float(solver.alpha)

    programs, blocks = triton.cdiv(batch, ROWS), triton.cdiv(batch, POINTS)
    rows = triton.next_power_of_2(batch)
    columns = max(16, triton.next_power_of_2(classes))
    parts = max(4, triton.next_power_of_2(programs))  # rows of 16 bytes: one kernel for all k
    # About sixteen numbers of a (B, C) matrix for a thread.
    warps = min(16, max(4, rows * columns // 512))
    tile = {"BP": rows, "CP": columns, "GP": parts, "R": ROWS, "num_warps": warps}

    def empty(*shape: int) -> Tensor:
        return features.new_empty(shape)

    p, q, t, scale = (*empty(3, batch, classes), empty(batch))
    residual, losses = empty(count, classes), empty(count)
    squares, mixed = empty(2, POWER_ITERATIONS, parts)
    terms, power = empty(steps + 1, batch, classes), empty(2, batch, classes)
    grad_weight, grad_label = empty(batch), empty(batch, classes)
    weighted_residual, weighted_curvature = empty(batch, classes), empty(batch, classes)
    pair, grown, finite = empty(batch, 2 * classes), empty(blocks), empty(blocks)
    u, numbers = empty(classes, width), empty(2)
    flags = torch.empty(2, dtype=torch.int8, device=features.device)

    with torch.cuda.device_of(features), torch.autocast(features.device.type, enabled=False):
        logits = F.linear(features, head_weight, head_bias)
        trusted_logits = F.linear(trusted_features, head_weight, head_bias)
        prepare[(blocks + triton.cdiv(count, POINTS),)](
            logits, p if logit_adjustment is None else logit_adjustment.to(p.dtype).contiguous(),
            (label_logits if labels is None else labels).contiguous(), weight_logits,
            p, q, t, scale, trusted_logits, trusted_labels.contiguous(), residual, losses,
            batch, count, blocks, C=classes, ADJUST=logit_adjustment is not None, HARD=hard,
            SYMMETRIC=symmetric, BR=POINTS, CP=columns, num_warps=4,
        )  # fmt: skip
        v = residual.T @ trusted_features
        torch.mm(features, v.T, out=terms[0])
        gram = features @ features.T if auto or steps > 0 else features
        if auto:
            start, norm, other_norm = _start(classes, width, features.device)
            begin = features @ start.T  # (B, 2 C): of the first vector, and of the other
            other = begin[:, classes:]
            for k in range(POWER_ITERATIONS):
                join = k == POWER_ITERATIONS // 2
                m = begin if k == 0 else power[(k - 1) % 2]
                before = max(k - 1, 0)
                _power[(programs,)](
                    gram, m, m.stride(0), other, other.stride(0), p, t, scale,
                    squares[before], mixed[before], power[k % 2], squares[k], mixed[k],
                    norm, other_norm, batch, programs, C=classes, FIRST=k == 0, JOIN=join, **tile,
                )  # fmt: skip
        for k in range(steps):
            _term[(programs,)](
                gram, terms[k], p, t, scale, terms[k + 1], squares, fixed, batch, programs,
                C=classes, AUTO=auto, ITERATIONS=POWER_ITERATIONS, **tile,
            )  # fmt: skip
        _gradients[(blocks,)](
            terms, p, q, t, scale, weight_logits, squares, grad_weight, grad_label,
            weighted_residual, weighted_curvature, pair, grown, finite, fixed, batch,
            programs, STEPS=steps, C=classes, AUTO=auto, HARD=hard, SYMMETRIC=symmetric,
            ITERATIONS=POWER_ITERATIONS, BR=POINTS, CP=columns, GP=parts, num_warps=4,
        )  # fmt: skip
        _account[(1,)](
            v, pair.T @ features, squares, grown, finite, losses, u, numbers, flags,
            fixed, classes * width, count, steps, programs, blocks,
            CHUNKS=triton.cdiv(classes * width, CHUNK), LOSSES=triton.cdiv(count, CHUNK), AUTO=auto,
            ITERATIONS=POWER_ITERATIONS, GP=parts, PP=triton.next_power_of_2(blocks),
            CHUNK=CHUNK, num_warps=8,
        )  # fmt: skip
    diverged, is_finite = flags.view(torch.bool).unbind()
    return Dual(
        weight_logits=grad_weight,
        label_logits=grad_label,
        weighted_residual=weighted_residual,
        weighted_curvature=weighted_curvature,
        trusted_loss=numbers[1],
        trusted_gradient=v,
        finite=is_finite,
        u=u,
        residual=numbers[0],
        diverged=diverged,
    )
