"""``autodo export``: a folder with all that another trainer needs of a run.

It comes into being whole: everything is written beside it and moved into place at the end.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from autodo.errors import InputError
from autodo.export.dataset import LAYOUTS, Corrected, write_dataset
from autodo.export.decisions import Final, final_labels, load_reviewed, read, standing
from autodo.export.learned import FILE as LAMBDA
from autodo.export.origin import Origin
from autodo.report.run import Run

MARK = "export.json"
"""Says that a folder is an export, and of what; only such a folder is ever replaced."""


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    layout: str | None = None,
    copy: bool = False,
    suggestions: bool = True,
    source: str | Path | None = None,
    overwrite: bool = False,
) -> dict[Path, str]:
    """Write what the run in the folder ``run`` learned; returns the files with what they are.

    out: the folder, RUN/export unless told. layout: of the corrected set, "folder" or "parquet";
    as it came unless told. copy: copy image files instead of linking to them. suggestions: where no
    person decided, a label that looks wrong becomes the suggested one. source: where the training
    set lies, if the run does not know or it was moved. overwrite: replace an earlier export.
    """
    opened = Run.open(run)
    place = opened.path / "export" if out is None else Path(out)
    _check(place, layout, overwrite)
    count, classes = opened.points.num_rows, opened.classes
    decisions = standing(read(run, count=count, num_classes=len(classes)))
    final = final_labels(opened.points, decisions, suggestions=suggestions)
    origin = Origin.of(source) if source is not None else _origin(opened)
    place.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
    try:
        work.chmod(0o755)
        written = _write_numbers(opened, final, work)
        if origin is not None:
            corrected = Corrected(
                ids=opened.points["id"].to_pylist(),
                given=opened.columns["given_label"],
                final=final,
                weights=np.asarray(opened.columns["weight"], np.float32),
                classes=classes,
            )
            kind = write_dataset(origin, corrected, work / "dataset", layout=layout, copy=copy)
            written["dataset"] = f"the corrected training set as {kind}, with weights"
        about = {"run": str(opened.path.resolve()), "reviewed": len(decisions)}
        (work / MARK).write_text(json.dumps(about), encoding="utf-8")
        if place.exists():
            shutil.rmtree(place)
        work.rename(place)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return {place / name: text for name, text in written.items()}


def _check(place: Path, layout: str | None, overwrite: bool) -> None:
    if layout is not None and layout not in LAYOUTS:
        raise InputError(
            f"there is no layout {layout!r}", f"the layouts are {', '.join(LAYOUTS)}", "choose one"
        )
    if not place.exists():
        return
    if place.is_dir() and (place / MARK).is_file() and overwrite:
        return
    mine = place.is_dir() and (place / MARK).is_file()
    raise InputError(
        f"'{place}' exists already",
        "it is an earlier export" if mine else "it is not an export, so it is left alone",
        "replace it with --overwrite, or name another place with --out"
        if mine
        else "name another place with --out",
    )


def _origin(run: Run) -> Origin | None:
    about = run.view.read_about().get("source") if run.view.exists else None
    return None if about is None else Origin.from_json(about)


def _write_numbers(run: Run, final: Final, out: Path) -> dict[str, str]:
    """All but the images: the table, weights and labels as arrays, lambda and what reads it."""
    table = points_table(run, final)
    pq.write_table(table, out / "points.parquet")
    csv.write_csv(table, out / "points.csv")
    weights = np.where(final.usable, np.asarray(run.columns["weight"], np.float64), 0.0)
    np.save(out / "sample_weight.npy", weights, allow_pickle=False)
    np.save(out / "labels.npy", final.labels.astype(np.int64), allow_pickle=False)
    written = {
        "points.parquet": "one row per training image, with cleanlab's names of columns",
        "points.csv": "the same as text",
        "sample_weight.npy": "sample_weight for scikit-learn, in the order of the training set",
        "labels.npy": "the corrected labels in that order",
    }
    if (run.path / LAMBDA).is_file():
        load_reviewed(run.path).save(out)
        snippet = (files("autodo.export") / "snippet.py").read_text(encoding="utf-8")
        (out / "loader.py").write_text(snippet, encoding="utf-8")
        written["loader.py"] = "weights, soft labels and augmentation in a PyTorch loop"
        written[LAMBDA] = "what loader.py reads"
    return written


def points_table(run: Run, final: Final) -> pa.Table:
    """points.parquet of the run with predicted_label, which is cleanlab's name, and the outcome."""
    table = run.points.append_column("predicted_label", run.points["suggested_label"])
    names = np.asarray(run.classes, dtype=object)
    for name, labels in (
        ("given_name", run.columns["given_label"]),
        ("predicted_name", run.columns["suggested_label"]),
        ("final_name", final.labels),
    ):
        table = table.append_column(name, pa.array(names[labels].tolist(), pa.string()))
    table = table.append_column("final_label", pa.array(final.labels, pa.int64()))
    table = table.append_column("reviewed", pa.array(final.reviewed))
    return table.append_column("usable", pa.array(final.usable))
