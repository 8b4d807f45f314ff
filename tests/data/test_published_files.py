"""SVHN, CIFAR and ImageNet in the files they are published in, by path and by name."""

from __future__ import annotations

import os
import pickle
from io import BytesIO
from pathlib import Path

import made_sets as made
import numpy as np
import pytest
from made_sets import (
    channels_first,
    encoded,
    pack,
    write_cifar,
    write_idx,
    write_mat,
    write_parquet,
)

from autodo.data.sources import load, plain_pickle
from autodo.errors import InputError

DIGITS = np.array([0, 1, 9, 0, 5, 3])
SQUARES = made.images(6, (32, 32))


def refusal(*given: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load(*given, **options)  # type: ignore[arg-type]
    return str(caught.value)


# SVHN


def test_svhn_in_matlab_files_has_its_zeros_back(tmp_path: Path) -> None:
    write_mat(tmp_path / "train_32x32.mat", SQUARES, DIGITS)
    write_mat(tmp_path / "test_32x32.mat", SQUARES[:2], DIGITS[:2])
    for data in (
        load(tmp_path / "train_32x32.mat"),
        load(tmp_path, "train"),
        load("svhn", "train", data_dir=tmp_path),
        load("svhn", data_dir=tmp_path),
    ):
        assert np.array_equal(data.images.numpy(), channels_first(SQUARES))
        assert data.labels.tolist() == DIGITS.tolist()
        assert data.class_names == tuple("0123456789")
    assert len(load("svhn", "test", data_dir=tmp_path)) == 2


def test_matlab_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(b"MATLAB?")
    assert "cannot be read as a MATLAB file" in refusal(tmp_path, "train")
    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"Z": [1]})
    assert "is not SVHN's cropped digits" in refusal(tmp_path / "a.mat")


# MNIST and its like

