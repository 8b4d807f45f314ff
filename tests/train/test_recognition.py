"""The symmetry that networks find in images, and where it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import autodo
from autodo.config import Config
from autodo.data import Examples
from autodo.errors import InputError
from autodo.export.learned import Learned
from autodo.export.snippet import Learned as Loader
from autodo.hyper import dataset_model
from autodo.hyper.augment import Augment
from autodo.hyper.symmetry import SYMMETRIES, turn
from autodo.train import loop
from autodo.train.loop import Trainer
from autodo.train.run_folder import Metrics
from autodo.train.views import averaged

QUICK = Config(
    epochs=2,
    warmup_epochs=0,
    batch_size=32,
    hyper_batch_size=32,
    lr=0.05,
    belief_rounds=1,
    belief_epochs=20,
    symmetry="auto",
    device="cpu",
)


def images(kind: str, count: int, seed: int = 0) -> Examples:
    """Noise with a bright part whose place is the class, or that is brighter as a whole."""
    generator = torch.Generator().manual_seed(seed)
    pixels, labels = 60 * torch.rand(count, 1, 8, 8, generator=generator), torch.arange(count) % 2
    for image, label in zip(pixels, labels.tolist(), strict=True):
        half = slice(4, 8) if label else slice(0, 4)
        if kind == "side":
            image[..., half] += 120
        elif kind == "height":
            image[:, half] += 120
        else:
            image += 120 * label
    return Examples.from_arrays(pixels.to(torch.uint8), labels)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))


def trainer(kind: str, config: Config = QUICK) -> Trainer:
    model = network()
    head = model[-1]
    assert isinstance(head, nn.Linear)
    return Trainer(model, head, images(kind, 256), images(kind, 32, 1), config)


@pytest.mark.parametrize(
    ("kind", "symmetry"), [("side", "none"), ("height", "mirror"), ("brightness", "turns")]
)
def test_networks_find_the_symmetry_that_images_have(kind: str, symmetry: str) -> None:
    run = trainer(kind)
    said = [metrics for metrics in run.epochs() if "symmetry" in metrics]
    assert [metrics["fold"] for metrics in said] == [1, 2]
    assert said[-1]["symmetry"] == symmetry == SYMMETRIES[int(run.data.symmetry)]
    assert all((metrics["mirror"] > 0.9) == (kind != "side") for metrics in said)


@pytest.mark.parametrize(
    ("kind", "symmetry", "levels"),
    [
        ("height", "none", {0}),
        ("height", "mirror", {1}),
        ("height", "auto", {1}),
        ("side", "auto", {0}),
    ],
)
def test_beliefs_are_of_the_views_that_images_have(
    kind: str, symmetry: str, levels: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def spy(encode: Callable[[Tensor], Tensor], level: int) -> Callable[[Tensor], Tensor]:
        asked.append(level)
        return averaged(encode, level)

    monkeypatch.setattr(loop, "averaged", spy)
    list(trainer(kind, dataclasses.replace(QUICK, symmetry=symmetry)).epochs())
    assert len(asked) == 2  # one for each fold
    assert set(asked) == levels


def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The level of every batch, in order."""
    levels: list[int] = []

    def spy(images: Tensor, level: int, generator: torch.Generator | None = None) -> Tensor:
        levels.append(level)
        return turn(images, level, generator)

    for module in (loop, dataset_model):
        monkeypatch.setattr(module, "turn", spy)
    return levels


def test_it_is_used_by_all_networks_after_those_that_found_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = trainer("height", dataclasses.replace(QUICK, belief_rounds=2))
    levels = seen(monkeypatch)
    for metrics in run.epochs():
        first = metrics["epoch"] <= 40  # two folds of twenty epochs
        assert set(levels) == ({0} if first else {1})
        levels.clear()


def test_one_that_is_given_is_used_from_the_first_and_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = trainer("side", dataclasses.replace(QUICK, symmetry="flips"))
    levels = seen(monkeypatch)
    assert not any("symmetry" in metrics for metrics in run.epochs())
    assert set(levels) == {2}


