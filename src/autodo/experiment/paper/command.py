"""``autodo paper``: the paper's tables from the command line. Thin: it only parses and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autodo.errors import InputError
from autodo.experiment.paper import cells

EXAMPLES = """\
Example, every cell there is, then one of them in small on a laptop, about a minute:

  autodo paper --list

  autodo paper svhn 100-0.1 aws --scale small --seeds 1 --data-dir data

The paper's own protocol, four runs; the same command goes on where it was stopped:

  autodo paper svhn 100-0.1 aws --seeds 4 --data-dir data --figures

What was run so far beside the paper's numbers:

  autodo paper --table 1
"""


def paper(
    dataset: Annotated[
        str | None, typer.Argument(help="svhn, cifar10, cifar100 or imagenet.", metavar="DATASET")
    ] = None,
    distortion: Annotated[
        str | None,
        typer.Argument(help="Imbalance ratio and noise ratio, as 100-0.1.", metavar="IR-NR"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Argument(
            help="baseline, raa, faa, dada, sha, a, aw, aws; --list shows those of the ablations.",
            metavar="METHOD",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show every cell of every table.")] = False,
    table: Annotated[
        str | None,
        typer.Option(help="Show a table: 1 to 6, or E for the study of E.", metavar="N"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs; finished ones are skipped.", min=1)] = 4,
    scale: Annotated[
        str, typer.Option(help="full, or small for a trial on a CPU.", metavar="full|small")
    ] = "full",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder that holds the data set; without it, it is fetched."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of all runs.", show_default="runs/paper, or runs/paper-small"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    policy_file: Annotated[
        Path | None, typer.Option(help="The searched policy of faa or dada.", metavar="FILE")
    ] = None,
    measure_every: Annotated[
        int,
        typer.Option(help="Epochs between points of the curves; the last is always one.", min=1),
    ] = 1,
    trusted_every: Annotated[
        int,
        typer.Option(help="Hyper steps that share a batch of trusted points; the paper: 1.", min=1),
    ] = 1,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Draw curves, confusion and t-SNE of all methods run on these data."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Run a cell of the paper's tables by its protocol and see it beside the paper's number."""
    if list_:
        _list(dataset)
    elif table is not None:
        _table(table, out, scale)
    elif dataset is None:
        raise InputError(
            "no cell is named",
            "a cell is a data set, a distortion and a method",
            "autodo paper --list shows them; then for instance autodo paper svhn 100-0.1 aws",
        )
    else:
        # A part that is missing is answered like a part that is wrong: with what there is.
        cell = cells.find(dataset, distortion or "", method or "")
        _run(
            cell,
            scale,
            out,
            figures,
            quiet,
            seeds=seeds,
            data_dir=data_dir,
            device=device,
            policy_file=policy_file,
            measure_every=measure_every,
            trusted_every=trusted_every,
        )


def _list(dataset: str | None) -> None:
    from autodo.experiment.paper.tables import list_table

    if dataset is not None:
        cells.check_dataset(dataset)
    _print(list_table(dataset))


def _table(number: str, out: Path | None, scale: str) -> None:
    from autodo.experiment.paper.tables import result_table

    _check_scale(scale)
    _print(result_table(number, _out(out, scale), scale=scale))


def _run(
    cell: cells.Cell, scale: str, out: Path | None, figures: bool, quiet: bool, **options: Any
) -> None:
    """Run a cell and show it; ``options`` are those of ``run_cell``."""
    _check_scale(scale)
    if figures:
        from autodo.experiment.paper.figures import check_matplotlib

        check_matplotlib()  # before the training, not after it
    from autodo.experiment.paper.protocol import SCALES
    from autodo.experiment.paper.runner import run_cell
    from autodo.experiment.paper.tables import cell_table

    root = _out(out, scale)
    results = run_cell(
        cell,
        scale=SCALES[scale],
        out=root,
        progress=not quiet,
        tell=lambda text: None if quiet else typer.echo(text, err=True),
        **options,
    )
    if not quiet:
        _print(cell_table(cell, results, scale=scale))
    if figures:
        from autodo.experiment.paper.figures import draw

        files = draw(root, cell.dataset, cell.distortion)
        if not quiet:
            typer.echo("figures, with their numbers beside them:")
            for file in files:
                typer.echo(f"  {file}")


def _check_scale(scale: str) -> None:
    if scale not in ("full", "small"):
        raise InputError(
            f"--scale is {scale!r}",
            "full is the paper's protocol, small a trial of a minute",
            "write --scale full or --scale small",
        )


def _out(out: Path | None, scale: str) -> Path:
    """Each scale has its own folder: one mean must not mix them."""
    return Path("runs/paper" if scale == "full" else f"runs/paper-{scale}") if out is None else out


def _print(table: object) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160  # whole rows in logs and pipes
    console.print(table)
