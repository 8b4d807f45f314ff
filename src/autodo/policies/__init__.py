"""Augmentation by fixed rules: standard, RandAugment, AutoAugment, TrivialAugment, policy files.

Policies work on whole batches on their device and repeat by the seed of a generator. Their
operations equal Pillow's, to the grey level: nearest pixel, black outside the image, as in the
published policies.

    policy = policies.get("randaugment:3,7+standard:svhn")
    images = policy(images, torch.Generator().manual_seed(0))      # (B, C, H, W) in [0, 1]
"""

from __future__ import annotations

from autodo.policies.files import load
from autodo.policies.policy import Chain, Planned, Policy, planned
from autodo.policies.randaugment import RandAugment
from autodo.policies.spec import get
from autodo.policies.standard import Standard, for_testing
from autodo.policies.subpolicies import Entry, SubPolicies
from autodo.policies.trivialaugment import TrivialAugment

__all__ = [
    "Chain",
    "Entry",
    "Planned",
    "Policy",
    "RandAugment",
    "Standard",
    "SubPolicies",
    "TrivialAugment",
    "for_testing",
    "get",
    "load",
    "planned",
]