GREY = made.images(6, (28, 28))[..., 0]


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(
    ("dataset", "folder"),
    [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw"), ("fashion_mnist", ".")],
)
def test_mnist_in_idx_files(tmp_path: Path, dataset: str, folder: str, end: str) -> None:
    place = tmp_path / folder
    for split, count in (("train", 6), ("t10k", 2)):
        write_idx(place / f"{split}-images-idx3-ubyte{end}", GREY[:count])
        write_idx(place / f"{split}-labels-idx1-ubyte{end}", DIGITS[:count])
    for data in (load(dataset, data_dir=tmp_path), load(place, "train")):
        assert np.array_equal(data.images.numpy(), GREY[:, None])
        assert data.labels.tolist() == DIGITS.tolist()
    assert len(load(dataset, "test", data_dir=tmp_path)) == len(load(place, "test")) == 2
    assert load(dataset, data_dir=tmp_path).class_names[9] == (
        "9" if dataset == "mnist" else "Ankle boot"
    )


def test_idx_files_of_something_else(tmp_path: Path) -> None:
    images = tmp_path / "train-images-idx3-ubyte.gz"
    labels = write_idx(tmp_path / "train-labels-idx1-ubyte", DIGITS)
    assert "no train split of mnist" in refusal("mnist", data_dir=tmp_path)
    assert "train-images-idx3-ubyte.gz" in refusal("mnist", data_dir=tmp_path)
    images.write_bytes(b"not gzipped")
    assert "cannot be read" in refusal(tmp_path, "train")
    write_idx(images, GREY[:, 0])
    assert "3 axes" in refusal(tmp_path, "train")
    write_idx(images, GREY[:5])
    assert "5 images and 6 labels" in refusal(tmp_path, "train")
    write_idx(images, GREY)
    labels.write_bytes(labels.read_bytes()[:-1])
    assert "has 5 numbers and not 6" in refusal(tmp_path, "train")
    labels.write_bytes(b"")
    assert "begins with nothing" in refusal(tmp_path, "train")


# CIFAR


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_cifar_in_pickled_batches_and_in_its_archive(
    tmp_path: Path, dataset: str, protocol: int
) -> None:
    folder = write_cifar(tmp_path / "loose", dataset, protocol=protocol)
    archive = tmp_path / "packed" / f"{folder.name.replace('-batches-py', '-python')}.tar.gz"
    archive.parent.mkdir()
    pack(folder, archive)
    batches = range(5) if dataset == "cifar10" else range(1)
    pixels = np.concatenate([made.images(4, (32, 32), k) for k in batches])
    labels = [(k + i) % 10 for k in batches for i in range(4)]
    for data in (
        load(folder, "train"),
        load(tmp_path / "loose", "train"),
        load(archive, "train"),
        load(dataset, "train", data_dir=tmp_path / "loose"),
        load(dataset, "train", data_dir=tmp_path / "packed"),
    ):
        assert np.array_equal(data.images.numpy(), channels_first(pixels))
        assert data.labels.tolist() == labels
        assert data.class_names[3] == "class 3"
        assert data.num_classes == (10 if dataset == "cifar10" else 100)
    test = load(dataset, "test", data_dir=tmp_path / "packed")
    assert np.array_equal(
        test.images.numpy(), channels_first(made.images(4, (32, 32), len(batches)))
    )


def test_a_folder_that_holds_several_datasets_gives_the_one_that_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", per_batch=2)
    write_cifar(tmp_path, "cifar100", per_batch=3)
    write_mat(tmp_path / "train_32x32.mat", SQUARES, DIGITS)
    sizes = {name: len(load(name, data_dir=tmp_path)) for name in ("svhn", "cifar10", "cifar100")}
    assert sizes == {"svhn": 6, "cifar10": 10, "cifar100": 3}


def test_cifar_with_a_batch_missing_or_broken(tmp_path: Path) -> None:
    folder = write_cifar(tmp_path, "cifar10")
    (folder / "data_batch_3").rename(folder / "data_batch_33")
    message = refusal("cifar10", "train", data_dir=tmp_path)
    assert "data_batch_3 not found" in message
    (folder / "data_batch_3").write_bytes((folder / "data_batch_33").read_bytes()[:100])
    assert "data_batch_3' is not read" in refusal("cifar10", "train", data_dir=tmp_path)
    (folder / "data_batch_3").write_bytes(pickle.dumps({b"data": [1, 2]}))
    assert "data_batch_3' is no batch of CIFAR" in refusal("cifar10", "train", data_dir=tmp_path)
    archive = pack(folder, tmp_path / "cifar-10-python.tar.gz")
    archive.write_bytes(archive.read_bytes()[:200])
    assert "cannot be read" in refusal(archive, "train")


class Malicious:
    """Runs a command when it is unpickled by the pickle module."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


def test_nothing_in_a_pickled_batch_is_run(tmp_path: Path) -> None:
    folder = write_cifar(tmp_path, "cifar10")
    mark = tmp_path / "it ran"
    bomb = pickle.dumps({b"data": Malicious(mark), b"labels": [0]}, protocol=2)
    pickle.loads(bomb)  # the bomb is real
    mark.rmdir()
    (folder / "data_batch_1").write_bytes(bomb)
    message = refusal("cifar10", "train", data_dir=tmp_path)
    assert "mkdir is not plain data" in message
    assert not mark.exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, "text", b"bytes", None, True], "b": (1, {"c": []})},
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i4"),
        np.array([True, False]),
        np.int64(7),
        np.zeros((0, 3), dtype=np.float32),
    ],
)
def test_plain_data_is_unpickled_as_pickle_does(value: object, protocol: int) -> None:
    back = plain_pickle.load(BytesIO(pickle.dumps(value, protocol=protocol)))
    if isinstance(value, np.ndarray):
        assert back.dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
        assert np.array_equal(back, value)
    else:
        assert back == value


@pytest.mark.parametrize(
    "value",
    [
        print,
        os.system,
        pickle.Unpickler,
        np.load,
        Path("a"),
        np.array([{}], dtype=object),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["text"]),
        {1, 2},
        range(3),
        1j,
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_anything_else_is_refused(value: object, protocol: int) -> None:
    with pytest.raises(pickle.UnpicklingError):
        plain_pickle.load(BytesIO(pickle.dumps({"x": [value]}, protocol=protocol)))


def test_a_forged_type_cannot_pass_bytes_for_objects() -> None:
    """numpy's own constructor, given such a state, would take the bytes for addresses."""
    forged = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08AAAAAAAAtb."
    )
    with pytest.raises(pickle.UnpicklingError, match="an array of type O8"):
        plain_pickle.load(BytesIO(forged))


