"""Operations on whole batches: the images of the sorted way, by calls that never vary."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from shared_files import shared_path
from test_operations import RANGES, SIZES, images_of_all_kinds, mixed_steps, random_steps
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autodo import policies
from autodo.policies import Chain, Entry, Planned, RandAugment, SubPolicies, whole
from autodo.policies.operations import NAMES, NUMBER, Steps, apply

SPECS = [
    "standard:svhn",
    "standard:cifar",
    "standard:imagenet",
    "randaugment:3,7",
    "randaugment:3,7,colour",
    "randaugment:1,30",
    "autoaugment:cifar",
    "autoaugment:svhn",
    "autoaugment:imagenet",
    "trivialaugment",
]
FILES = [
    *(f"dada-{name}" for name in ("cifar10", "cifar100", "imagenet", "svhn")),
    *(f"faa-{name}" for name in ("cifar10", "imagenet", "svhn")),
]


def every_operation() -> SubPolicies:
    """A list of all operations, one to three in a row, with values of both signs."""
    entries = [
        Entry(name, 0.8, sum(RANGES.get(name, (0.0, 0.0))) * 0.4 + 0.1, name in RANGES)
        for name in NAMES
        if name != "Identity"
    ]
    ahead = zip(entries, entries[5:] + entries[:5], entries[9:] + entries[:9], strict=True)
    return SubPolicies("every", tuple(row[: 1 + k % 3] for k, row in enumerate(ahead)))


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def in_two_parts(policy: Planned, images: Tensor, generator: Generator) -> Tensor:
    height, width = images.shape[-2:]
    return policy.carry_out(images, policy.plan(len(images), (height, width), generator))


def assert_both_ways_agree(policy: Planned, images: Tensor, seed: int) -> None:
    one, other = seeded(seed), seeded(seed)
    expected = policy(images, one)
    result = in_two_parts(policy, images, other)
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)
    assert torch.equal(torch.rand(2, generator=one), torch.rand(2, generator=other))
    assert result.shape[-2:] == policy.size_after(images.shape[-2:])


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("channels", [1, 3])
def test_both_ways_of_a_policy_give_the_same_images(spec, channels):
    for seed, (count, size) in enumerate(
        ((64, (32, 32)), (37, (19, 24)), (1, (28, 28)), (7, (2, 5)), (3, (1, 1)), (0, (4, 4)))
    ):
        images = images_of_all_kinds(count + 1, channels, size, seed)[:count].float() / 255
        images = images[:5] if spec == "standard:imagenet" else images
        for repeat in range(6):
            assert_both_ways_agree(policies.get(spec), images, 100 * seed + repeat)


@dataclass(frozen=True)
class Halved:
    """A policy of other making, which only knows how to be called."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        return images / 2


@pytest.mark.parametrize(
    "spec",
    [
        "randaugment:3,7,colour+standard:svhn",
        "standard:cifar+trivialaugment+autoaugment:svhn",
        "standard:imagenet+randaugment:2,9",
    ],
)
def test_both_ways_of_a_chain_give_the_same_images(spec):
    chain = policies.get(spec)
    parts = policies.planned(chain)
    for seed, count in enumerate((5, 1, 3)):
        images = images_of_all_kinds(count, 3, (19, 24), seed).float() / 255
        one, other = seeded(seed), seeded(seed)
        planned = parts.plan(count, (19, 24), other)
        assert planned.shape == (count, parts.width)
        assert torch.equal(parts.carry_out(images, planned), chain(images, one))
        assert torch.equal(torch.rand(2, generator=one), torch.rand(2, generator=other))
    nested = Chain((chain, policies.get("none")))
    assert policies.planned(nested) is None  # "none" has nothing to plan
    assert policies.planned(Chain((chain, chain))).width == 2 * parts.width


def test_a_policy_of_other_making_has_no_parts():
    assert policies.planned(Halved()) is None
    assert policies.planned(Chain((RandAugment(3, 7), Halved()))) is None
    assert policies.planned(Chain()) is None


@pytest.mark.parametrize("name", FILES)
def test_both_ways_of_a_published_file_give_the_same_images(name):
    policy = policies.load(Path(shared_path("policies", f"{name}.json")))
    images = images_of_all_kinds(101, 3, (32, 32), 3).float() / 255
    for seed in range(4):
        assert_both_ways_agree(policy, images, seed)


@pytest.mark.parametrize("channels", [1, 3])
def test_both_ways_of_a_list_with_every_operation_give_the_same_images(channels):
    policy = every_operation()
    assert set(policy.operations) == set(NAMES)
    images = images_of_all_kinds(150, channels, (19, 24), 5).float() / 255
    for seed in range(8):
        assert_both_ways_agree(policy, images, seed)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_one_operation_alone_and_among_all_gives_the_same_images(name, size):
    for channels in (1, 3):
        images = images_of_all_kinds(30, channels, size, seed=1).float() / 255
        steps = random_steps(name, 30, seed=2)
        expected = apply(images, steps)
        for operations in ((name,), NAMES):
            planned = whole.plan(steps, operations, size)
            assert torch.equal(whole.carry_out(images, planned, operations, 1), expected)


def test_steps_of_all_operations_follow_each_other():
    images = images_of_all_kinds(300, 3, (19, 24), seed=5).float() / 255
    for seed in range(5):
        steps = mixed_steps(300, length=4, seed=seed)
        planned = whole.plan(steps, NAMES, (19, 24))
        assert torch.equal(whole.carry_out(images, planned, NAMES, 4), apply(images, steps))


def test_values_beyond_any_image_leave_nothing_of_it():
    images = images_of_all_kinds(4, 3, (8, 8), seed=13).float() / 255
    for name in ("ShearX", "ShearY", "TranslateX", "TranslateY"):
        value = torch.full((4, 1), 2.0**17, dtype=torch.float64)
        steps = Steps(torch.full((4, 1), NUMBER[name]), value, torch.zeros(4, 1, 2))
        planned = whole.plan(steps, (name,), (8, 8))
        assert whole.carry_out(images, planned, (name,), 1).max() == 0


class OnDevice(TorchDispatchMode):
    """Notes the calls, and refuses tensors that are not on the device "meta".

    That device stands for a GPU: it has no numbers, so that calls whose shapes depend on them
    fail, as they do when they are recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        result = call(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            assert not isinstance(leaf, Tensor) or leaf.device.type == "meta", call
        self.calls.append(str(call))
        return result


@pytest.mark.parametrize("spec", [*SPECS, "every operation"])
def test_the_second_part_needs_nothing_of_the_host_but_the_plan(spec, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # "meta" has none
    policy = every_operation() if spec == "every operation" else policies.get(spec)
    planned = policy.plan(6, (32, 32), seeded(0))
    assert planned.shape == (6, policy.width)
    assert (planned.dtype, planned.device.type) == (torch.int64, "cpu")
    for channels in (1, 3):
        images = torch.empty(6, channels, 32, 32, device="meta")
        sent = planned.to("meta")
        with OnDevice() as mode:
            result = policy.carry_out(images, sent)
        assert result.shape == (6, channels, *policy.size_after((32, 32)))
        assert mode.calls
