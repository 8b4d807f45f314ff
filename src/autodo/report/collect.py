"""What a run keeps to be looked at, gathered when training has ended.

One pass over every set in eval mode gives predictions and features; pictures are kept of the
examples that stand out, of a sample for the map, and of augmented views. All of it is bounded: a
run on a million images keeps as many pictures as one on a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from autodo.data.loader import Loader
from autodo.data.randomness import borrowed, derive, generator_for
from autodo.export.learned import Learned
from autodo.export.origin import Origin
from autodo.report import pictures
from autodo.report.view import ViewFolder, write_table
from autodo.train.files import atomic
from autodo.train.helpers import EVALUATION_BATCH
from autodo.train.hyper_optimizer import evaluating
from autodo.train.loop import Trainer
from autodo.train.progress import counting

SUSPICIOUS, RAISED, MUTED = 400, 100, 100
"""Pictures of the surest wrong labels, of the highest and of the lowest weights."""
MAP_POINTS = {"test": 2000, "trusted": 1000, "train": 5000}
"""Examples of the map: at most so many of each set, and 5,000 in all."""
KEPT_FEATURES = 100_000
"""Examples of a set whose features are kept."""
COMPONENTS = 64
"""Principal components that are kept of the features."""
STRIP_CLASSES, STRIP_EXAMPLES, STRIP_VIEWS = 60, 12, 7
VIEW = 7
"""Purpose of the random numbers here; those of training end at 6."""


@torch.no_grad()
def collect(
    trainer: Trainer,
    points: pa.Table,
    run: str | Path,
    *,
    source: Origin | None = None,
    trusted_source: Origin | None = None,
    progress: bool = False,
) -> None:
    """Write the view of the run in the folder ``run``.

    ``points`` is the points table; ``source`` is where train was read from, which the export
    needs to hand out a corrected set in the same layout, and the review, with
    ``trusted_source``, to show images in full.
    """
    folder = ViewFolder(run)
    folder.begin()
    columns = {name: np.asarray(points[name]) for name in _COLUMNS}
    sets = {"train": (trainer.points, trainer.count)}
    sets["trusted"] = (trainer.trusted, len(trainer.trusted))
    if trainer.test is not None:
        sets["test"] = (trainer.test, len(trainer.test))
    kept = {
        name: _kept(columns["label_score"] if name == "train" else None, count, trainer.config.seed)
        for name, (_, count) in sets.items()
    }
    with counting(progress, "looking at the result") as bar, evaluating(trainer.model):
        task = bar.add_task("", total=sum(count for _, count in sets.values()))
        seen = {
            name: _look(trainer, loader, count, kept[name], lambda n: bar.advance(task, n))
            for name, (loader, count) in sets.items()
        }
    _write_predictions(folder, sets, seen)
    _write_features(folder, kept, seen)
    _write_thumbnails(folder, trainer, columns)
    _write_map(folder, trainer, sets, kept)
    strips = _strips(trainer, columns)
    write_table(folder.strips, strips)
    shape = next(_images(trainer, trainer.points, np.array([0]))).shape
    Learned.of(trainer.data, trainer.count).save(run)
    origins = {"source": source, "trusted_source": trusted_source}
    about = {name: None if origin is None else origin.to_json() for name, origin in origins.items()}
    folder.finish({"image_shape": list(shape), **about})


_COLUMNS = ("given_label", "suggested_label", "label_score", "is_label_issue", "weight")


def _kept(score: np.ndarray | None, count: int, seed: int) -> Tensor:
    """(n,) ascending: all examples, or the most suspicious half and a random one."""
    if count <= KEPT_FEATURES:
        return torch.arange(count)
    order = torch.randperm(count, generator=generator_for(seed, VIEW))
    if score is not None:
        first = torch.from_numpy(np.argsort(score, kind="stable")[: KEPT_FEATURES // 2].copy())
        order = torch.cat([first, order[~torch.isin(order, first)]])
    return order[:KEPT_FEATURES].sort().values


class _Seen:
    """What one pass over a set saw: predicted (N,), confidence (N,), features (n, D) float16."""

    def __init__(self, predicted: Tensor, confidence: Tensor, features: Tensor) -> None:
        self.predicted, self.confidence, self.features = predicted, confidence, features


def _look(
    trainer: Trainer,
    loader: Loader,
    count: int,
    kept: Tensor,
    advance: Callable[[int], object],
) -> _Seen:
    wanted = torch.zeros(count, dtype=torch.bool)
    wanted[kept] = True
    predicted, confidence, features = [], [], []
    for images, _, index in loader.batches(EVALUATION_BATCH, seed=None, points=count):
        batch = trainer.take.encode(images)
        top = trainer.head(batch).float().softmax(-1).max(-1)
        predicted.append(top.indices.cpu())
        confidence.append(top.values.cpu())
        features.append(batch[wanted[index.cpu()].to(batch.device)].half().cpu())
        advance(len(index))
    return _Seen(torch.cat(predicted), torch.cat(confidence), torch.cat(features))


def _write_predictions(folder: ViewFolder, sets: dict[str, Any], seen: dict[str, _Seen]) -> None:
    columns: dict[str, list[np.ndarray]] = {}
    names: list[str] = []
    for name, (loader, count) in sets.items():
        names += [name] * count
        for column, values in (
            ("index", torch.arange(count)),
            ("label", loader.labels[:count].cpu()),
            ("predicted", seen[name].predicted),
            ("confidence", seen[name].confidence),
        ):
            columns.setdefault(column, []).append(values.numpy())
    whole = {"set": pa.array(names).dictionary_encode()}
    write_table(folder.predictions, whole | {k: np.concatenate(v) for k, v in columns.items()})


def _write_features(folder: ViewFolder, kept: dict[str, Tensor], seen: dict[str, _Seen]) -> None:
    mean, basis = principal_components([s.features for s in seen.values()], COMPONENTS)
    tensors = {}
    for name, part in seen.items():
        projected = [(f.float() - mean) @ basis for f in part.features.split(8192)]
        tensors[name] = torch.cat(projected).half().contiguous()
        tensors[f"{name}_index"] = kept[name]
    with atomic(folder.features) as file:
        file.write(save_tensors(tensors))


def principal_components(parts: list[Tensor], count: int) -> tuple[Tensor, Tensor]:
    """Mean (D,) and the first ``count`` principal directions (D, K) of the rows of all parts.

    >>> x = torch.tensor([[2.0, 0.1], [-2.0, 0.1], [4.0, 0.1], [-4.0, 0.1]])
    >>> principal_components([x], 1)[1].abs().round()
    tensor([[1.],
            [0.]])
    """
    rows = sum(len(part) for part in parts)
    chunks = [chunk for part in parts for chunk in part.split(8192)]
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks]).sum(0) / rows
    scatter = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for chunk in chunks:
        centred = chunk.double() - mean
        scatter += centred.T @ centred
    directions = torch.linalg.eigh(scatter).eigenvectors.flip(-1)[:, :count]
    # The sign of an eigenvector is the solver's whim; the largest entry shall be positive.
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    return mean.float(), (directions * largest.sign()).float()


def standing_out(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The examples that the report shows: the suspicious, the raised and the muted, surest first.

    >>> found = standing_out({"is_label_issue": np.array([True, False, True, False]),
    ...     "label_score": np.array([0.3, 0.9, 0.1, 0.8]), "weight": np.array([1, 2, 0.5, 1.0])})
    >>> {name: index.tolist() for name, index in found.items()}
    {'suspicious': [2, 0], 'raised': [1], 'muted': [2]}
    """
    score, weight = columns["label_score"], columns["weight"]
    by_score = np.argsort(score, kind="stable")
    by_weight = np.argsort(weight, kind="stable")
    return {
        "suspicious": by_score[columns["is_label_issue"][by_score]][:SUSPICIOUS],
        "raised": by_weight[::-1][: int((weight > 1.001).sum())][:RAISED],
        "muted": by_weight[: int((weight < 0.999).sum())][:MUTED],
    }


