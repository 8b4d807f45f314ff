"""``autodo review``: parses and prints; ``server`` does the work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\
Example; it prints a link to open in a browser, Ctrl-C ends it:

  autodo review runs/photos

With the trusted images, to compare with at full size:

  autodo review runs/photos --trusted photos/trusted
"""


def review(
    run: Annotated[
        Path, typer.Argument(help="Folder that autodo fit or autodo demo wrote.", metavar="RUN")
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            help="The training set, if it was moved since or the run does not know it.",
            metavar="PATH",
        ),
    ] = None,
    trusted: Annotated[
        Path | None,
        typer.Option(help="The trusted set; else the run's own small pictures.", metavar="PATH"),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Of this machine; any free one if 0.", min=0, max=65535)
    ] = 0,
) -> None:
    """Judge the labels that look wrong on a local page, by mouse or by keyboard."""
    # A set known by name is looked up in what was fetched before; no request leaves the machine.
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    from autodo.export.origin import Origin
    from autodo.review.server import Server
    from autodo.review.session import Session

    origins = {
        "source": None if source is None else Origin.of(source),
        "trusted": None if trusted is None else Origin.of(trusted),
    }
    with Session.open(run, **origins) as session, Server(session, port) as server:
        before = len(session.log)
        for note in (gallery.note for gallery in session.galleries.values()):
            if note:
                typer.echo(f"note: {note}", err=True)
        suspects = int(session.run.columns["is_label_issue"].sum())
        typer.echo(f"{suspects:,} of {session.count:,} labels look wrong; review them at")
        typer.echo(f"  {server.link}")
        typer.echo(f"decisions go to {session.log.path} at once; Ctrl-C ends the page")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            made = len(session.log) - before
            typer.echo(f"\n{made:,} written; take them away with: autodo export {run}")
