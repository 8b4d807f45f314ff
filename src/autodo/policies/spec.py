"""Policies as text, the way a configuration or a command line names them.

    none                            the images as they are
    standard:DATASET                crop, flip and erasing of svhn, cifar or imagenet
    randaugment:N,M                 RandAugment with N operations of magnitude M
    randaugment:N,M,colour          the same without rotation, shears and translations
    autoaugment:DATASET             the published policy for cifar, svhn or imagenet
    trivialaugment                  TrivialAugment, wide
    file:PATH, or PATH.json         a policy file

Several are joined with "+" and applied in that order. The published order is the policy first, then
the standard augmentation: "randaugment:3,7+standard:svhn". A "+" that belongs to a path is written
twice. cifar10 and cifar100 are understood as cifar. ``repr`` of a policy is its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from autodo.errors import InputError
from autodo.policies import autoaugment
from autodo.policies.files import load
from autodo.policies.names import nearest
from autodo.policies.policy import Chain, Policy
from autodo.policies.randaugment import RandAugment
from autodo.policies.standard import RECIPES, Standard
from autodo.policies.trivialaugment import TrivialAugment

EXAMPLES = {
    "none": "none",
    "standard": "standard:cifar",
    "randaugment": "randaugment:3,7",
    "autoaugment": "autoaugment:svhn",
    "trivialaugment": "trivialaugment",
    "file": "file:policy.json",
}
"""Every kind of policy with an example."""

DATASETS = {"cifar10": "cifar", "cifar100": "cifar"}
"""Datasets that share what was published for one name."""


def get(spec: str) -> Policy:
    """The policy that ``spec`` names; the grammar is at the top of this module.

    >>> get("randaugment:3,7,colour+standard:svhn")
    randaugment:3,7,colour+standard:svhn
    >>> get("none").policies
    ()
    """
    parts = [part.strip() for part in _PART.findall(spec)]
    if not spec or "+".join(_PART.findall(spec)) != spec or not all(parts):
        raise InputError(
            f"the policy {spec!r} has an empty part",
            "policies are joined with one '+' between each two",
            f'write for example "{EXAMPLES["randaugment"]}+{EXAMPLES["standard"]}", or "none"',
        )
    policies = tuple(map(_one, (part for part in parts if part != "none")))
    return policies[0] if len(policies) == 1 else Chain(policies)


_PART = re.compile(r"(?:[^+]|\+\+)+")


def _one(part: str) -> Policy:
    name, colon, argument = part.partition(":")
    if name == "file" and colon:
        return load(argument.replace("++", "+"))
    if part.lower().endswith(".json"):
        return load(part.replace("++", "+"))
    if name == "standard":
        return Standard(_dataset(part, argument, RECIPES))
    if name == "autoaugment":
        return autoaugment.PUBLISHED[_dataset(part, argument, autoaugment.PUBLISHED)]
    if name == "randaugment":
        return _randaugment(part, argument)
    if part == "trivialaugment":
        return TrivialAugment()
    if name in EXAMPLES:
        raise InputError(
            f"the policy {part!r} cannot be read",
            f"{name} takes {'a path' if name == 'file' else 'nothing'} after its name",
            f'write "{EXAMPLES[name]}"',
        )
    raise InputError(
        f"there is no policy {part!r}",
        f"policies are {', '.join(EXAMPLES)}, and paths that end in .json",
        nearest(name, EXAMPLES),
    )


def _dataset(part: str, argument: str, known: Iterable[str]) -> str:
    dataset = DATASETS.get(argument, argument)
    if dataset not in known:
        raise InputError(
            f"the policy {part!r} names no known dataset",
            "it was published for certain datasets, and one of them follows the colon",
            nearest(argument, known),
        )
    return dataset


def _randaugment(part: str, argument: str) -> RandAugment:
    numbers = re.fullmatch(r"(\d+),(\d+(?:\.\d+)?)(,colour)?", argument)
    if numbers is None:
        raise InputError(
            f"the policy {part!r} cannot be read",
            "after randaugment: come the number of operations and their magnitude, and ',colour' "
            "to leave out what moves pixels",
            'write "randaugment:3,7" or "randaugment:3,7,colour"',
        )
    n, m, colour = numbers.groups()
    return RandAugment(int(n), float(m), geometric=colour is None)
