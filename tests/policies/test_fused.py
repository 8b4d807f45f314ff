"""Kernels that do a whole policy: the pixels of the direct way, bit for bit.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import pytest
import torch
from interpreter import HAS_TRITON, INTERPRETED, needs_gpu, needs_interpreter, pass_in_interpreter
from test_operations import images_of_all_kinds, mixed_steps, random_steps
from torch import Generator, Tensor

from autodo import policies
from autodo.policies import fused, whole
from autodo.policies.operations import NAMES, NUMBER, Steps, apply
from autodo.policies.policy import StepPolicy
from autodo.policies.rectangle import colour_of
from autodo.policies.standard import Standard
from autodo.train.recorded import WARM_UP
from autodo.train.recorded_policy import RecordedPolicy

SIZES = [(32, 32), (28, 28), (17, 23), (1, 1), (2, 5), (3, 3)]
STEPS = [
    "randaugment:3,7",
    "randaugment:3,30,colour",
    "randaugment:1,15,colour",
    "autoaugment:cifar",
    "autoaugment:svhn",
    "autoaugment:imagenet",
    "trivialaugment",
]
CROPS = ["standard:svhn", "standard:cifar"]
CHAINS = [
    "randaugment:3,7,colour+standard:svhn",
    "standard:cifar+trivialaugment+autoaugment:svhn",
]


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def images_of(count: int, channels: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    return images_of_all_kinds(count, channels, size, seed).float() / 255


def by_kernel(images: Tensor, plan: Tensor, names: tuple[str, ...], length: int) -> Tensor:
    """``whole.carry_out`` by the kernel, wherever the images are."""
    from autodo.policies import fused_triton

    boxes = whole.width(names, length) - 4 * length
    return fused_triton.carry_out(images, plan, length, maps=2 * length, boxes=boxes)


def carry_out_by_kernels(policy: policies.Planned, images: Tensor, plan: Tensor) -> Tensor:
    """Any policy by kernels; a chain with parts of its plan, as it does it itself."""
    from autodo.policies import fused_triton

    if isinstance(policy, Standard):
        colour = colour_of(policy.recipe.erased_colour, images.shape[1])
        return fused_triton.crop(images, plan, colour)
    if isinstance(policy, StepPolicy):
        return by_kernel(images, plan, policy.operations, policy.length)
    for part, columns in zip(
        policy.policies, plan.split([part.width for part in policy.policies], dim=1), strict=True
    ):
        images = carry_out_by_kernels(part, images, columns)
    return images


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
def test_the_kernels_in_the_interpreter():
    pass_in_interpreter(__file__)


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton as a compiler")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [128, 1024, 4096])
def test_compiled_kernels_round_products_and_sums_separately(channels, pixels):
    """Triton compiles without a GPU; a fused product and sum would be one rounding."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from autodo.policies import fused_triton

    tile = fused_triton._tile(torch.empty(1, channels, pixels // 8, 8))
    options = {name: tile.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    signature = {"images_ptr": "*fp32", "out_ptr": "*fp32", "plan_ptr": "*i64"}
    signature |= {"values_ptr": "*fp64"} | dict.fromkeys(("stride", "maps", "boxes"), "i32")
    signature |= dict.fromkeys(("height", "width"), "i32")
    constants = fused_triton._colours((1, 2, 3)) | {"DIVIDE": False, "LENGTH": 3} | tile
    signature |= dict.fromkeys(constants, "constexpr")
    compiled = triton.compile(
        ASTSource(fused_triton._steps, signature, constants, {}),
        target=GPUTarget("cuda", 90, 32),
        options=options | {"maxnreg": fused_triton.REGISTERS},
    )
    text = compiled.asm["ptx"]
    assert "div.rn.f64" in text
    assert not re.search(r"\b(fma|mad)\.\w+\.f(32|64)", text)
    # What does not say how it is rounded could still be fused by the assembler.
    assert not re.search(r"\bmul\.f(32|64)", text)


@needs_interpreter
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_interpreted_operations_alone(name, size):
    for channels in (1, 3):
        images, steps = images_of(6, channels, size, seed=1), random_steps(name, 6, seed=2)
        for names in ((name,), NAMES):
            result = by_kernel(images, whole.plan(steps, names, size), names, 1)
            assert torch.equal(result, apply(images, steps))


@needs_interpreter
@pytest.mark.parametrize("channels", [1, 3])
def test_interpreted_steps_of_all_operations_follow_each_other(channels):
    for seed, size in enumerate([(32, 32), (19, 24), (64, 64)]):
        images, steps = images_of(60, channels, size, seed), mixed_steps(60, length=4, seed=seed)
        result = by_kernel(images, whole.plan(steps, NAMES, size), NAMES, 4)
        assert torch.equal(result, apply(images, steps))


@needs_interpreter
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spec", [*STEPS, *CROPS, *CHAINS])
def test_interpreted_policies(spec, channels):
    policy = policies.get(spec)
    parts = policies.planned(policy)
    for seed, (count, size) in enumerate(((32, (32, 32)), (16, (28, 28)), (24, (17, 23)))):
        images = images_of(count, channels, size, seed)
        plan = parts.plan(count, size, seeded(seed))
        result = carry_out_by_kernels(parts, images, plan)
        assert result.dtype == torch.float32
        assert torch.equal(result, policy(images, seeded(seed)))


@needs_interpreter
@pytest.mark.parametrize("name", ["Rotate", "Posterize", "Solarize", "SolarizeAdd", "Brightness"])
def test_interpreted_values_beyond_any_range(name):
    value = torch.tensor([[-1000.0], [-0.5], [0.0], [0.999], [255.5], [2.0**17]]).double()
    steps = Steps(torch.full((6, 1), NUMBER[name]), value, torch.zeros(6, 1, 2))
    for channels in (1, 3):
        images = images_of(6, channels, (8, 8), seed=3)
        result = by_kernel(images, whole.plan(steps, (name,), (8, 8)), (name,), 1)
        assert torch.equal(result, apply(images, steps))


@needs_interpreter
@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_interpreted_moves_beyond_any_image_leave_nothing_of_it(name):
    value = torch.full((4, 1), 2.0**17, dtype=torch.float64)
    steps = Steps(torch.full((4, 1), NUMBER[name]), value, torch.zeros(4, 1, 2))
    plan = whole.plan(steps, (name,), (8, 8))
    assert by_kernel(images_of(4, 3, (8, 8)), plan, (name,), 1).max() == 0


@needs_interpreter
def test_interpreted_images_between_two_levels_go_to_the_nearest_and_halves_to_even():
    levels = torch.arange(-3, 260, dtype=torch.float64)
    levels = torch.cat((levels, levels + 0.5, levels + 0.49999, levels + 0.50001))
    images = (levels / 255).float().view(1, 1, 4, -1)
    steps = random_steps("Identity", 1, seed=0)
    plan = whole.plan(steps, ("Identity",), (4, 263))
    assert torch.equal(by_kernel(images, plan, ("Identity",), 1), apply(images, steps))


@needs_interpreter
def test_interpreted_images_need_not_lie_side_by_side():
    policy = policies.get("standard:cifar+randaugment:3,7")
    parts = policies.planned(policy)
    images = images_of(12, 3, (20, 9)).mT[::2]
    plan = parts.plan(6, (9, 20), seeded(0))
    assert torch.equal(carry_out_by_kernels(parts, images, plan), policy(images, seeded(0)))


def test_what_the_kernels_do_not_cover_is_left_to_torch():
    assert fused.kernels(torch.rand(2, 3, 8, 8)) is None


def direct(policy: policies.Planned, images: Tensor, plan: Tensor) -> Tensor:
    """Without kernels."""
    largest, fused.LARGEST = fused.LARGEST, 0
    try:
        return policy.carry_out(images, plan)
    finally:
        fused.LARGEST = largest


@needs_gpu
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spec", [*STEPS, *CROPS, *CHAINS])
def test_gpu_kernels_give_the_pixels_of_torch(spec, channels):
    policy = policies.planned(policies.get(spec))
    for seed, size in enumerate(((32, 32), (28, 28), (17, 23), (64, 64), (9, 11))):
        images = images_of(256, channels, size, seed).cuda()
        before = images.clone()
        for repeat in range(4):
            plan = policy.plan(256, size, seeded(10 * seed + repeat)).cuda()
            result = policy.carry_out(images, plan)
            assert torch.equal(result, direct(policy, images, plan))
        assert torch.equal(images, before)


@needs_gpu
@pytest.mark.parametrize("size", [*SIZES, (64, 64), (40, 60)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gpu_operations_alone(name, size):
    for channels in (1, 3):
        images = images_of(256, channels, size, seed=1).cuda()
        steps = random_steps(name, 256, seed=2)
        plan = whole.plan(steps, NAMES, size).cuda()
        result = whole.carry_out(images, plan, NAMES, 1)
        assert torch.equal(result, by_kernel(images, plan, NAMES, 1))
        assert torch.equal(result, apply(images, steps))


@needs_gpu
@pytest.mark.parametrize("channels", [1, 3])
def test_gpu_steps_of_all_operations_follow_each_other(channels):
    for seed in range(8):
        images = images_of(300, channels, (32, 32), seed).cuda()
        steps = mixed_steps(300, length=6, seed=seed)
        plan = whole.plan(steps, NAMES, (32, 32)).cuda()
        result = whole.carry_out(images, plan, NAMES, 6)
        assert torch.equal(result, apply(images, steps))


@needs_gpu
def test_gpu_other_batches_are_left_to_torch():
    images = torch.rand(2, 3, 64, 64, device="cuda")
    assert fused.kernels(images) is not None
    assert fused.kernels(images.half()) is None
    assert fused.kernels(images[:0]) is None
    assert fused.kernels(torch.rand(2, 3, 64, 65, device="cuda")) is None
    assert fused.kernels(images.requires_grad_()) is None


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """How often a function of the kernels' module was called."""
    from autodo.policies import fused_triton

    given, calls = getattr(fused_triton, name), []

    def call(*args, **kwargs):
        calls.append(prod(args[0].shape))
        return given(*args, **kwargs)

    monkeypatch.setattr(fused_triton, name, call)
    return lambda: len(calls)


@needs_gpu
def test_gpu_a_recorded_policy_is_a_kernel_for_each_policy_of_its_chain(monkeypatch):
    steps, crops = counted(monkeypatch, "carry_out"), counted(monkeypatch, "crop")
    chain = policies.get(CHAINS[0])
    recorded = RecordedPolicy(chain, torch.device("cuda"), sizes={64})
    for seed in range(WARM_UP + 4):
        images = images_of(64, 3, (32, 32), seed).cuda()
        result = recorded(images, seeded(seed))
        height, width = images.shape[-2:]
        parts = policies.planned(chain)
        plan = parts.plan(64, (height, width), seeded(seed)).cuda()
        assert torch.equal(result, direct(parts, images, plan))
    # Warming up and recording launch them, replaying does not ask Python.
    assert steps() == crops() == WARM_UP + 1
