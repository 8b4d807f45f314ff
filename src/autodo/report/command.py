"""``autodo report``: parses and prints; ``page`` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = "Example:\n\n  autodo report runs/demo"


def report(
    run: Annotated[
        Path, typer.Argument(help="Folder that autodo fit or autodo demo wrote.", metavar="RUN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="RUN/report.html", metavar="FILE"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Make one page of a run to look at: wrong labels, weights, augmentation, curves, a map."""
    from autodo.report.page import write_report

    path = write_report(run, out, progress=not quiet)
    if not quiet:
        size = path.stat().st_size / 1e6
        typer.echo(f"{path}  {size:.1f} MB, complete in itself: open it in a browser")
