"""Small sets of random images in every layout, and the arrays that must come out of them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

NAMES = ["cat", "dog", "fox"]


def images(count: int = 6, size: tuple[int, int] = (5, 4), seed: int = 0) -> np.ndarray:
    """(N, H, W, 3), uint8."""
    return np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)


def labels(count: int = 6, classes: int = 3) -> np.ndarray:
    return np.arange(count) % classes


def encoded(image: np.ndarray, kind: str = "png") -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, kind)
    return out.getvalue()


def channels_first(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 3, 1, 2)


def write_parquet(
    path: Path,
    data: list[bytes | None],
    given: list[int | None] | np.ndarray,
    *,
    image: str = "image",
    label: str = "label",
    names: list[str] | None = None,
    plain: bool = False,
    paths: list[str | None] | None = None,
    others: dict[str, list] | None = None,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if plain:
        column = pa.array(data, pa.binary())
    else:
        rows = [
            {"bytes": b, "path": None if paths is None else paths[k]} for k, b in enumerate(data)
        ]
        column = pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    table = pa.table({image: column, label: pa.array(list(given), pa.int64()), **(others or {})})
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"_type": "ClassLabel", "names": names}}
        meta = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(meta)
    pq.write_table(table, path, row_group_size=4)
    return path


def write_class_folders(root: Path, array: np.ndarray, given: np.ndarray) -> Path:
    for k, (image, label) in enumerate(zip(array, given, strict=True)):
        file = root / NAMES[label] / f"{k}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return root


def write_idx(path: Path, array: np.ndarray) -> Path:
    """MNIST's layout, gzipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    data = bytes((0, 0, 8, array.ndim)) + lengths + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_mat(path: Path, array: np.ndarray, digits: np.ndarray) -> Path:
    """SVHN's layout, in which the digit 0 is labelled 10."""
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(
        path,
        {
            "X": array.transpose(1, 2, 3, 0),
            "y": np.where(digits == 0, 10, digits).astype(np.uint8)[:, None],
        },
        do_compression=True,
    )
    return path


def write_cifar(root: Path, dataset: str, per_batch: int = 4, protocol: int = 2) -> Path:
    """CIFAR's pickled batches below ``root``; each batch k holds the images of seed k."""
    ten = dataset == "cifar10"
    folder = root / ("cifar-10-batches-py" if ten else "cifar-100-python")
    folder.mkdir(parents=True)
    batches = (
        [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"] if ten else ["train", "test"]
    )
    key = b"labels" if ten else b"fine_labels"
    for seed, name in enumerate(batches):
        batch = {
            b"data": channels_first(images(per_batch, (32, 32), seed)).reshape(per_batch, -1),
            key: [(seed + k) % 10 for k in range(per_batch)],
            b"batch_label": name.encode(),
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    count = 10 if ten else 100
    meta = {
        b"label_names" if ten else b"fine_label_names": [
            f"class {c}".encode() for c in range(count)
        ]
    }
    name = "batches.meta" if ten else "meta"
    (folder / name).write_bytes(pickle.dumps(meta, protocol=protocol))
    return folder


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive
