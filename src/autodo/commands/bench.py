"""``autodo bench``: how long the steps take on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = "Example:\n\n  autodo bench --json bench.json"


class Part(StrEnum):
    """What can be measured by itself."""

    steps = "steps"
    rows = "rows"
    host = "host"


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    network: Annotated[
        str | None,
        typer.Option(
            help="Such as wrn-16-4.",
            show_default="wrn-28-10; wrn-10-1 on CPU",
            metavar="NAME",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.", min=2)] = None,
    points: Annotated[int | None, typer.Option(help="Training images.", min=2)] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(help="Lengths of lambda's tables to compare; again for each.", metavar="N"),
    ] = None,
    only: Annotated[
        list[Part] | None,
        typer.Option(
            help="steps: training and hyper steps; rows: tables of several lengths; host: images "
            "that stay on the host. Again for each.",
            show_default="all of them",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write everything measured here, too.", metavar="FILE")
    ] = None,
) -> None:
    """Time the steps beside the machine's limits and beside the published way."""
    from autodo.experiment.bench import command

    command.run(
        device=device,
        network=network,
        batch=batch,
        points=points,
        sizes=tuple(rows) if rows else None,
        parts=tuple(part.value for part in only or Part),
        json_file=json,
    )
