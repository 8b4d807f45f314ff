"""Appendix A: what each method learns, and the figures of each data set."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_data import write_policy

from autodo import policies
from autodo.config import Config
from autodo.errors import InputError
from autodo.experiment.paper.cells import CELLS, METHODS, Cell, find
from autodo.experiment.paper.protocol import FULL, PROTOCOLS, SMALL, policy, settings

IDS = [f"{cell.table}:{cell.folder}" for cell in CELLS]


@pytest.mark.parametrize("cell", CELLS, ids=IDS)
def test_what_all_cells_share(cell: Cell) -> None:
    config = settings(cell)
    assert (config.epochs, config.batch_size, config.warmup_epochs) == (200, 256, 5)
    assert (config.momentum, config.weight_decay) == (0.9, 1e-4)
    assert (config.solver, config.solver_steps, config.lambda_optimizer) == (
        "neumann",
        5,
        "rmsprop",
    )
    assert (config.smoothing, config.magnitude, config.hyper_every) == (0.1, 5.0, 1)
    assert config.lambda_schedule
    # Nothing that the paper does not have.
    assert not config.trusted_joins_training
    assert (config.belief_folds, config.prior_adjustment) == (0, 0.0)


@pytest.mark.parametrize("cell", CELLS, ids=IDS)
def test_what_differs_between_data_sets(cell: Cell) -> None:
    config = settings(cell)
    imagenet = cell.dataset == "imagenet"
    assert config.lr == (0.005 if cell.dataset == "svhn" else 0.1)
    rates = {config.augment_lr, config.weight_lr, config.label_lr}
    assert rates == {0.01 if imagenet else 0.05}
    assert config.start_epoch == (cell.start_epoch or (100 if imagenet else 50))
    assert config.hyper_batch_size == (128 if imagenet else 256)
    assert PROTOCOLS[cell.dataset].network == ("resnet18" if imagenet else "wrn-28-10")


@pytest.mark.parametrize(
    ("method", "learns", "shared"),
    [
        ("baseline", (), False),
        ("raa", (), False),
        ("faa", (), False),
        ("dada", (), False),
        ("sha", ("augment",), True),
        ("a", ("augment",), False),
        ("aw", ("augment", "weight"), False),
        ("aws", ("augment", "weight", "label"), False),
    ],
)
def test_what_each_method_learns(method: str, learns: tuple[str, ...], shared: bool) -> None:
    config = settings(find("cifar10", "10-0.1", method))
    assert config.learns == learns
    assert config.shared_augment is shared
    assert config.augment == ("affine" if learns else "none")


def test_the_symmetric_loss_is_for_distorted_sets() -> None:
    losses = {d: settings(find("svhn", d, "aws")).loss for d in ("1-0.0", "100-0.0", "1-0.1")}
    assert losses == {"1-0.0": "kl", "100-0.0": "symmetric_kl", "1-0.1": "symmetric_kl"}


@pytest.mark.parametrize(
    ("dataset", "baseline", "raa", "aws"),
    [
        ("svhn", "standard:svhn", "randaugment:3,7", "randaugment:3,7,colour"),
        ("cifar10", "standard:cifar", "randaugment:3,15", "randaugment:1,15,colour"),
        ("cifar100", "standard:cifar", "randaugment:3,15", "randaugment:1,15,colour"),
        ("imagenet", "standard:imagenet", "randaugment:2,9", "randaugment:2,9,colour"),
    ],
)
def test_policies_come_before_the_standard_augmentation(
    dataset: str, baseline: str, raa: str, aws: str
) -> None:
    distortion = "10-0.0" if dataset == "imagenet" else "1-0.0"
    wanted = {"baseline": baseline, "raa": f"{raa}+{baseline}", "aws": f"{aws}+{baseline}"}
    for method, spec in wanted.items():
        assert policy(find(dataset, distortion, method)) == spec
        assert repr(policies.get(spec)) == spec


@pytest.mark.parametrize("method", ["faa", "dada"])
def test_searched_policies_are_read_from_their_file(method: str, tmp_path: Path) -> None:
    file = write_policy(tmp_path / "with+plus.json")
    spec = policy(find("svhn", "1-0.0", method), policy_file=file)
    assert spec.endswith("+standard:svhn")
    assert len(policies.get(spec).policies) == 2  # type: ignore[attr-defined]


def test_a_searched_policy_without_a_file(tmp_path: Path) -> None:
    cell = find("svhn", "1-0.0", "faa")
    with pytest.raises(InputError, match="faa needs a policy file") as caught:
        policy(cell)
    assert "--policy-file" in caught.value.cure
    with pytest.raises(InputError, match="no policy file"):
        policy(cell, policy_file=tmp_path / "nowhere.json")


def test_small_scale_keeps_the_order_of_events_and_what_is_learned() -> None:
    for method in METHODS:
        cell = find("svhn", "100-0.1", method)
        small, full = settings(cell, scale=SMALL), settings(cell, scale=FULL)
        assert small.learns == full.learns
        assert 0 < small.hyper_epochs < small.epochs < 20
    learned = [
        settings(find("svhn", "100-0.1", name), scale=SMALL).hyper_epochs
        for name in ("aws-E10", "aws", "aws-E150", "aws-E190")
    ]
    assert learned == sorted(set(learned), reverse=True)


def test_imagenet_in_small_is_not_cropped_to_more_than_it_has() -> None:
    spec = policy(find("imagenet", "10-0.0", "baseline"), scale=SMALL)
    assert spec == "standard:cifar"


def test_settings_survive_toml() -> None:
    config = settings(find("svhn", "100-0.1", "aws"), seed=3, policy="standard:svhn")
    assert Config.from_toml(config.to_toml()) == config
    assert config.seed == 3
