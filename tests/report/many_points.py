"""A run folder of any size with pictures of pure noise, written without training anything."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_file

import autodo
from autodo.hyper.augment import Augment
from autodo.report.collect import standing_out
from autodo.report.pictures import sheet_columns, thumbnail
from autodo.report.view import ViewFolder, write_table
from autodo.train.run_folder import RunFolder

CLASSES = 100
MAP = 5000


def make_large_run(path: Path, *, points: int) -> Path:
    rng = np.random.default_rng(0)
    names = [f"class number {c}" for c in range(CLASSES)]
    sizes = {"train": points, "trusted": 1000, "test": 2000}
    folder = RunFolder.open(
        path, autodo.Config(epochs=3), {**sizes, "classes": names, "fingerprint": "made"}
    )
    numbers = {"train_loss": 1.0, "trusted_loss": 1.0, "test_loss": 1.0}
    errors = {"trusted_error": 0.1, "test_error": 0.2, "seconds": 1.0}
    folder.write_metrics([{"epoch": e, **numbers, **errors} for e in (1, 2, 3)])
    given = rng.integers(0, CLASSES, points)
    wrong = rng.random(points) < 0.1
    suggested = np.where(wrong, (given + 1) % CLASSES, given)
    columns = {
        "index": np.arange(points),
        "id": [f"class number {c}/photo {i}.jpg" for i, c in enumerate(given)],
        "given_label": given,
        "suggested_label": suggested,
        "label_score": np.where(wrong, 0.1, 0.9) * rng.random(points),
        "is_label_issue": suggested != given,
        "weight": np.exp(rng.normal(0, 0.5, points)),
    }
    for name in Augment("affine").operations:
        columns |= {f"{name}_magnitude": rng.random(points)}
        columns |= {f"{name}_probability": rng.random(points)}
    folder.save_points(pa.table(columns))
    _make_view(ViewFolder(path), columns, sizes, rng)
    return path


def _make_view(
    view: ViewFolder,
    columns: dict[str, np.ndarray],
    sizes: dict[str, int],
    rng: np.random.Generator,
) -> None:
    view.begin()
    noise = [thumbnail(torch.from_numpy(rng.random((3, 96, 96)))) for _ in range(60)]
    index = np.unique(np.concatenate(list(standing_out(columns).values())))
    images = pa.array([noise[i % 60] for i in index], pa.binary())
    write_table(view.thumbnails, {"index": index, "image": images})
    strips = [("class", c, c, v, noise[(8 * c + v) % 60]) for c in range(60) for v in range(8)]
    keys = ("kind", "label", "index", "view", "image")
    write_table(view.strips, {k: [s[j] for s in strips] for j, k in enumerate(keys)})
    sets = [name for name, size in sizes.items() for _ in range(size)]
    count = len(sets)
    label = np.concatenate([columns["given_label"], rng.integers(0, CLASSES, 3000)])
    write_table(
        view.predictions,
        {
            "set": pa.array(sets).dictionary_encode(),
            "index": np.concatenate([np.arange(size) for size in sizes.values()]),
            "label": label,
            "predicted": np.where(rng.random(count) < 0.2, 0, label),
            "confidence": rng.random(count),
        },
    )
    write_table(view.map, {"set": pa.array(["train"] * MAP), "index": np.arange(MAP)})
    side = sheet_columns(MAP) * 32
    picture = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    picture.save(buffer, format="WEBP", quality=80, method=0)
    view.sprite.write_bytes(buffer.getvalue())
    save_file({"xy": torch.rand(MAP, 2)}, view.projection)
    view.finish({"image_shape": [3, 96, 96], "source": None})
    assert pq.read_table(view.map).num_rows == MAP
