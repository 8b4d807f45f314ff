"""The fused kernels of the head against the torch operations in float64.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from cases import HeadProblem, assert_near
from interpreter import HAS_TRITON, INTERPRETED, PLACES, needs_gpu, pass_in_interpreter
from torch import Tensor

from autodo.implicit import (
    ConjugateGradient,
    HeadHypergradient,
    Identity,
    Neumann,
    Solution,
    Solver,
    head_hypergradient,
)
from autodo.implicit.head import FUSED_CLASSES, FUSED_POINTS
from autodo.train.recorded import WARM_UP, Recorded

GRADIENTS = ("weight_logits", "label_logits", "features", "train_gradient", "trusted_gradient")
AUTO, FIXED = Neumann(steps=5, alpha="auto"), Neumann(steps=5, alpha=0.05)
SMALL = [
    (batch, classes, loss, solver, adjusted)
    for batch, classes, adjusted in ((7, 2, True), (16, 17, False), (33, 10, True))
    for loss in ("symmetric_kl", "kl", "cross_entropy", "hard")
    for solver in (AUTO, FIXED)
]
LARGE = [
    (100, 10, "kl", AUTO, False),
    (100, 17, "hard", FIXED, True),
    (256, 10, "symmetric_kl", AUTO, True),
]
OTHER = [  # series of other lengths, one point, the largest that are fused
    (7, 3, "symmetric_kl", Neumann(steps=0, alpha="auto"), False),
    (7, 3, "symmetric_kl", Neumann(steps=0, alpha=0.3), False),
    (5, 4, "kl", Neumann(steps=16, alpha="auto"), False),
    (1, 2, "kl", AUTO, False),
    (FUSED_POINTS, FUSED_CLASSES, "kl", Neumann(steps=1, alpha=0.01), False),
]


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
def test_the_kernels_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton as a compiler")
@pytest.mark.parametrize(("rows", "columns", "warps"), [(256, 16, 8), (512, 32, 16), (8, 16, 4)])
def test_kernels_compile_for_hopper(rows: int, columns: int, warps: int) -> None:
    """Triton compiles without a GPU, and is stricter than its interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from autodo.implicit import head_triton, points_triton

    shared = {"C": columns - 3, "CP": columns, "GP": max(4, rows // 2), "ITERATIONS": 8,
              "STEPS": 5, "R": 2, "BR": 16, "PP": 16, "CHUNK": 2048, "CHUNKS": 4,
              "LOSSES": 1, "BP": rows}  # fmt: skip
    kernels = (
        points_triton.prepare, head_triton._power, head_triton._term, head_triton._gradients,
        head_triton._account,
    )  # fmt: skip
    for kernel, flag in itertools.product(kernels, (False, True)):
        given = shared | dict.fromkeys(
            ("AUTO", "HARD", "SYMMETRIC", "ADJUST", "JOIN"), flag
        ) | {"FIRST": not flag}  # fmt: skip
        names = kernel.arg_names
        constants = {(k,): given[name] for k, name in enumerate(names) if name in given}
        kinds = {"flags_ptr": "*i8", "trusted_label_ptr": "*i64", "fixed": "fp32", "norm": "fp32",
                 "other_norm": "fp32", "label_ptr": "*i64" if flag else "*fp32"}  # fmt: skip
        signature = {
            name: "constexpr" if name in given
            else kinds.get(name, "*fp32" if name.endswith("_ptr") else "i32")
            for name in names
        }  # fmt: skip
        triton.compile(
            ASTSource(fn=kernel, signature=signature, constexprs=constants),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": warps},
        )


def arguments(problem: HeadProblem, device: str) -> tuple[Tensor | None, ...]:
    given = (
        problem.features, problem.head_weight, problem.head_bias, problem.weight_logits,
        problem.label_logits, problem.trusted_features, problem.trusted_labels,
    )  # fmt: skip
    return tuple(None if x is None else x.to(device) for x in given)


def options(problem: HeadProblem, device: str) -> dict[str, Tensor | str | None]:
    hard, adjustment = problem.loss == "hard", problem.logit_adjustment
    return {
        "labels": problem.labels.to(device) if hard else None,
        "loss": "cross_entropy" if hard else problem.loss,
        "logit_adjustment": None if adjustment is None else adjustment.to(device),
    }


def plain(problem: HeadProblem, solver: Solver) -> HeadHypergradient:
    """The torch operations, in the precision of the problem."""
    return head_hypergradient(
        *arguments(problem, "cpu"), **options(problem, "cpu"), solver=solver, fused=False
    )


def fused(problem: HeadProblem, solver: Neumann, device: str) -> HeadHypergradient:
    """The kernels; called as such, for the interpreter's tensors are on the CPU."""
    from autodo.implicit import head_triton

    given = arguments(problem, device)
    dual = head_triton.solve(*given, **options(problem, device), solver=solver)
    return HeadHypergradient(
        solution=Solution(u=dual.u, residual=dual.residual, diverged=dual.diverged, solver=solver),
        inputs=(given[0], given[1]),
        **{k: v for k, v in dual._asdict().items() if k not in ("u", "residual", "diverged")},
    )


def assert_same(result: HeadHypergradient, expected: HeadHypergradient, relative: float) -> None:
    for name in GRADIENTS:
        assert_near(getattr(result, name).cpu(), getattr(expected, name), relative)
    assert_near(result.solution.u.cpu(), expected.solution.u, relative)
    for got, want in (
        (result.solution.residual, expected.solution.residual),
        (result.trusted_loss, expected.trusted_loss),
    ):
        assert float(got) == pytest.approx(float(want), rel=relative)
    assert bool(result.solution.diverged) == bool(expected.solution.diverged)
    assert bool(result.finite) == bool(expected.finite)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("batch", "classes", "loss", "solver", "adjusted"), SMALL + LARGE + OTHER)
