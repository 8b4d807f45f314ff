"""``autodo report``: the run folder as one HTML file that opens anywhere, offline.

Text goes through Jinja's autoescape or into JSON (see ``embed``), and the page's scripts set text
only as text: names of classes and files cannot become markup. The policy in the page's head allows
its own script and no request.
"""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from autodo.config import Config
from autodo.errors import InputError
from autodo.export.origin import Origin
from autodo.report import embed
from autodo.report.collect import standing_out
from autodo.report.outcome import duration, outcome, percent, tiles
from autodo.report.pictures import sheet_columns
from autodo.report.projection import load_projection
from autodo.report.run import Run
from autodo.report.summaries import (
    augmentation,
    class_table,
    confusion,
    curves,
    weight_histograms,
)
from autodo.report.view import read_table
from autodo.train.files import readable, write_text

THUMBNAIL_BYTES, STRIP_BYTES, SPRITE_BYTES, ID_BYTES = 2_600_000, 1_800_000, 2_200_000, 1_200_000
"""What pictures and names may take, so that the page stays below 15 MB (base64 adds a third)."""
SHOWN_POINTS = 100_000
SCRIPTS = ("base", "curves", "confusion", "histogram", "gallery", "augment", "scatter", "main")


def write_report(run: str | Path, out: str | Path | None = None, *, progress: bool = False) -> Path:
    """Write the report of the run in the folder ``run``; returns its path.

    ``out`` is report.html in the folder unless told otherwise.
    """
    opened = Run.open(run)
    path = opened.path / "report.html" if out is None else Path(out)
    if path.is_dir():
        raise InputError(f"'{path}' is a folder", "a report is one file", "name a file, x.html")
    if path.exists() and path.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"'{path}' exists and is no report",
            "its name does not end in .html, and a file of the run or of yours would be lost",
            "name another file, x.html",
        )
    write_text(path, render(opened, progress=progress))
    return path


