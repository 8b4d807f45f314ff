"""``autodo export``: parses and prints; ``bundle`` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\
Example, into runs/photos/export:

  autodo export runs/photos

With copies of the image files, for another machine:

  autodo export runs/photos --copy --out photos-corrected
"""


def export(
    run: Annotated[Path, typer.Argument(help="Folder that autodo fit wrote.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write.", show_default="RUN/export", metavar="FOLDER"),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Of the corrected set.",
            show_default="as it came",
            metavar="folder|parquet",
        ),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy image files instead of linking to them.")
    ] = False,
    suggestions: Annotated[
        bool,
        typer.Option(help="Correct labels that look wrong also where nobody reviewed them."),
    ] = True,
    source: Annotated[
        Path | None,
        typer.Option(help="The training set, if it was moved since.", metavar="PATH"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export.")
    ] = False,
) -> None:
    """Take away what a run learned: corrected images, weights, tables, a PyTorch loader."""
    from autodo.export import bundle

    written = bundle.export(
        run,
        out,
        layout=layout,
        copy=copy,
        suggestions=suggestions,
        source=source,
        overwrite=overwrite,
    )
    width = max(len(str(path)) for path in written)
    for path, about in written.items():
        typer.echo(f"{path!s:{width}}  {about}")
    if not any(path.name == "dataset" for path in written):
        typer.echo(
            "no corrected set was written: the run does not know where its images lie; say it "
            "with --source",
            err=True,
        )
