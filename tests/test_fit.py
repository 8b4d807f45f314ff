"""``autodo.fit`` from Python: any model and dataset, what is refused, and what a seed settles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import autodo
from autodo.data import Examples, load_digits
from autodo.errors import InputError, NumericalError, RunFolderError
from autodo.train.hyper_optimizer import HyperOptimizer
from autodo.train.phases import plan

QUICK = autodo.Config(epochs=2, batch_size=64, device="cpu", warmup_epochs=1, start_epoch=1)

digits = load_digits()
TRAIN, TRUSTED, TEST = (digits.subset(range(a, b)) for a, b in ((0, 200), (200, 260), (260, 320)))


def mlp(seed: int = 0, outputs: int = 10, channels: int = 1) -> nn.Sequential:
    """A network with dropout, so that the global random state matters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64 * channels, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, outputs),
    )


class Residual(nn.Module):
    """A person's own ResNet-like network, its head not the last attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, 10)
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.body = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.classifier((x + self.body(x)).mean((2, 3)))


class Flipping(Dataset[tuple[Tensor, int]]):
    """A map-style dataset with random transforms, drawn from two global generators."""

    def __len__(self) -> int:
        return len(TRAIN)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image, label = TRAIN[i]
        image = image.roll(int(torch.randint(-1, 2, ())), -1)
        return image * random.uniform(0.8, 1.0), label


def fit(model: nn.Module | None = None, train: Any = TRAIN, **options: Any) -> autodo.Result:
    options = {"trusted": TRUSTED, "config": QUICK, "progress": False} | options
    return autodo.fit(mlp() if model is None else model, train, **options)


def same(a: autodo.Result, b: autodo.Result) -> bool:
    """Whether weights and points are equal bit for bit."""
    states = a.model.state_dict(), b.model.state_dict()
    weights = all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    return weights and a.points.equals(b.points)


# Any model, any dataset


def test_own_network_whose_head_is_not_the_last_attribute() -> None:
    model = Residual()
    before = model.classifier.weight.detach().clone()
    result = fit(model)
    assert result.model is model
    assert not torch.equal(model.classifier.weight, before)
    assert result.points.num_rows == len(TRAIN)
    made = plan(result.config, result.history)
    assert [m["epoch"] for m in result.history] == list(range(1, made.epochs + 1))


def test_head_may_be_named() -> None:
    model = mlp()
    assert same(fit(model, head=model[-1]), fit(mlp()))


def test_examples_arrays_and_tensor_datasets_are_one() -> None:
    expected = fit()
    arrays = Examples.from_arrays(TRAIN.images.numpy(), TRAIN.labels.numpy())
    assert same(fit(train=arrays), expected)
    tensors = TensorDataset(TRAIN.images, TRAIN.labels)
    assert same(fit(train=tensors, trusted=Subset(digits, range(200, 260))), expected)  # type: ignore[arg-type]


def test_map_style_dataset_with_random_transforms_is_settled_by_the_seed() -> None:
    first = fit(train=Flipping())
    random.seed(99)
    torch.manual_seed(99)
    assert same(fit(train=Flipping()), first)
    assert not same(fit(), first)


def test_what_is_measured_does_not_follow_the_callers_random_state() -> None:
    """Random transforms of the images that are measured draw by the seed as well."""

    def measured() -> list[Any]:
        name, history = "gradient_inner_product", fit(train=Flipping()).history
        return [metrics[name] for metrics in history if name in metrics]

    first = measured()
    assert first
    random.seed(98)
    torch.manual_seed(98)
    assert measured() == first


def test_uint8_and_its_unit_floats_are_one() -> None:
    pixels = (TRAIN.images * 255).to(torch.uint8)
    whole = Examples.from_arrays(pixels, TRAIN.labels)
    unit = Examples.from_arrays(pixels.float() / 255, TRAIN.labels)
    assert same(fit(train=whole), fit(train=unit))


def test_labels_alone_or_nothing_may_be_learned() -> None:
    off = {"learn_augment": False, "learn_weights": False, "augment": "none"}
    labels = fit(config=autodo.Config(**{**vars(QUICK), **off}))
    assert set(labels.points["weight"].to_pylist()) == {1.0}
    assert len(set(labels.points["label_score"].to_pylist())) > 1
    nothing = fit(config=autodo.Config(**{**vars(QUICK), **off, "learn_labels": False}))
    assert nothing.label_issues.num_rows == 0


# What is refused, before any folder exists


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return iter([TRAIN[0]])


def with_pixel(value: float) -> tuple[Tensor, Tensor]:
    images = TRAIN.images.clone()
    images[7, 0, 3, 3] = value
    return images, TRAIN.labels


class Pairs(Dataset[Any]):
    """Items as they are given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


