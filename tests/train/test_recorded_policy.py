"""Recorded policies: the images of the policy on every stream, and no memory kept after it."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Generator, Tensor

from autodo import policies
from autodo.config import Config
from autodo.experiment.demo import digits_model
from autodo.experiment.task import digits_task
from autodo.policies import RandAugment
from autodo.train import recorded_policy
from autodo.train.ahead import ahead
from autodo.train.loop import Trainer
from autodo.train.recorded import WARM_UP
from autodo.train.recorded_policy import RecordedPolicy

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SPECS = [
    "standard:svhn",
    "standard:cifar",
    "standard:imagenet",
    "randaugment:3,7",
    "randaugment:3,7,colour+standard:svhn",
    "autoaugment:cifar",
    "autoaugment:imagenet+standard:cifar",
    "trivialaugment",
]
CHAIN = "randaugment:3,7,colour+standard:svhn"
BATCH = 24
CALLS = WARM_UP + 5


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def batches(count: int, size: int = BATCH, channels: int = 3) -> Iterator[Tensor]:
    for k in range(count):
        levels = torch.randint(256, (size, channels, 32, 32), generator=seeded(k))
        yield levels.float() / 255


def recorded(spec: str, device: str = "cuda", **options: bool) -> RecordedPolicy:
    return RecordedPolicy(policies.get(spec), torch.device(device), sizes={BATCH}, **options)


def graphs(policy: RecordedPolicy) -> int:
    return sum(step._graph is not None for step in policy._recorded.values())


@pytest.mark.parametrize("spec", ["none", CHAIN])
def test_on_a_cpu_it_is_the_policy(spec: str) -> None:
    policy, ours, theirs = recorded(spec, "cpu"), seeded(0), seeded(0)
    for images in batches(CALLS):
        assert torch.equal(policy(images, ours), policies.get(spec)(images, theirs))
    assert repr(policy) == spec
    assert not policy._recorded


@needs_gpu
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("channels", [1, 3])
def test_gpu_a_recorded_policy_gives_the_images_of_the_policy(spec: str, channels: int) -> None:
    size = 8 if "standard:imagenet" in spec else BATCH  # larger ones are not recorded
    plain = policies.get(spec)
    policy = RecordedPolicy(plain, torch.device("cuda"), sizes={size})
    ours, theirs = seeded(0), seeded(0)
    for images in batches(CALLS, size, channels):
        images = images.cuda()
        before = images.clone()
        assert torch.equal(policy(images, ours), plain(images, theirs))
        assert torch.equal(images, before)
    assert graphs(policy) == 1
    assert torch.equal(torch.rand(3, generator=ours), torch.rand(3, generator=theirs))


@needs_gpu
def test_gpu_other_sizes_and_larger_images_are_augmented_by_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, policy = policies.get(CHAIN), recorded(CHAIN)
    ours, theirs = seeded(0), seeded(0)
    for size in [BATCH] * CALLS + [7, BATCH, 48, BATCH] * 2:
        (images,) = batches(1, size)
        assert torch.equal(policy(images.cuda(), ours), plain(images.cuda(), theirs))
    assert (len(policy._recorded), graphs(policy)) == (1, 1)
    monkeypatch.setattr(recorded_policy, "LARGEST", BATCH * 3 * 32 * 32 - 1)
    large = recorded(CHAIN)
    for images in batches(CALLS):
        assert torch.equal(large(images.cuda(), ours), plain(images.cuda(), theirs))
    assert not large._recorded


@needs_gpu
def test_gpu_nothing_is_recorded_when_it_is_switched_off() -> None:
    plain, policy = policies.get(CHAIN), recorded(CHAIN, enabled=False)
    ours, theirs = seeded(0), seeded(0)
    for images in batches(CALLS):
        assert torch.equal(policy(images.cuda(), ours), plain(images.cuda(), theirs))
    assert not policy._recorded


@needs_gpu
def test_gpu_batches_ahead_and_batches_between_them_do_not_mix() -> None:
    """As in the outer loop: one policy prepares on a stream of its own and on that of the steps."""
    plain, policy = policies.get(CHAIN), recorded(CHAIN)
    device, ours, between = torch.device("cuda"), seeded(0), seeded(1)
    given = [images.to(device) for images in batches(4 * CALLS)]

    def prepare() -> Iterator[tuple[Tensor]]:
        for images in given:
            yield (policy(images, ours),)

    results, others = [], []
    for k, (images,) in enumerate(ahead(prepare(), device)):
        torch.cuda._sleep(1_000_000)  # the step before is still running
        if k % 3 == 0:
            others.append(policy(given[k], between))
        results.append(images)
        torch.cuda._sleep(1_000_000)
    torch.cuda.synchronize()
    assert graphs(policy) == 1
    theirs = seeded(0)
    for images, result in zip(given, results, strict=True):
        assert torch.equal(result, plain(images, theirs))
    theirs = seeded(1)
    for images, result in zip(given[::3], others, strict=True):
        assert torch.equal(result, plain(images, theirs))


@needs_gpu
def test_gpu_replaying_does_not_wait_for_the_device() -> None:
    policy, generator = recorded(CHAIN), seeded(0)
    (images,) = (batch.cuda() for batch in batches(1))
    for _ in range(CALLS):
        policy(images, generator)
    assert graphs(policy) == 1
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            policy(images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
def test_gpu_the_memory_of_a_recording_goes_with_the_policy() -> None:
    (images,) = (batch.cuda() for batch in batches(1))
    for _ in range(2):  # the first time loads kernels and the like
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        policy = recorded(CHAIN)
        for seed in range(CALLS):
            policy(images, seeded(seed))
        assert graphs(policy) == 1
        del policy
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


@dataclasses.dataclass(frozen=True, repr=False)
class Waits(RandAugment):
    """A policy that asks the device for a number while it is carried out."""

    def carry_out(self, images: Tensor, plan: Tensor) -> Tensor:
        assert images.sum().item() >= 0
        return super().carry_out(images, plan)


@needs_gpu
def test_gpu_a_policy_that_cannot_be_recorded_still_works() -> None:
    plain = Waits(2, 9)
    policy = RecordedPolicy(plain, torch.device("cuda"), sizes={BATCH})
    ours, theirs = seeded(0), seeded(0)
    given = [images.cuda() for images in batches(CALLS)]
    with pytest.warns(UserWarning, match="cannot be recorded"):
        results = [policy(images, ours) for images in given]
    for images, result in zip(given, results, strict=True):
        assert torch.equal(result, plain(images, theirs))
    assert graphs(policy) == 0


@needs_gpu
def test_gpu_trainers_prepare_the_same_batches_with_and_without_recordings() -> None:
    task = digits_task(noise=0.4)
    config = Config(epochs=1, batch_size=64, hyper_batch_size=32, policy=CHAIN, device="cuda")
    trainers = []
    for cuda_graphs in (True, False, True):
        model = digits_model(0)
        config = dataclasses.replace(config, cuda_graphs=cuda_graphs)
        trainers.append(Trainer(model, model.fc, task.train, task.trusted, config))
    for size in (64, 32):
        passes = [
            run.prepared(run.points.batches(size, seed=3, drop_last=True), seeded(size))
            for run in trainers
        ]
        for first, *others in zip(*passes, strict=True):
            for other in others:
                assert torch.equal(first[0], other[0])
                assert torch.equal(first[1], other[1])
    assert [graphs(run.policy) for run in trainers] == [2, 0, 2]