@pytest.mark.parametrize(
    "changes",
    [
        {"symmetry": "none"},
        {"learn_augment": False},
        {"augment": "none"},
        {"belief_folds": 0},
    ],
    ids=str,
)
def test_nobody_is_asked_where_it_is_not_wanted(changes: dict[str, object]) -> None:
    run = trainer("height", dataclasses.replace(QUICK, **changes))  # type: ignore[arg-type]
    assert not any("symmetry" in metrics for metrics in run.epochs())
    assert int(run.data.symmetry) == 0


def test_where_there_is_none_a_run_is_what_it_would_be_without_the_question() -> None:
    asked, plain = (
        trainer("side", dataclasses.replace(QUICK, symmetry=symmetry))
        for symmetry in ("auto", "none")
    )
    for run in (asked, plain):
        list(run.epochs())
    for a, b in zip(asked.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(asked.data.table("label").rows, plain.data.table("label").rows)


@pytest.mark.parametrize(
    ("shares", "symmetries"),
    [
        ((0.97, 0.97), ["none", "mirror"]),
        ((0.82, 1.02), ["none", "none"]),
        ((0.99, 0.4), ["mirror", "none"]),
    ],
)
def test_networks_judge_together(
    shares: tuple[float, float], symmetries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that are not sure may be together, and one that is may be refuted."""
    answers = iter(shares)

    def recognise(*_: object) -> Metrics:
        return {"mirror": next(answers), "mirror_error": 0.04, "mirror_lost": False}

    monkeypatch.setattr(loop, "recognise", recognise)
    run = trainer("height", dataclasses.replace(QUICK, belief_epochs=1, epochs=1))
    said = [metrics["symmetry"] for metrics in run.epochs() if "symmetry" in metrics]
    assert said == symmetries
    assert SYMMETRIES[int(run.data.symmetry)] == symmetries[-1]


def test_a_run_that_goes_on_knows_it(tmp_path: Path) -> None:
    """Between the two networks that are asked, and after both."""
    whole = trainer("height")
    list(whole.epochs())
    for stop in (30, 41):
        first, second = trainer("height"), trainer("height")
        epochs = first.epochs()
        for _ in range(stop):
            next(epochs)
        torch.save(first.state(), tmp_path / "state.pt")
        second.load(torch.load(tmp_path / "state.pt", weights_only=True))
        list(second.epochs())
        for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_what_was_found_is_kept_and_used_by_what_is_trained_on_it(tmp_path: Path) -> None:
    train, trusted = images("height", 256), images("height", 32, 1)
    run = tmp_path / "run"
    autodo.fit(network(), train, trusted, config=QUICK, out=run, progress=False)
    learned = Learned.load(run)
    assert learned.symmetry == "mirror"
    assert learned.config(QUICK).symmetry == "mirror"
    assert not learned.config(QUICK).finds_symmetry


def test_the_loader_of_an_export_turns_images_too(tmp_path: Path) -> None:
    rows = Augment("affine").initial_row().expand(50, -1).clone()
    rows[:, len(Augment("affine").operations) :] = -40.0  # no gate opens
    labels = torch.zeros(50, dtype=torch.int64)
    Learned(
        labels=labels, num_classes=2, augment_rows=rows, augment="affine", symmetry="mirror"
    ).save(tmp_path)
    batch = torch.rand(50, 1, 8, 8)
    loader = Loader(tmp_path / "lambda.safetensors")
    seen = loader.augment(batch, torch.arange(50), torch.Generator().manual_seed(0))
    same, mirrored = ((seen - x).abs().amax((1, 2, 3)) < 1e-5 for x in (batch, batch.flip(-1)))
    assert bool((same ^ mirrored).all())
    assert 10 < int(mirrored.sum()) < 40


def test_it_is_part_of_the_augmentation() -> None:
    with pytest.raises(InputError, match="symmetry is 'mirror' and augment is 'none'"):
        Config(symmetry="mirror", augment="none")
    assert Config.paper().symmetry == "none"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_images_are_turned_as_on_the_host() -> None:
    found = []
    for device in ("cpu", "cuda"):
        run = trainer("side", dataclasses.replace(QUICK, symmetry="turns", device=device))
        batches = run.prepared(
            run.points.batches(32, seed=3, drop_last=True), torch.Generator().manual_seed(1)
        )
        found.append(torch.cat([images.cpu() for images, _, _ in batches]))
    torch.testing.assert_close(*found, rtol=0, atol=1e-6)  # bytes become floats there and here