def _write_thumbnails(folder: ViewFolder, trainer: Trainer, columns: dict[str, np.ndarray]) -> None:
    index = np.unique(np.concatenate(list(standing_out(columns).values())).astype(np.int64))
    images = [pictures.thumbnail(image) for image in _images(trainer, trainer.points, index)]
    write_table(folder.thumbnails, {"index": index, "image": pa.array(images, pa.binary())})


def _images(trainer: Trainer, loader: Loader, index: np.ndarray) -> Iterator[Tensor]:
    """The images of ``index``, a few at a time; their own transforms draw from the seed."""
    for k, part in enumerate(torch.from_numpy(index).split(EVALUATION_BATCH)):
        with borrowed(derive(trainer.config.seed, VIEW, k)):
            batch = loader.fetch(part).cpu()
        yield from batch


def _write_map(
    folder: ViewFolder, trainer: Trainer, sets: dict[str, Any], kept: dict[str, Tensor]
) -> None:
    generator = generator_for(trainer.config.seed, VIEW)
    room, chosen = MAP_POINTS["train"], {}
    for name in ("test", "trusted", "train"):
        if name in sets:
            size = min(MAP_POINTS[name], room)
            picked = kept[name][torch.randperm(len(kept[name]), generator=generator)[:size]]
            chosen[name] = picked.sort().values.numpy()
            room -= len(picked)
    count = sum(map(len, chosen.values()))
    names = [name for name, index in chosen.items() for _ in index]
    tiles = (
        image for name, index in chosen.items() for image in _images(trainer, sets[name][0], index)
    )
    picture = pictures.sheet(tiles, count)
    with atomic(folder.sprite) as file:
        exact = max(picture.size) <= 71 * 12  # tiny tiles, such as digits of 8x8
        picture.save(file, format="WEBP", lossless=exact, quality=pictures.QUALITY)
    write_table(
        folder.map,
        {"set": pa.array(names, pa.string()), "index": np.concatenate(list(chosen.values()))},
    )


