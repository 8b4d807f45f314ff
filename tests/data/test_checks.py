"""open_dataset and check_pair: every unfit dataset is refused by name, before a run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from autodo.data import Examples, check_pair, open_dataset
from autodo.data.map_images import MapImages
from autodo.errors import InputError


class Items(torch.utils.data.Dataset):
    """A map-style dataset over a list, as users write them."""

    def __init__(self, items: list, **attributes: Any) -> None:
        self.items = items
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


def image(value: float = 0.5, shape: tuple[int, ...] = (1, 4, 4)) -> torch.Tensor:
    return torch.full(shape, value)


def examples(labels: list[int], shape: tuple = (1, 4, 4), seed: int = 0, **kw: Any) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(len(labels), *shape, generator=generator)
    return Examples.from_arrays(images, labels, **kw)


# -- what is accepted


@pytest.mark.parametrize(
    ("given", "shape", "dtype"),
    [
        (image(shape=(3, 4, 6)), (3, 4, 6), torch.float32),
        (image(shape=(4, 6)), (1, 4, 6), torch.float32),
        (image().double(), (1, 4, 4), torch.float32),
        (np.zeros((4, 6, 3), dtype=np.uint8), (3, 4, 6), torch.uint8),
        (np.zeros((3, 4, 6), dtype=np.float32), (3, 4, 6), torch.float32),
        (np.zeros((3, 6, 3), dtype=np.uint8), (3, 3, 6), torch.uint8),
        (np.zeros((3, 6, 3), dtype=np.float32), (3, 6, 3), torch.float32),
        (np.zeros((4, 6), dtype=np.uint8), (1, 4, 6), torch.uint8),
        (Image.new("L", (6, 4)), (1, 4, 6), torch.uint8),
        (Image.new("RGBA", (6, 4)), (3, 4, 6), torch.uint8),
    ],
)
def test_images_of_every_kind_become_channels_height_width(
    given: Any, shape: tuple, dtype: torch.dtype
) -> None:
    data = open_dataset([(given, 0), (given, 1)], name="train")
    assert data.image_shape == shape
    assert data[0][0].shape == shape
    assert data[0][0].dtype == dtype


@pytest.mark.parametrize("label", [2, np.int64(2), np.uint8(2), torch.tensor(2), np.array(2)])
def test_labels_of_every_integer_kind(label: Any) -> None:
    data = open_dataset([(image(), label)], name="train")
    assert data.labels.tolist() == [2]
    assert data.class_names == ("0", "1", "2")


def test_every_item_is_read_once_and_progress_is_told() -> None:
    read: list[int] = []

    class Counting(Items):
        def __getitem__(self, i: int) -> Any:
            read.append(i)
            return self.items[i]

    told: list[tuple[int, int]] = []
    open_dataset(
        Counting([(image(), 0)] * 3), name="train", progress=lambda *done: told.append(done)
    )
    assert read == [0, 1, 2]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_names_and_paths_of_a_torchvision_like_dataset_are_used() -> None:
    folder = Items(
        [(image(), 0), (image(), 1), (image(), 1)],
        classes=["cat", "dog"],
        samples=[("a.png", 0), ("b.png", 1), ("c.png", 1)],
    )
    data = open_dataset(folder, name="train")
    assert data.class_names == ("cat", "dog")
    assert data.ids == ("a.png", "b.png", "c.png")
    part = open_dataset(Subset(Subset(folder, [2, 0]), [0]), name="train")
    assert part.ids == ("c.png",)
    assert part.class_names == ("cat", "dog")


def test_names_of_the_wrong_number_are_not_used() -> None:
    data = Items([(image(), 0), (image(), 2)], classes=["cat", "dog"])
    assert open_dataset(data, name="train").class_names == ("0", "1", "2")
    assert open_dataset(data, name="train", num_classes=4).num_classes == 4


def test_synonyms_become_one_name() -> None:
    data = Items([(image(), 0)], classes=[("tench", "Tinca tinca")])
    assert open_dataset(data, name="train").class_names == ("tench, Tinca tinca",)


def test_tensors_and_subsets_of_examples_stay_in_memory() -> None:
    tensors = TensorDataset(torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 0, 1]))
    assert isinstance(open_dataset(tensors, name="train"), Examples)
    part = open_dataset(Subset(examples([0, 1, 0]), [2, 1]), name="train")
    assert isinstance(part, Examples)
    assert part.ids == ("2", "1")


def test_examples_take_the_number_of_classes_asked_for() -> None:
    assert open_dataset(examples([0, 1]), name="trusted", num_classes=3).num_classes == 3
    named = open_dataset(examples([0, 1]), name="trusted", class_names=["cat", "dog", "fox"])
    assert named.class_names == ("cat", "dog", "fox")


def test_reading_uses_none_of_the_callers_random_numbers() -> None:
    class Noisy(Items):
        def __getitem__(self, i: int) -> Any:
            return torch.rand(1, 4, 4) + np.random.rand() + random.random(), 0  # noqa: NPY002

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = open_dataset(Noisy([0] * 5), name="train")
    assert torch.equal(torch.rand(3), expected)
    assert isinstance(first, MapImages)
    assert first.fingerprints == open_dataset(Noisy([0] * 5), name="train").fingerprints
    assert len(set(first.fingerprints)) == 5


# -- what is refused


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        yield image(), 0


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Stream(), "train is no map-style dataset: Stream is an IterableDataset"),
        (iter([]), "list_iterator has no __len__ and no __getitem__"),
        ({1, 2}, "set has no __getitem__"),
        (DataLoader(Items([1])), r"train is a DataLoader.*train\.dataset"),
        (Items([]), "train is empty: Items has length 0"),
        ([image()], r"train\[0\] is not a pair .* but of type Tensor, length 1"),
        ([(image(), 0, 5)], r"train\[0\] is not a pair .* type tuple, length 3"),
        ([{"image": 1, "label": 0}], r"train\[0\] is not a pair .* type dict, length 2"),
        ([7], r"train\[0\] is not a pair .* but of type int:"),
        ([(image(), 0), (image(), 0.5)], r"label of train\[1\].*found the float 0\.5"),
        ([(image(), torch.tensor(1.0))], r"label of train\[0\].*float 1\.0"),
        ([(image(), torch.tensor([0, 1]))], r"label of train\[0\].*shape \(2,\).*one-hot"),
        ([(image(), [0, 1])], r"label of train\[0\].*shape \(2,\).*one-hot"),
        ([(image(), "cat")], r"label of train\[0\].*found the string 'cat'"),
        ([(image(), True)], r"label of train\[0\].*found the bool True"),
        ([(image(), None)], r"label of train\[0\].*found the object None"),
        ([(image(), 0), (image(), -1)], r"1 label of train .*train\[1\] has label -1"),
        ([("a.png", 0)], r"image of train\[0\] is of type str"),
        ([(image(shape=(2, 1, 4, 4)), 0)], r"image of train\[0\] has shape \(2, 1, 4, 4\)"),
        ([(image().long(), 0)], r"image of train\[0\] has pixels of type torch\.int64"),
        ([(Image.new("F", (4, 4)), 0)], r"image of train\[0\] cannot be read.*mode F"),
    ],
)
def test_an_unfit_dataset_is_named(dataset: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_dataset(dataset, name="train")


def test_an_item_that_raises_is_named_with_the_reason() -> None:
    class Broken(Items):
        def __getitem__(self, i: int) -> Any:
            raise FileNotFoundError("no c.png")

    broken = Broken([0], samples=[("c.png", 0)])
    with pytest.raises(
        InputError, match=r"train\[0\] \('c.png'\) cannot be read.*FileNotFoundError: no c.png"
    ):
        open_dataset(broken, name="train")


def test_labels_beyond_the_number_of_classes_are_named() -> None:
    items = [(image(), 0), (image(), 3), (image(), 4)]
    words = r"2 labels of trusted outside 0 \.\. 2: trusted\[1\] has label 3, trusted\[2\] has lab"
    with pytest.raises(InputError, match=words):
        open_dataset(items, name="trusted", num_classes=3)
    with pytest.raises(InputError, match=words):
        open_dataset(examples([0, 3, 4]), name="trusted", num_classes=3)


def test_images_of_mixed_shapes_are_counted_with_the_first_of_each() -> None:
    items = [(image(), 0), (image(shape=(1, 4, 5)), 0), (image(), 0), (image(shape=(3, 4, 4)), 0)]
    with pytest.raises(InputError) as caught:
        open_dataset(items, name="train")
    assert "3 shapes or types" in str(caught.value)
    assert "(1, 4, 4) torch.float32 (2 images, first train[0])" in str(caught.value)
    assert "(1, 4, 5) torch.float32 (1 image, first train[1])" in str(caught.value)
    assert "(3, 4, 4) torch.float32 (1 image, first train[3])" in str(caught.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_pixels_that_are_not_finite_are_named(bad: float) -> None:
    spoiled = image()
    spoiled[0, 0, :2] = bad
    data = Items([(image(), 0), (spoiled, 1)], samples=[("a.png", 0), ("b.png", 1)])
    with pytest.raises(InputError, match=r"1 image of train: train\[1\] \('b.png'\) \(2 pixels\)"):
        open_dataset(data, name="train")
    tensors = TensorDataset(torch.stack([image(), spoiled]), torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"1 image of train: train\[1\] \(2 pixels\)"):
        open_dataset(tensors, name="train")


def test_class_names_must_agree_in_number_and_order() -> None:
    data = examples([0, 1], class_names=["cat", "dog"])
    with pytest.raises(InputError, match="3 classes but 2 class names for trusted"):
        open_dataset(data, name="trusted", num_classes=3, class_names=["cat", "dog"])
    with pytest.raises(InputError, match=r"class 0 is 'dog' in the list .* but 'cat' in trusted"):
        open_dataset(data, name="trusted", class_names=["dog", "cat"])


def test_an_image_that_changes_shape_later_is_named() -> None:
    class Shrinking(Items):
        def __getitem__(self, i: int) -> Any:
            self.items[i] += 1
            return image(shape=(1, 4, 4 if self.items[i] == 1 else 3)), 0

    data = open_dataset(Shrinking([0]), name="train")
    with pytest.raises(InputError, match=r"train\[0\] is now \(1, 4, 3\).*random transform"):
        data[0]


# -- sets that must fit together


def test_fitting_sets_give_no_warning() -> None:
    assert (
        check_pair(examples([0, 1, 2] * 3), examples([2, 1, 0], seed=1), test=examples([0], seed=2))
        == []
    )


def test_a_class_that_trusted_lacks_is_named() -> None:
    names = [*"abcdefg", "truck", "i", "j", "k"]
    train = examples(list(range(11)) * 2, class_names=names)
    trusted = examples([c for c in range(11) if c != 7] * 2, seed=1, class_names=names)
    with pytest.raises(InputError) as caught:
        check_pair(train, trusted)
    assert str(caught.value) == (
        "train has 11 classes but trusted has 10 of them: no trusted example of class 7 "
        "('truck'). AutoDO cannot judge class 7 without one; add some to trusted, or drop the "
        "class from train."
    )


def test_a_class_that_train_lacks_is_named() -> None:
    trusted = examples([0, 1, 2], seed=1, class_names=["cat", "dog", "fox"])
    with pytest.raises(InputError, match=r"trusted has 3 .* train has 2 .*class 2 \('fox'\)"):
        check_pair(examples([0, 1, 1]), trusted)


def test_fewer_trusted_points_than_classes() -> None:
    with pytest.raises(InputError, match=r"trusted has 2 examples but train has 3 .*class 1"):
        check_pair(examples([0, 1, 2]), examples([0, 2], seed=1))


def test_a_single_class_is_refused() -> None:
    with pytest.raises(InputError, match=r"train has only class 0.*too high"):
        check_pair(examples([0, 0]), examples([0], seed=1))


@pytest.mark.parametrize(
    ("shape", "option"), [((1, 4, 5), "--image-size"), ((3, 4, 4), "--channels")]
)
def test_shapes_must_match(shape: tuple, option: str) -> None:
    train, trusted, other = examples([0, 1]), examples([0, 1], seed=1), examples([0, 1], shape)
    with pytest.raises(InputError) as by_trusted:
        check_pair(train, other)
    with pytest.raises(InputError) as by_test:
        check_pair(train, trusted, test=other)
    for name, caught in (("trusted", by_trusted), ("test", by_test)):
        assert f"train are (1, 4, 4) but those of {name} are {shape}" in str(caught.value)
        assert option in str(caught.value)


def test_two_numberings_of_the_classes_are_refused() -> None:
    train = examples([0, 1], class_names=["cat", "dog"])
    trusted = examples([0, 1], seed=1, class_names=["dog", "cat"])
    with pytest.raises(InputError, match="class 0 is 'cat' in train but 'dog' in trusted"):
        check_pair(train, trusted)


def test_test_labels_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match=r"test outside 0 \.\. 1: test\[1\] has label 5"):
        check_pair(examples([0, 1]), examples([0, 1], seed=1), test=examples([0, 5], seed=2))


def test_the_same_image_in_two_sets_is_a_warning_with_its_count() -> None:
    train = examples([0, 1, 0, 1], ids=["a.png", "b.png", "c.png", "d.png"])
    train = train.subset([0, 1, 2, 3, 1])
    fresh = examples([0, 1, 0], seed=1)
    shared = train.images[[1, 3]]
    trusted = Examples.from_arrays(torch.cat([fresh.images, shared]), [0, 1, 0, 1, 1])
    test = Examples.from_arrays(torch.cat([shared[:1], fresh.images[:1]]), [1, 0])
    warnings = check_pair(train, trusted, test=test)
    assert len(warnings) == 3
    assert "2 images of trusted (5 in all) also in train" in warnings[0]
    assert "trusted[3] = train[1] ('b.png')" in warnings[0]
    assert "1 image of test (2 in all) also in train" in warnings[1]
    assert "2 images of test (2 in all) also in trusted" in warnings[2]


def test_the_same_image_is_known_again_as_bytes_as_floats_and_in_any_dataset() -> None:
    photos = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
    train = open_dataset(list(zip(photos, [0, 1], strict=True)), name="train")
    trusted = Examples.from_arrays(photos.astype(np.float32) / np.float32(255), [0, 1])
    assert isinstance(train, MapImages)
    assert "2 images of trusted" in check_pair(train, trusted)[0]


def test_pixels_of_0_to_255_beside_those_of_0_to_1_are_refused() -> None:
    whole = torch.randint(256, (40, 1, 4, 4), dtype=torch.uint8)
    labels = torch.arange(40) % 2
    as_they_are = Examples.from_arrays(whole, labels)
    slip = Examples.from_arrays(whole.float(), labels)
    unit = Examples.from_arrays(whole[:20].float() / 255, labels[:20])
    for train, trusted, called in ((as_they_are, slip, "trusted"), (slip, unit, "train")):
        with pytest.raises(InputError, match=f"divide the pixels of {called} by 255"):
            check_pair(train, trusted)
    check_pair(as_they_are, unit)
