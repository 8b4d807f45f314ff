"""``autodo demo``: AutoDO beside its alternatives on real digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = "Example:\n\n  autodo demo --noise 0.2 --out runs/demo"


def demo(
    out: Annotated[Path, typer.Option(help="Run folder; an earlier demo in it is replaced.")] = (
        Path("runs/demo")
    ),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    noise: Annotated[
        float, typer.Option(help="Share of the labels that are drawn at random, 0 to 1.")
    ] = 0.4,
) -> None:
    """See AutoDO beside plain training on real digits with wrong labels and rare classes."""
    from autodo.experiment import demo

    demo.run(out=out, seed=seed, noise=noise)