def test_fused_equals_the_torch_operations(
    batch: int, classes: int, loss: str, solver: Neumann, adjusted: bool, device: str
) -> None:
    problem = HeadProblem.random(
        batch=batch, width=37, classes=classes, loss=loss, adjusted=adjusted,
        bias=batch != 33, trusted=21, seed=batch + classes,
    )  # fmt: skip
    result = fused(problem.to(torch.float32), solver, device)
    assert_same(result, plain(problem, solver), 1e-5)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("loss", ["symmetric_kl", "kl"])
def test_fused_equals_them_where_features_have_a_common_direction(loss: str, device: str) -> None:
    """As after a ReLU: K is then nearly of rank one, where the dual could lose digits."""
    problem = HeadProblem.random(batch=32, width=64, classes=10, loss=loss, seed=8)
    problem = replace(
        problem,
        features=problem.features.abs() + 1,
        trusted_features=problem.trusted_features.abs() + 1,
        head_weight=problem.head_weight / 4,
    )
    result = fused(problem.to(torch.float32), AUTO, device)
    assert_same(result, plain(problem, AUTO), 1e-5)


@pytest.mark.parametrize("device", PLACES)
def test_fused_weights_and_trusted_losses_near_zero_keep_their_digits(device: str) -> None:
    problem = HeadProblem.random(batch=16, width=20, classes=5, loss="kl", seed=9)
    problem = replace(
        problem,
        weight_logits=torch.linspace(-30, -8, 16, dtype=torch.float64),
        trusted_labels=(problem.trusted_features @ problem.head_weight.T).argmax(1),
        trusted_features=10 * problem.trusted_features,
        head_bias=None,
    )
    result, expected = fused(problem.to(torch.float32), FIXED, device), plain(problem, FIXED)
    assert expected.trusted_loss < 1e-2
    assert float(result.trusted_loss) == pytest.approx(float(expected.trusted_loss), rel=1e-4)
    # Point by point: the weight of the first is 1e-10 of that of the last.
    for got, want in (
        (result.weight_logits[:, None], expected.weight_logits[:, None]),
        (result.label_logits, expected.label_logits),
    ):
        error = (got.cpu() - want).abs().amax(1)
        assert (error <= 1e-3 * want.abs().amax(1)).all()


@pytest.mark.parametrize("device", PLACES)
def test_fused_reports_a_series_that_diverges(device: str) -> None:
    problem = HeadProblem.random(batch=8, width=16, loss="kl").to(torch.float32)
    solver = Neumann(steps=30, alpha=20.0)
    assert bool(plain(problem, solver).solution.diverged)
    assert bool(fused(problem, solver, device).solution.diverged)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["features", "trusted_features", "label_logits", "weight_logits"])
