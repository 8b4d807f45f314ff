"""The Hugging Face library: its Dataset objects, and fetching by name with and without it."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_sets as made
import numpy as np
import pytest
import torch
from made_sets import NAMES, channels_first, encoded
from PIL import Image

from autodo.data import open_dataset
from autodo.data.map_images import MapImages
from autodo.data.sources import Skipped, load
from autodo.errors import InputError

PIXELS, LABELS = made.images(6, (32, 32)), made.labels()


class ClassLabel:
    _type = "ClassLabel"

    def __init__(self, names: list[str]) -> None:
        self.names = names


class ImageFeature:
    _type = "Image"

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class Value:
    _type = "Value"

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class Table:
    """What AutoDO needs of a datasets.Dataset, so that tests do not need the library."""

    def __init__(self, columns: dict[str, list], features: dict[str, Any], file: Path) -> None:
        self.columns, self.features = columns, features
        self.cache_files = [{"filename": str(file)}]

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {
            c: Image.open(BytesIO(v[i]["bytes"])) if self._decodes(c) else v[i]
            for c, v in self.columns.items()
        }

    def _decodes(self, column: str) -> bool:
        return getattr(self.features[column], "decode", False)

    def cast_column(self, column: str, feature: Any) -> Table:
        return Table(
            self.columns, self.features | {column: feature}, Path(self.cache_files[0]["filename"])
        )

    def iter(self, size: int) -> Any:
        assert not any(map(self._decodes, self.columns)), "bytes are wanted, not decoded images"
        for start in range(0, len(self), size):
            yield {c: v[start : start + size] for c, v in self.columns.items()}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "cache.arrow").write_bytes(b"")
    return Table(
        {
            "img": [{"bytes": encoded(image), "path": None} for image in PIXELS],
            "fine_label": LABELS.tolist(),
            "coarse_label": [0] * 6,
            "title": ["x"] * 6,
        },
        {
            "img": ImageFeature(),
            "fine_label": ClassLabel(NAMES),
            "coarse_label": ClassLabel(["animal"]),
            "title": Value("string"),
        },
        tmp_path / "cache.arrow",
    )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for the library; its load_dataset is for the test to set."""
    module = SimpleNamespace(Image=ImageFeature)
    monkeypatch.setitem(sys.modules, "datasets", module)  # type: ignore[arg-type]
    return module


def check(data: Any) -> None:
    assert data.labels.tolist() == LABELS.tolist()
    images = torch.stack([data[i][0] for i in range(len(data))])
    assert np.array_equal(images.numpy(), channels_first(PIXELS))


def test_a_dataset_object_is_read_by_its_columns(table: Table) -> None:
    data = open_dataset(table, name="train")
    assert isinstance(data, MapImages)
    check(data)
    assert data.class_names == ("cat", "dog", "fox")


def test_a_dataset_object_without_image_column(table: Table) -> None:
    del table.columns["img"], table.features["img"]
    with pytest.raises(InputError, match=r"no image column.*title \(string\).*rename_column"):
        open_dataset(table, name="train")


def test_a_dict_of_splits_is_told_to_give_one(table: Table) -> None:
    with pytest.raises(InputError, match=r"dict of train, test.*give one: train\['train'\]"):
        open_dataset({"train": table, "test": table}, name="train")


def test_a_name_without_data_folder_is_fetched(table: Table, library: SimpleNamespace) -> None:
    asked: list[tuple] = []

    def load_dataset(*given: Any, split: str) -> Table:
        asked.append((*given, split))
        return table

    library.load_dataset = load_dataset
    for split in ("train", "test"):
        data = load("cifar100", split)
        check(data)
        assert data.ids[1] == f"uoft-cs/cifar100:{split}#1"
    assert asked == [("uoft-cs/cifar100", "cifar100", s) for s in ("train", "test")]


def test_a_corrupt_image_from_the_hub_is_named_by_row(
    table: Table, library: SimpleNamespace
) -> None:
    table.columns["img"][3] = {"bytes": b"no image", "path": None}
    library.load_dataset = lambda *_, **__: table
    with pytest.raises(InputError, match="uoft-cs/cifar10:train#3"):
        load("cifar10")
    told: list[Skipped] = []
    assert len(load("cifar10", skip_corrupt=True, on_skipped=told.extend)) == 5
    assert told[0].where == "uoft-cs/cifar10:train#3"


def test_without_a_network_the_error_says_where_to_put_the_files(library: SimpleNamespace) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach 'ufldl-stanford/svhn' on the Hub\nand more")

    library.load_dataset = load_dataset
    with pytest.raises(InputError) as caught:
        load("svhn", "train")
    message = str(caught.value)
    assert "svhn is not on this machine" in message
    assert "ConnectionError: Couldn't reach 'ufldl-stanford/svhn' on the Hub" in message
    assert "and more" not in message
    assert "--data-dir" in message
    assert "train_32x32.mat" in message
    assert "./svhn" in message


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'datasets' cannot be imported.*pip install datasets"):
        load("cifar10")


def test_the_real_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    )
    rows = {"img": [Image.fromarray(i) for i in PIXELS], "label": LABELS.tolist()}
    real = datasets.Dataset.from_dict(rows, features=features)
    data = open_dataset(real, name="train")
    check(data)
    assert data.class_names == ("cat", "dog", "fox")
    with pytest.raises(InputError, match="DatasetDict of train"):
        open_dataset(datasets.DatasetDict({"train": real}), name="train")

    real.to_parquet(tmp_path / "train-00000-of-00001.parquet")
    check(load(tmp_path, "train"))
    real.save_to_disk(tmp_path / "saved")
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_, **__: datasets.load_from_disk(tmp_path / "saved")
    )
    check(load("cifar10"))