def render(run: Run, *, progress: bool = False) -> str:
    """The page as text."""
    # Imported here: Jinja comes with torch, and nothing else of autodo needs it.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["percent"] = percent
    parts = "\n".join(asset(f"{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();\n'
    data = page_data(run, progress=progress)
    return environment.get_template("report.html").render(
        run=run,
        name=run.path.resolve().name,
        outcome=outcome(run),
        tiles=tiles(run),
        classes=class_table(run),
        settings=settings(run.config),
        facts=facts(run),
        styles=embed.Markup(asset("base.css") + asset("report.css")),
        script=embed.Markup(script),
        policy=embed.script_hash(script),
        data=data,
        json=embed.json_text(data),
    )


def asset(name: str) -> str:
    """A file of the folder assets."""
    return (files("autodo.report") / "assets" / name).read_text(encoding="utf-8")


def page_data(run: Run, *, progress: bool = False) -> dict[str, Any]:
    """What the scripts of the page draw, as JSON; a part is None where the run has none."""
    groups, images = _gallery(run)
    return {
        "classes": run.classes,
        "curves": curves(run),
        "confusion": _confusion(run),
        "histogram": weight_histograms(run),
        "gallery": groups,
        "images": images,
        "augmentation": augmentation(run),
        "strips": _strips(run),
        "map": _map(run, progress),
        "points": _points(run),
    }


def settings(config: Config) -> list[dict[str, Any]]:
    """Every field of the configuration with its value, and whether it is not the default."""
    return [
        {
            "name": field.name,
            "value": "automatic" if (value := getattr(config, field.name)) is None else str(value),
            "changed": value != field.default,
        }
        for field in dataclasses.fields(config)
    ]


def facts(run: Run) -> dict[str, str]:
    """Where the run lies, what it was made of and with."""
    shown = {"run": str(run.path)}
    if run.view.exists and (source := run.view.read_about().get("source")):
        shown["training set"] = str(Origin.from_json(source))
    for name in ("train", "trusted", "test"):
        if name in run.data:
            shown[f"{name} images"] = f"{run.data[name]:,}"
    shown["classes"] = f"{len(run.classes):,}"
    shown["seed"] = str(run.config.seed)
    shown["time of training"] = duration(run.seconds)
    return shown | {f"{name} version": value for name, value in run.versions.items()}


def _confusion(run: Run) -> dict[str, Any] | None:
    if run.judged is None:
        return None
    seen = run.predictions[run.judged]
    count = len(run.classes)
    matrices = [("AutoDO", confusion(seen["label"], seen["predicted"], count))]
    if run.judged == "test":
        matrices += [(b.name, np.asarray(b.confusion)) for b in run.baselines]
    return {
        "set": run.judged,
        "matrices": [
            {
                "name": name,
                "error": percent(float(matrix.sum() - np.trace(matrix)) / max(matrix.sum(), 1)),
                # Of a thousand classes nearly all pairs are empty.
                "cells": [[*map(int, ij), int(matrix[tuple(ij)])] for ij in np.argwhere(matrix)],
            }
            for name, matrix in matrices
            if matrix.shape == (count, count)
        ],
    }


def _gallery(run: Run) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """The examples that stand out, and the pictures of them by index."""
    groups = {name: index.tolist() for name, index in standing_out(run.columns).items()}
    pictures: dict[int, bytes] = {}
    if run.view.exists:
        table = read_table(run.view.thumbnails)
        pictures = dict(zip(table["index"].to_pylist(), table["image"].to_pylist(), strict=True))
    # In turn, so that a page that is full has the surest of every group.
    turns = max(map(len, groups.values()), default=0)
    order = list(dict.fromkeys(g[k] for k in range(turns) for g in groups.values() if k < len(g)))
    order = [i for i in order if i in pictures]
    order = order[: embed.within((pictures[i] for i in order), THUMBNAIL_BYTES)]
    images = {str(i): embed.data_uri(pictures[i]) for i in order}
    ids, columns = run.points["id"], run.columns
    shown = {
        name: [
            {
                "index": i,
                "id": ids[i].as_py(),
                "given": int(columns["given_label"][i]),
                "suggested": int(columns["suggested_label"][i]),
                "score": round(float(columns["label_score"][i]), 5),
                "weight": round(float(columns["weight"][i]), 4),
            }
            for i in index
        ]
        for name, index in groups.items()
    }
    return shown, images


def _strips(run: Run) -> list[dict[str, Any]]:
    """Augmented views of an example of every class, then of single examples."""
    if not run.view.exists:
        return []
    rows = read_table(run.view.strips).to_pylist()
    rows = rows[: embed.within((row["image"] for row in rows), STRIP_BYTES)]
    strips: list[dict[str, Any]] = []
    ids = run.points["id"]
    for row in rows:
        if row["view"] == 0:
            about = {k: row[k] for k in ("kind", "label", "index")}
            strips.append({**about, "id": ids[row["index"]].as_py(), "images": []})
        strips[-1]["images"].append(embed.data_uri(row["image"]))
    # The budget may end within a strip.
    return [strip for strip in strips if len(strip["images"]) == len(strips[0]["images"])]


def _map(run: Run, progress: bool) -> dict[str, Any] | None:
    if not run.view.exists:
        return None
    table = read_table(run.view.map)
    sets, index = np.asarray(table["set"]), np.asarray(table["index"])
    console = Console(stderr=True)
    if progress and not run.view.projection.is_file() and console.is_terminal:
        with console.status(f"placing {len(index):,} images on the map (t-SNE) ..."):
            xy = load_projection(run.view, run.config.seed)
    else:
        xy = load_projection(run.view, run.config.seed)
    names = list(dict.fromkeys(sets.tolist()))
    label, predicted = (np.zeros(len(index), np.int64) for _ in range(2))
    suspect = np.zeros(len(index), bool)
    for name in names:
        rows = sets == name
        label[rows] = run.predictions[name]["label"][index[rows]]
        predicted[rows] = run.predictions[name]["predicted"][index[rows]]
        if name == "train":
            suspect[rows] = run.columns["is_label_issue"][index[rows]]
    with readable(run.view.sprite):
        sprite = embed.squeezed(run.view.sprite.read_bytes(), SPRITE_BYTES)
    return {
        "sets": names,
        "set": embed.packed([names.index(name) for name in sets.tolist()], "u1"),
        "index": embed.packed(index, "u4"),
        "label": embed.packed(label, "u2"),
        "predicted": embed.packed(predicted, "u2"),
        "suspect": embed.packed(suspect, "u1"),
        "x": embed.packed(xy[:, 0] * 65535, "u2"),
        "y": embed.packed(xy[:, 1] * 65535, "u2"),
        "sprite": None if sprite is None else embed.data_uri(sprite),
        "columns": sheet_columns(len(index)),
    }


def _points(run: Run) -> dict[str, Any]:
    """Score, weight and labels of every point; of very many, the most suspicious and a sample."""
    columns = run.columns
    count = run.points.num_rows
    chosen = np.arange(count)
    if count > SHOWN_POINTS:
        order = np.argsort(columns["label_score"], kind="stable")
        surest, rest = order[: SHOWN_POINTS // 2], order[SHOWN_POINTS // 2 :]
        sample = np.random.default_rng(run.config.seed).choice(
            rest, SHOWN_POINTS - len(surest), replace=False
        )
        chosen = np.sort(np.concatenate([surest, sample]))
    logs = np.log2(np.maximum(columns["weight"][chosen], 2.0**-8))
    low, high = float(logs.min()), float(logs.max())
    if high - low < 0.2:
        low, high = low - 0.1, high + 0.1
    ids = run.points["id"].take(chosen).to_pylist()
    fits = sum(len(text.encode()) + 3 for text in ids) <= ID_BYTES
    return {
        "total": count,
        "index": embed.packed(chosen, "u4"),
        "score": embed.packed(columns["label_score"][chosen].clip(0, 1) * 65535, "u2"),
        "weight": embed.packed((logs - low) / (high - low) * 65535, "u2"),
        "range": [low, high],
        "given": embed.packed(columns["given_label"][chosen], "u2"),
        "suggested": embed.packed(columns["suggested_label"][chosen], "u2"),
        "ids": ids if fits else None,
    }