def test_fused_reports_what_is_not_finite(name: str, value: float, device: str) -> None:
    problem = HeadProblem.random(batch=8, width=16, loss="symmetric_kl").to(torch.float32)
    spoilt = getattr(problem, name).clone()
    spoilt[3] = value
    problem = replace(problem, **{name: spoilt})
    expected, result = plain(problem, AUTO), fused(problem, AUTO, device)
    assert not bool(expected.finite)
    assert not bool(result.finite)
    if name != "weight_logits" or value != math.inf:
        assert bool(result.solution.diverged)


@pytest.mark.parametrize("device", PLACES)
def test_fused_with_features_that_are_all_zero_is_finite(device: str) -> None:
    problem = HeadProblem.random(batch=8, width=16).to(torch.float32)
    problem = replace(problem, features=torch.zeros_like(problem.features))
    result, expected = fused(problem, AUTO, device), plain(problem, AUTO)
    assert bool(result.finite)
    assert_near(result.solution.u.cpu(), expected.solution.u, 1e-5)
    assert torch.equal(result.weight_logits.cpu(), torch.zeros(8))


# On a GPU, as ``head_hypergradient`` chooses


def test_on_a_cpu_fused_or_not_is_the_same() -> None:
    problem = HeadProblem.random().to(torch.float32)
    results = [
        head_hypergradient(
            *arguments(problem, "cpu"), **options(problem, "cpu"), solver=AUTO, fused=fused
        )
        for fused in (True, False)
    ]
    assert torch.equal(results[0].label_logits, results[1].label_logits)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the kernels are used."""
    from autodo.implicit import head_triton

    seen: list[int] = []
    solve = head_triton.solve

    def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        seen.append(1)
        return solve(*args, **kwargs)

    monkeypatch.setattr(head_triton, "solve", counted)
    return seen


@needs_gpu
@pytest.mark.parametrize("solver", [ConjugateGradient(), Identity(), AUTO], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gpu_kernels_are_for_neumann_in_float32(
    solver: Solver, dtype: torch.dtype, launches: list[int]
) -> None:
    problem = HeadProblem.random(batch=64, width=40, classes=10).to(dtype)
    result = head_hypergradient(
        *arguments(problem, "cuda"), **options(problem, "cuda"), solver=solver
    )
    assert len(launches) == (dtype == torch.float32 and isinstance(solver, Neumann))
    assert_same(result, plain(problem.to(torch.float64), solver), 1e-4)


@needs_gpu
def test_gpu_kernels_leave_large_batches_and_gradients_to_torch(launches: list[int]) -> None:
    problem = HeadProblem.random(batch=FUSED_POINTS + 1, width=40).to(torch.float32)
    head_hypergradient(*arguments(problem, "cuda"), **options(problem, "cuda"), solver=AUTO)
    given = list(arguments(HeadProblem.random(width=40).to(torch.float32), "cuda"))
    given[0] = given[0].requires_grad_()
    result = head_hypergradient(*given, solver=AUTO)
    assert not launches
    assert result.weight_logits.requires_grad


@needs_gpu
def test_gpu_kernels_repeat_bit_for_bit_and_can_be_recorded(launches: list[int]) -> None:
    problems = [
        HeadProblem.random(batch=256, width=640, classes=10, trusted=256, seed=k).to(torch.float32)
        for k in range(WARM_UP + 3)
    ]

    def step(*given: Tensor) -> tuple[Tensor, ...]:
        result = head_hypergradient(*given, solver=AUTO)
        return result.weight_logits, result.label_logits, result.features, result.solution.residual

    recorded = Recorded(step, torch.device("cuda"))
    for problem in problems:
        given = arguments(problem, "cuda")
        first, second = step(*given), step(*given)
        assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
        for one, two in zip(recorded(*given), first, strict=True):
            assert_near(one.cpu(), two.cpu(), 1e-5)  # torch may choose its products anew
    assert recorded._graph is not None
    assert len(launches) == 3 * len(problems) - 2  # replays call nothing: all but the first