def _strips(trainer: Trainer, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Examples and augmented views of them: one strip per class, some of single examples."""
    strips: dict[str, list[Any]] = {k: [] for k in ("kind", "label", "index", "view", "image")}
    augmentation = trainer.data.augmentation
    if augmentation is not None:
        generator = generator_for(trainer.config.seed, VIEW, 1)
        for kind, label, index, row in _strip_rows(trainer, columns):
            image = next(_images(trainer, trainer.points, np.array([index])))
            batch = image[None].expand(STRIP_VIEWS, -1, -1, -1).to(row.device)
            batch = trainer.data.turned(batch, generator)
            views = augmentation(batch, row[None], generator).cpu()
            for view, shown in enumerate([image, *views]):
                values = (kind, label, index, view, pictures.thumbnail(shown))
                for name, value in zip(strips, values, strict=True):
                    strips[name].append(value)
    integers = {name: pa.array(strips[name], pa.int64()) for name in ("label", "index", "view")}
    return {
        "kind": pa.array(strips["kind"], pa.string()),
        **integers,
        "image": pa.array(strips["image"], pa.binary()),
    }


def _strip_rows(
    trainer: Trainer, columns: dict[str, np.ndarray]
) -> Iterator[tuple[str, int, int, Tensor]]:
    """kind, class, example and augmentation row (2A,) of each strip.

    A class shows the mean row of the examples that are held to be of it, on its surest one. The
    classes and the examples that moved farthest from where all began come first.
    """
    assert trainer.data.augmentation is not None
    table = trainer.data.table("augment")
    initial = trainer.data.augmentation.initial_row().to(table.device, table.dtype)
    everything = torch.arange(trainer.count, device=table.device)
    suggested = torch.tensor(columns["suggested_label"], device=table.device)
    sums = torch.zeros(trainer.data.num_classes, len(initial), device=table.device)
    moved = []
    for part in everything.split(65536):
        rows = table.gather(part)
        sums.index_add_(0, suggested[part], rows.float())
        moved.append((rows - initial).square().sum(-1))
    counts = torch.bincount(suggested, minlength=len(sums)).clamp_min(1)
    means = sums / counts[:, None]
    surest = np.lexsort((-columns["label_score"], columns["suggested_label"]))
    labels, first = np.unique(columns["suggested_label"][surest], return_index=True)
    distance = (means - initial).square().sum(-1).cpu().numpy()[labels]
    shown = np.sort(np.argsort(-distance, kind="stable")[:STRIP_CLASSES])
    for k in shown:
        label = int(labels[k])
        yield "class", label, int(surest[first[k]]), means[label]
    if not table.shared and "augment" in trainer.hyper.learn:
        farthest = torch.cat(moved).cpu().numpy()
        for index in np.argsort(-farthest, kind="stable")[:STRIP_EXAMPLES].tolist():
            row = table.gather(everything[index : index + 1])[0]
            yield "example", int(columns["suggested_label"][index]), index, row
