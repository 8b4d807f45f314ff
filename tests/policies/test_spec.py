"""Policies from text and from files, and what is said about wrong ones."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
import torch
from shared_files import shared_path
from torch import Generator

from autodo import policies
from autodo.errors import InputError
from autodo.policies import Chain, RandAugment, Standard, TrivialAugment

TEXTS = [
    "none",
    "standard:svhn",
    "standard:cifar",
    "standard:imagenet",
    "randaugment:3,7",
    "randaugment:2,7.5",
    "randaugment:3,7,colour",
    "autoaugment:svhn",
    "autoaugment:cifar",
    "autoaugment:imagenet",
    "trivialaugment",
    "randaugment:3,7,colour+standard:svhn",
    "standard:cifar+trivialaugment+autoaugment:svhn",
]

CONTENT = {
    "name": "mine",
    "ranges": {"Rotate": [-30, 30], "Color": [0.1, 1.9]},
    "subpolicies": [
        [["Rotate", 0.7, 0.75], ["Invert", 0.1, 0.3]],
        [["Color", 1, 0.5]],
        [["Flip", 0.5, 0], ["Rotate", 0.0, 1.0]],
    ],
}


@pytest.fixture
def policy_file(tmp_path):
    """Writes a policy file: CONTENT with one place changed, or a text."""

    def write(place: tuple = (), value: object = None, *, name: str = "policy.json"):
        content = copy.deepcopy(CONTENT)
        if place:
            inside = content
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) and not place else json.dumps(content))
        return path

    return write


def error_of(spec: str) -> str:
    with pytest.raises(InputError) as caught:
        policies.get(spec)
    return str(caught.value)


@pytest.mark.parametrize("text", TEXTS)
def test_repr_is_the_text(text):
    policy = policies.get(text)
    assert repr(policy) == text
    assert policies.get(repr(policy)) == policy
    assert isinstance(policy, policies.Policy)


def test_texts_name_what_they_say():
    assert policies.get("randaugment:3,7,colour") == RandAugment(3, 7, geometric=False)
    assert policies.get("none+standard:cifar100") == Standard("cifar")
    assert policies.get("autoaugment:cifar10") == policies.get("autoaugment:cifar")
    chain = policies.get("trivialaugment + standard:svhn")
    assert chain == Chain((TrivialAugment(), Standard("svhn")))


def test_policies_can_be_pickled():
    for text in TEXTS:
        policy = policies.get(text)
        assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_chain_applies_its_policies_in_order():
    images = torch.rand(8, 3, 32, 32)
    first, second = policies.get("randaugment:1,9"), policies.get("standard:cifar")
    generator = Generator().manual_seed(0)
    expected = second(first(images, generator), generator)
    together = policies.get("randaugment:1,9+standard:cifar")
    assert torch.equal(together(images, Generator().manual_seed(0)), expected)


def test_none_returns_the_images_themselves():
    images = torch.rand(2, 7, 4, 4)  # any channels
    assert policies.get("none")(images, Generator()) is images


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("randaugmnt:3,7", "did you mean 'randaugment'"),
        ("RandAugment", "did you mean 'randaugment'"),
        ("mixup", "standard, randaugment, autoaugment"),
        ("standard", "choose one of 'svhn', 'cifar', 'imagenet'"),
        ("standard:shvn", "did you mean 'svhn'"),
        ("autoaugment:cifer", "did you mean 'cifar'"),
        ("randaugment", 'write "randaugment:3,7"'),
        ("randaugment:3", 'write "randaugment:3,7"'),
        ("randaugment:3,7,color", "',colour'"),
        ("randaugment:0,7", "n counts operations from 1"),
        ("randaugment:3,31", "from 0 to 30"),
        ("trivialaugment:wide", "takes nothing"),
        ("none:1", "takes nothing"),
        ("file", "takes a path"),
        ("", "empty part"),
        ("none+", "empty part"),
        ("standard:svhn+ +none", "empty part"),
    ],
)
def test_a_wrong_text_is_explained(spec, words):
    assert words in error_of(spec)


def test_a_file_is_read_by_path_or_by_spec(policy_file):
    path = policy_file()
    policy = policies.load(path)
    rotate, invert = policy.subpolicies[0]
    assert (rotate.operation, rotate.probability, rotate.value) == ("Rotate", 0.7, 15.0)
    assert rotate.signed
    assert (invert.operation, invert.value, invert.signed) == ("Invert", 0.0, False)
    for text in (str(path), f"file:{path}", repr(policy)):
        assert policies.get(text) == policy


def test_a_path_with_plus_signs_makes_the_round_trip(policy_file):
    path = policy_file(name="c++ and a+b.json")
    policy = policies.load(path)
    assert policies.get(repr(policy)) == policy
    both = policies.get(f"{policy!r}+standard:svhn")
    assert both == Chain((policy, Standard("svhn")))
    assert policies.get(repr(both)) == both


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("subpolicies", 0, 1, 0), "Invrt", 'subpolicies[0][1]: there is no operation "Invrt"'),
        (("subpolicies", 0, 1, 0), "equalise", "did you mean 'Equalize'"),
        (("subpolicies", 2, 0, 0), 7, "subpolicies[2][0]: there is no operation 7"),
        (("subpolicies", 2, 0, 0), ["Flip"], "subpolicies[2][0]: there is no operation"),
        (("subpolicies", 0, 0, 1), 1.2, "subpolicies[0][0]: the probability 1.2 of Rotate is"),
        (("subpolicies", 0, 0, 1), -0.1, "outside [0, 1]"),
        (("subpolicies", 0, 0, 1), True, "the probability true of Rotate"),
        (("subpolicies", 1, 0, 2), 5, "subpolicies[1][0]: the level 5 of Color is outside"),
        (("subpolicies", 1, 0, 2), None, "the level null of Color"),
        (("subpolicies", 1, 0, 2), float("nan"), "the level NaN of Color"),
        (("subpolicies", 1, 0, 0), "Cutout", "subpolicies[1][0]: Cutout has no range"),
        (("subpolicies", 1, 0), ["Color", 1], 'subpolicies[1][0]: ["Color", 1] is no operation'),
        (("subpolicies", 1), [], "subpolicies[1]: it is an empty list"),
        (("subpolicies", 1), "Color", "subpolicies[1]: it is a text"),
        (("subpolicies",), {}, "subpolicies: it is an object"),
        (("subpolicies",), [], "subpolicies: it is an empty list"),
        (("ranges",), [], "ranges: it is an empty list"),
        (("ranges", "Rotat"), [0, 1], 'ranges.Rotat: there is no operation "Rotat"'),
        (("ranges", "Rotate"), [30], "ranges.Rotate: [30] is no range"),
        (("ranges", "Rotate"), [0, float("inf")], "ranges.Rotate: [0, Infinity] is no range"),
        (("ranges", "Rotate"), ["a", "b"], "is no range"),
    ],
)
def test_a_wrong_place_in_a_file_is_named(policy_file, place, value, words):
    path = policy_file(place, value)
    message = error_of(str(path))
    assert message.startswith(f"{path}: ")
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"ranges": {},\n "subpolicies": [,]}', "line 2, column 18: this is not JSON"),
        ("", "line 1, column 1: this is not JSON"),
        ("[]", "the file holds an empty list, not an object"),
        ("{}", "subpolicies: it is missing"),
    ],
)
def test_a_malformed_file_is_explained(policy_file, text, words):
    assert words in error_of(str(policy_file((), text)))


def test_a_missing_or_unreadable_file_is_named(tmp_path):
    assert "does not exist" in error_of(f"file:{tmp_path / 'nowhere.json'}")
    (tmp_path / "folder.json").mkdir()
    assert "cannot be read" in error_of(str(tmp_path / "folder.json"))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    assert "cannot be read" in error_of(str(tmp_path / "bytes.json"))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("dada-cifar10", 25),
        ("dada-cifar100", 25),
        ("dada-imagenet", 25),
        ("dada-svhn", 25),
        ("faa-cifar10", 493),
        ("faa-imagenet", 498),
        ("faa-svhn", 497),
    ],
)
def test_the_published_policy_files_load_and_run(name, count):
    path = shared_path("policies", f"{name}.json")
    policy = policies.get(f"file:{path}")
    assert len(policy.subpolicies) == count
    content = json.loads(path.read_text())
    for given, read in zip(content["subpolicies"], policy.subpolicies, strict=True):
        for (operation, probability, level), entry in zip(given, read, strict=True):
            low, high = content["ranges"][operation]
            assert (entry.operation, entry.probability) == (operation, probability)
            if operation not in ("AutoContrast", "Equalize", "Invert"):
                assert entry.value == pytest.approx(low + level * (high - low))
    images = torch.randint(256, (64, 3, 32, 32)).float() / 255
    result = policy(images, Generator().manual_seed(0))
    assert result.shape == images.shape
    assert not torch.equal(result, images)
