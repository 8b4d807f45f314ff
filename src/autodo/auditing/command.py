"""``autodo audit``: embeddings from a file to the points table in another, and a short summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autodo.commands.surest import print_surest
from autodo.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = """\
Example, for a Parquet file with the columns embedding, label and trusted:

  autodo audit embeddings.parquet

The trusted points in a file of their own:

  autodo audit train.parquet --trusted trusted.parquet --out points.parquet

An .npz holds embeddings, labels, trusted_embeddings, trusted_labels:

  autodo audit embeddings.npz
"""


def audit(
    file: Annotated[
        Path,
        typer.Argument(
            help="Embeddings and labels (class numbers or names), .parquet or .npz, or a folder "
            "of .parquet files.",
            metavar="FILE",
        ),
    ],
    trusted: Annotated[
        Path | None,
        typer.Option(help="The same of points whose labels are right.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The points table to write, .parquet or .csv.", metavar="FILE")
    ] = Path("points.parquet"),
    embedding_column: Annotated[
        str | None,
        typer.Option(help="Column or array of the embeddings.", metavar="NAME"),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column or array of the labels.", metavar="NAME")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column or array of the ids.", metavar="NAME")
    ] = None,
    trusted_column: Annotated[
        str | None,
        typer.Option(
            help="Boolean column that marks the trusted rows.",
            metavar="NAME",
            show_default="trusted",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier points table.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Find wrong labels from embeddings: no images, no training, seconds on a CPU."""
    _check_out(out, overwrite, [place for place in (file, trusted) if place is not None])
    from autodo.auditing.audit import audit
    from autodo.auditing.files import Names, read_pair
    from autodo.train.files import write_with

    names = Names(
        embedding=embedding_column, label=label_column, id=id_column, trusted=trusted_column
    )
    train, right = read_pair(file, trusted, names)
    points = audit(
        train.embeddings,
        train.labels,
        right.embeddings,
        right.labels,
        class_names=train.class_names or right.class_names,
        ids=train.ids,
        seed=seed,
        progress=not quiet,
    )
    write_with(out, lambda opened: _write(points, opened, out.suffix))
    if not quiet:
        _summarise(points, out)


def _check_out(out: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(
            f"--out is '{out}'",
            "the points table is written as .parquet or .csv",
            "let its name end in .parquet",
        )
    for place in inputs:
        _check_apart(out, place)
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError(
            f"'{out}' already exists",
            "it is a folder" if out.is_dir() else "an earlier audit may have written it",
            "name another file with --out"
            + ("" if out.is_dir() else ", or replace it with --overwrite"),
        )
    if not out.parent.is_dir():
        raise InputError(
            f"the folder '{out.parent}' does not exist",
            "the points table is to be written into it",
            "make it, or name another file with --out",
        )


def _check_apart(out: Path, place: Path) -> None:
    """Refuse a table that would replace what is read at ``place``, or be read with it later."""
    parts = [place]
    if place.is_dir():
        from autodo.data.sources.layouts import parquet_sets

        parts = [
            f for found in parquet_sets(place).values() for files in found.values() for f in files
        ]
        folders = [place, *(part.parent for part in parts)]
        if out.suffix == ".parquet" and out.parent.resolve() in {f.resolve() for f in folders}:
            raise InputError(
                f"--out is '{out}', in the folder '{place}' that is read",
                "the points table would be taken for a part of the embeddings the next time",
                "name a file in another folder with --out",
            )
    if out.is_file() and any(part.is_file() and out.samefile(part) for part in parts):
        raise InputError(
            f"--out is '{out}', a file that is read",
            "the points table would replace the embeddings in it",
            "name another file with --out",
        )


def _write(points: pa.Table, opened: object, suffix: str) -> None:
    if suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(points, opened)
    else:
        import pyarrow.parquet as pq

        pq.write_table(points, opened)


def _summarise(points: pa.Table, out: Path) -> None:
    """How many labels look wrong, the surest of them, and where the table is."""
    import pyarrow.compute as pc
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # whole paths in logs and pipes
    names = points.schema.metadata[b"class_names"].decode().split("\n")
    issues = points.filter(pc.field("is_label_issue")).sort_by("label_score")
    console.print(f"{issues.num_rows:,} of {points.num_rows:,} labels look wrong", markup=False)
    if issues.num_rows == 0:
        console.print(
            "No other label is likelier than the given one. label_score still ranks them: "
            "look at those with the lowest first.",
            soft_wrap=True,
        )
    print_surest(console, issues, names, "id")
    console.print(f"one row per point: {out}", markup=False, soft_wrap=True)