# ImageNet, and names in general


def test_imagenet_is_read_from_its_folders_and_cut_to_squares(tmp_path: Path) -> None:
    for split, count in (("train", 2), ("val", 1)):
        for wnid in ("n01440764", "n01443537"):
            for k in range(count):
                file = tmp_path / split / wnid / f"{wnid}_{k}.JPEG"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(encoded(made.images(1, (40 + 10 * k, 60))[0], "jpeg"))
    data = load("imagenet", "train", data_dir=tmp_path, image_size=16)
    assert data.ids[0] == "n01440764/n01440764_0.JPEG"
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.class_names == ("n01440764", "n01443537")
    assert len(load(tmp_path, "train", image_size=16)) == 4
    assert "2 sizes" in refusal(tmp_path, "train")
    test = load("imagenet", "test", data_dir=tmp_path)  # the labels of its test set are secret
    assert test.image_shape == (3, 256, 256)
    assert len(test) == 2
    assert load("imagenet", "test", data_dir=tmp_path, image_size=24).image_shape == (3, 24, 24)


def test_a_named_set_in_parquet_below_the_folder_of_its_name(tmp_path: Path) -> None:
    pngs = [encoded(image) for image in SQUARES]
    write_parquet(
        tmp_path / "svhn" / "cropped_digits" / "train-00000-of-00001.parquet", pngs, DIGITS
    )
    data = load("svhn", "train", data_dir=tmp_path)
    assert data.labels.tolist() == DIGITS.tolist()
    assert data.num_classes == 10  # though no file says so


def test_a_named_set_in_an_npz_of_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "svhn.npz", x_train=SQUARES, y_train=DIGITS)
    assert load("svhn", "train", data_dir=tmp_path).labels.tolist() == DIGITS.tolist()
    assert "no image array" in refusal("svhn", "test", data_dir=tmp_path)


def test_labels_that_the_named_set_cannot_have_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", images=SQUARES, labels=[0, 1, 2, 3, 4, 10])
    assert "outside 0 .. 9" in refusal("cifar10", "train", data_dir=tmp_path)


def test_a_missing_set_says_what_was_looked_for_and_how_to_get_it(tmp_path: Path) -> None:
    message = refusal("svhn", "test", data_dir=tmp_path)
    assert f"no test split of svhn in '{tmp_path}'" in message
    for words in ("test-*.parquet", "test_32x32.mat", "test.npz", "housenumbers", "ufldl-stanford"):
        assert words in message
    message = refusal("cifar10", data_dir=tmp_path / "nowhere")
    assert f"the data folder '{tmp_path / 'nowhere'}' does not exist" in message


@pytest.mark.parametrize(
    ("typed", "meant"), [("svnh", "svhn"), ("cifar", "cifar10"), ("Imagnet", "imagenet")]
)
def test_an_unknown_name_is_told_the_nearest(typed: str, meant: str) -> None:
    message = refusal(typed, "train")
    assert f"there is no dataset called '{typed}'" in message
    assert meant in message.split("perhaps you mean")[1]
    assert "svhn, cifar10, cifar100, imagenet" in message


def test_an_unknown_split_of_a_name_is_told_the_known(tmp_path: Path) -> None:
    assert "its splits are train, test" in refusal("cifar10", "extra", data_dir=tmp_path)
