"""Config: what it refuses, and that TOML carries all of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autodo.config import Config
from autodo.errors import InputError
from autodo.implicit import ConjugateGradient, Identity, Neumann


def test_toml_carries_every_field() -> None:
    config = Config.paper(
        augment="affine+colour", shared_augment=True, learn_weights=False, hyper_every=3, seed=7,
        device="cuda:1", precision="bfloat16", solver="cg", solver_damping=0.5, num_workers=2,
    )  # fmt: skip
    assert Config.from_toml(config.to_toml()) == config
    assert Config.from_toml(Config().to_toml()) == Config()


def test_a_whole_number_will_do_for_a_float() -> None:
    assert Config.from_toml("lr = 1").lr == 1.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": 1.5}, "type int"),
        ({"epochs": True}, "type int"),
        ({"lr": -0.1}, "lr is -0.1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": "high"}, "type float"),
        ({"loss": "kll"}, "kl, "),
        ({"augment": "affine+color"}, "colour, none"),
        ({"solver": "newton"}, "neumann"),
        ({"solver_alpha": "big"}, "alpha"),
        ({"solver_steps": -1}, "steps"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"momentum": 1.0}, "momentum"),
        ({"belief_folds": 1}, "belief_folds"),
        ({"precision": "float16"}, "bfloat16"),
    ],
)
def test_what_cannot_be_is_refused_at_construction(values: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Config(**values)  # type: ignore[arg-type]


def test_unknown_fields_broken_toml_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="epoch'"):
        Config.from_dict({"epoch": 3})
    with pytest.raises(InputError, match="not TOML"):
        Config.from_toml("epochs = ")
    with pytest.raises(InputError, match="there is no configuration file"):
        Config.load(tmp_path / "none.toml")


def test_a_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(Config(epochs=3).to_toml())
    assert Config.load(tmp_path / "c.toml") == Config(epochs=3)


def test_the_papers_figures() -> None:
    """Appendix A of the paper."""
    paper = Config.paper()
    assert (paper.epochs, paper.batch_size, paper.hyper_epochs) == (200, 256, 150)
    assert (paper.lambda_optimizer, paper.label_lr, paper.loss) == (
        "rmsprop",
        0.05,
        "symmetric_kl",
    )
    assert paper.epochs_before == 0
    assert not paper.trusted_joins_training


def test_solvers() -> None:
    assert isinstance(Config().make_solver(), Neumann)
    assert isinstance(Config(solver="cg").make_solver(), ConjugateGradient)
    assert isinstance(Config(solver="identity").make_solver(), Identity)


def test_lambda_is_learned_in_three_quarters_of_the_passes_over_all_points() -> None:
    assert Config(epochs=60).hyper_epochs == 45
    assert Config(epochs=60, start_epoch=50).hyper_epochs == 10
    assert Config(epochs=60, start_epoch=70).hyper_epochs == 0


def test_learns_names_the_tables() -> None:
    assert Config().learns == ("augment", "weight", "label")
    assert Config(augment="none", learn_weights=False).learns == ("label",)


def test_every_field_is_explained() -> None:
    """A docstring stands under each field."""
    source = Path(__import__("autodo.config", fromlist=["x"]).__file__).read_text()
    for field in dataclasses.fields(Config):
        after = source.split(f"    {field.name}: ")[1].splitlines()[1]
        assert after.strip().startswith('"""'), field.name