pairs = [TRAIN[i] for i in range(40)]
without_nine = TRUSTED.subset((TRUSTED.labels != 9).nonzero().flatten())

MANY_FOLDS = autodo.Config(**{**vars(QUICK), "belief_folds": 500})
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "iterable": ({"train": Stream()}, ["train", "IterableDataset", "map-style"]),
    "loader": ({"trusted": DataLoader(TRUSTED)}, ["trusted is a DataLoader"]),  # type: ignore[arg-type]
    "empty": ({"train": Pairs([])}, ["train is empty"]),
    "no pairs": ({"train": Pairs([1, 2])}, ["train[0] is not a pair"]),
    "nan": ({"train": TensorDataset(*with_pixel(np.nan))}, ["NaN", "train[7]"]),
    "infinite": ({"train": TensorDataset(*with_pixel(np.inf))}, ["infinite", "train[7]"]),
    "nan in items": ({"train": Pairs([*pairs, (TRAIN[0][0] / 0, 0)])}, ["NaN", "train[40]"]),
    "negative": ({"train": TensorDataset(TRAIN.images, TRAIN.labels - 1)}, ["negative"]),
    "out of range": ({"num_classes": 5}, ["labels of train outside 0 .. 4"]),
    "float labels": (
        {"train": TensorDataset(TRAIN.images, TRAIN.labels.float())},
        ["not class numbers"],
    ),
    "one-hot": ({"train": Pairs([(pairs[0][0], torch.eye(10)[0])])}, ["one-hot"]),
    "mixed sizes": (
        {"train": Pairs([*pairs, (torch.zeros(1, 8, 9), 0)])},
        ["train mixes images of 2 shapes", "train[40]"],
    ),
    "mixed channels": ({"train": Pairs([*pairs, (torch.zeros(3, 8, 8), 0)])}, ["2 shapes"]),
    "shapes differ": (
        {"trusted": TensorDataset(torch.zeros(60, 1, 9, 9), TRUSTED.labels)},
        ["(1, 8, 8)", "(1, 9, 9)"],
    ),
    "class lacks trust": ({"trusted": without_nine}, ["no trusted example of class 9"]),
    "class lacks training": (
        {"train": TRAIN.subset((TRAIN.labels != 9).nonzero().flatten())},
        ["no training example of class 9"],
    ),
    "few trusted": (
        {"trusted": TRUSTED.subset([0, 1, 2])},
        ["trusted has 3 examples", "10 classes"],
    ),
    "no module": ({"model": "resnet"}, ["model is a str"]),
    "no linear": ({"model": nn.Sequential(nn.Flatten())}, ["does not end in nn.Linear"]),
    "softmax": ({"model": nn.Sequential(mlp(), nn.Softmax(1))}, ["does not end in nn.Linear"]),
    "narrow head": ({"model": mlp(outputs=9)}, ["9 outputs", "10 classes", "nn.Linear(32, 10)"]),
    "other input": ({"model": mlp(channels=3)}, ["cannot take images of shape (1, 8, 8)"]),
    "no logits": ({"model": nn.Conv2d(1, 10, 3)}, ["needs logits of shape (batch, classes)"]),
    "more folds than examples": (
        {"config": MANY_FOLDS},
        ["belief_folds is 500 and train has 200 examples"],
    ),
    "colour of normalised pixels": (
        {"train": TensorDataset(TRAIN.images * 4 - 2, TRAIN.labels), "config": "colour"},
        ["[0, 1]", "normalise inside the model"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_before_a_folder_exists(case: str, tmp_path: Path) -> None:
    options, words = REFUSED[case]
    if options.get("config") == "colour":
        options = options | {"config": autodo.Config(**{**vars(QUICK), "augment": "colour"})}
    with pytest.raises(InputError) as error:
        fit(**options, out=tmp_path / "run")
    for word in words:
        assert word in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_same_image_in_train_and_trusted_is_a_warning_with_the_count() -> None:
    with pytest.warns(UserWarning, match="5 images of trusted"):
        fit(trusted=digits.subset([*range(5), *range(200, 260)]))


# The result


def test_result_is_the_same_with_and_without_a_folder(tmp_path: Path) -> None:
    written, kept = fit(out=tmp_path / "run"), fit()
    assert same(written, kept)
    assert written.path == tmp_path / "run"
    assert kept.path is None
    assert pq.read_table(tmp_path / "run" / "points.parquet").equals(kept.points)


def test_save_writes_what_out_would_have(tmp_path: Path) -> None:
    result = fit(out=tmp_path / "run")
    saved = result.save(tmp_path / "saved")
    for name in ("config.toml", "metrics.jsonl", "points.parquet", "model.safetensors"):
        assert (saved / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    with pytest.raises(RunFolderError, match="already exists"):
        result.save(tmp_path / "saved")
    assert result.save(tmp_path / "saved", overwrite=True) == saved
    mlp().load_state_dict(load_file(saved / "model.safetensors"))


def test_label_issues_come_with_the_surest_first() -> None:
    # 20 of 200 labels moved on by one. Measured: they are the first 20 by score; 7 look wrong.
    labels = TRAIN.labels.clone()
    labels[:20] = (labels[:20] + 1) % 10
    config = autodo.Config(epochs=40, batch_size=64, device="cpu", augment="none")
    result = fit(autodo_model(), train=TRAIN.with_labels(labels), config=config)
    issues = result.label_issues
    scores = issues["label_score"].to_pylist()
    assert scores == sorted(scores)
    assert all(issues["is_label_issue"].to_pylist())
    assert len(scores) >= 5
    assert set(issues["index"].to_pylist()) <= set(range(20))
    first = np.argsort(result.points["label_score"].to_pylist())[:20]
    assert len(set(first.tolist()) & set(range(20))) >= 18


def autodo_model() -> nn.Module:
    from autodo.models import SmallCNN

    torch.manual_seed(0)
    return SmallCNN(1, 10, width=8)


# What a seed settles


def test_same_seed_twice_is_bit_for_bit_the_same() -> None:
    torch.manual_seed(1)
    first = fit(mlp(0))
    np.random.seed(5)  # noqa: NPY002
    assert same(fit(mlp(0)), first)


def test_fit_leaves_the_callers_random_state_alone() -> None:
    model = mlp()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(model)
    assert torch.equal(torch.rand(3), expected)


def test_other_seeds_differ() -> None:
    other = autodo.Config(**{**vars(QUICK), "seed": 1})
    assert not same(fit(mlp(0)), fit(mlp(0), config=other))


def test_the_test_set_has_no_influence() -> None:
    without, with_test = fit(), fit(test=TEST)
    assert same(without, with_test)
    assert "test_error" in with_test.history[-1]
    assert "test_error" not in without.history[-1]


# Numbers that are not finite


def test_loss_that_is_not_finite_stops_with_the_indices(tmp_path: Path) -> None:
    config = autodo.Config(**{**vars(QUICK), "lr": 1e30, "warmup_epochs": 0})
    with pytest.raises(NumericalError, match=r"training loss of the points \d+, \d+") as error:
        fit(config=config, out=tmp_path / "run")
    assert "lower lr" in error.value.cure
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_hypergradient_that_is_not_finite_stops_with_the_indices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = HyperOptimizer.gradient

    def spoilt(self: HyperOptimizer, features: Tensor, *rest: Tensor) -> Any:
        return plain(self, features * float("nan"), *rest)

    monkeypatch.setattr(HyperOptimizer, "gradient", spoilt)
    with pytest.raises(NumericalError, match=r"hypergradient of the points \d+, \d+"):
        fit()
