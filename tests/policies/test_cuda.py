"""On a GPU: the images of the CPU, and no waiting. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from autodo import policies

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SPECS = [
    "standard:svhn",
    "standard:cifar",
    "randaugment:3,7",
    "randaugment:3,15,colour",
    "autoaugment:cifar",
    "autoaugment:svhn",
    "autoaugment:imagenet",
    "trivialaugment",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("channels", [1, 3])
def test_gpu_images_are_those_of_the_cpu(spec, channels):
    images = torch.randint(256, (256, channels, 32, 32), generator=Generator().manual_seed(0)) / 255
    policy = policies.get(spec)
    here = policy(images, Generator().manual_seed(1))
    there = policy(images.cuda(), Generator().manual_seed(1)).cpu()
    # Levels are equal; dividing them by 255 may differ in the last bit.
    torch.testing.assert_close(there, here, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_gpu_resized_images_are_those_of_the_cpu(precision):
    images = torch.randint(256, (32, 3, 256, 301), generator=Generator().manual_seed(0)) / 255
    policy = policies.get("standard:imagenet")
    here = policy(images, Generator().manual_seed(1))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)  # "high" takes products in TF32
    try:
        there = policy(images.cuda(), Generator().manual_seed(1)).cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(there, here, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spec", [*SPECS, "standard:imagenet"])
def test_gpu_both_ways_of_a_policy_give_the_same_images(spec):
    policy = policies.get(spec)
    for seed, channels in ((0, 1), (1, 3), (2, 3)):
        levels = torch.randint(256, (65, channels, 32, 32), generator=Generator().manual_seed(seed))
        images = (levels / 255).cuda()
        plan = policy.plan(65, (32, 32), Generator().manual_seed(seed)).cuda()
        called = policy(images, Generator().manual_seed(seed))
        assert torch.equal(policy.carry_out(images, plan), called)


@pytest.mark.parametrize("spec", [*SPECS, "standard:imagenet"])
def test_gpu_is_not_waited_for_by_any_policy(spec):
    images = torch.rand(64, 3, 32, 32, device="cuda")
    policy = policies.get(spec)
    policy(images, Generator().manual_seed(0))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for seed in range(5):
            policy(images, Generator().manual_seed(seed))
    finally:
        torch.cuda.set_sync_debug_mode("default")
