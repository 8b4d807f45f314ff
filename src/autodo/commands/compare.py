"""``autodo compare``: which method to use on your data."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from autodo.commands.given import (
    BatchSize,
    Channels,
    ConfigFile,
    DataDir,
    Device,
    Epochs,
    ImageSize,
    Model,
    Rate,
    Settings,
    SkipCorrupt,
    make_network,
    part,
    read_config,
    read_sets,
)
from autodo.commands.telling import this_command
from autodo.errors import InputError

EXAMPLES = """\
Example, for your own data; the same command goes on where it was stopped:

  autodo compare photos/train --trusted photos/trusted --test photos/test

A first look, with digits that need no download, a few minutes:

  autodo compare digits --distortion 10-0.4 --trusted 200

A clean set made messy (the later classes rarer, 10% wrong labels), 1,000 points trusted:

  autodo compare svhn --data-dir data --distortion 100-0.1 --trusted 1000
"""


def compare(
    train: Annotated[
        str, typer.Argument(help="The messy set, as for autodo fit.", metavar="TRAIN")
    ],
    trusted: Annotated[
        str,
        typer.Option(
            help="The trusted set, or a number of points to take out of TRAIN.", metavar="SET|N"
        ),
    ],
    test: Annotated[
        str | None,
        typer.Option(
            help="To measure on; with --distortion a number of points held out of TRAIN, too.",
            metavar="SET",
            show_default="the test part of a named TRAIN",
        ),
    ] = None,
    distortion: Annotated[
        str | None,
        typer.Option(help="Make TRAIN messy: imbalance-noise, as 100-0.1.", metavar="IR-NR"),
    ] = None,
    true_labels: Annotated[
        Path | None,
        typer.Option(help="What the labels of TRAIN should be, if you know.", metavar="FILE"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of every method.", min=1)] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One method; again for each. Without it all.", metavar="METHOD"),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="All methods but those that begin so.", metavar="METHOD"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of results.", show_default="runs/compare-<TRAIN>")
    ] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    device: Device = None,
    model: Model = "small_cnn",
    image_size: ImageSize = None,
    channels: Channels = None,
    data_dir: DataDir = None,
    skip_corrupt: SkipCorrupt = False,
    config: ConfigFile = None,
    settings: Settings = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run what you could do instead beside AutoDO, on your data, and see which to use."""
    from rich.console import Console

    from autodo.experiment.cleaning import check_cleanlab
    from autodo.experiment.compare import Comparison
    from autodo.experiment.methods import CLEANLAB, METHODS
    from autodo.experiment.own_task import task_maker
    from autodo.models.registry import find
    from autodo.train.devices import choose_device

    methods = _chosen(METHODS, only or [], skip or [])
    if CLEANLAB in methods:
        check_cleanlab()
    flags = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "device": device}
    chosen = read_config(config, settings or [], flags)
    choose_device(chosen.device)
    builder = find(model)
    options = {
        "image_size": image_size,
        "channels": channels,
        "data_dir": data_dir,
        "skip_corrupt": skip_corrupt,
    }

    names: list[str] = []

    def load(source: str, name: str) -> Any:
        found = read_sets({name: source}, show=not quiet, class_names=names or None, **options)[
            name
        ]
        names[:] = found.class_names
        return found

    make, about = task_maker(
        load, train, trusted, test or _test_part(train), distortion=distortion,
        true_labels=true_labels,
    )  # fmt: skip
    folder = out or Path("runs") / f"compare-{Path(part(train)[0]).resolve().stem}"
    setting = {**about, "model": model, "config": _as_text(chosen)}
    title = f"{train}{f' {distortion}' if distortion else ''}, {about['trusted']:,} trusted"
    comparison = Comparison(folder, setting, title=title, overwrite=overwrite)
    console = Console(highlight=False)
    comparison.run(
        make,
        chosen,
        lambda task, seed: lambda: make_network(builder, task.train, seed),
        methods=methods,
        seeds=seeds,
        progress=not quiet,
        tell=lambda what: None if quiet else console.print(what, style="dim", markup=False),
    )
    if not console.is_terminal:
        console.width = max(console.width, 130)
    comparison.show(console)
    where = f"the table: {folder / 'compare.md'}, all runs: {comparison.file}"
    console.print(where, soft_wrap=True, markup=False)


def _as_text(config: Any) -> str:
    import dataclasses

    # Seeds are of the runs, and how data is read changes nothing.
    return str(dataclasses.replace(config, seed=0, device="auto", num_workers=0).to_toml())


class Again:
    """What Ctrl-C is answered with: the command that goes on with what is missing."""

    def __str__(self) -> str:
        if "--overwrite" not in sys.argv:
            return "the same command goes on with what is missing"
        return f"continue with: {this_command(without={'--overwrite'})}"


def _test_part(train: str) -> str:
    from autodo.data.sources import DIGITS, NAMED

    name = part(train)[0]
    if name not in (*NAMED, DIGITS):
        raise InputError(
            "there is no test set",
            f"only of {', '.join(NAMED)} and {DIGITS} is it known which part that is",
            "name one with --test; it must not be among the images trained on",
        )
    return f"{name}:test"


def _chosen(methods: tuple[str, ...], only: list[str], skip: list[str]) -> list[str]:
    """The methods to run, in their order.

    >>> _chosen(("plain", "cleanlab, then more"), [], ["cleanlab"])
    ['plain']
    """
    for name in only:
        if name not in methods:
            near = difflib.get_close_matches(name, methods, n=1, cutoff=0.3)
            raise InputError(
                f"there is no method '{name}'",
                f"the methods are: {'; '.join(methods)}",
                f"perhaps you mean '{near[0]}'" if near else "write one of them out",
            )
    for name in skip:
        if not any(method.startswith(name) for method in methods):
            raise InputError(
                f"no method begins with '{name}'",
                f"the methods are: {'; '.join(methods)}",
                "write the beginning of one",
            )
    chosen = [
        name
        for name in methods
        if (not only or name in only) and not any(name.startswith(s) for s in skip)
    ]
    if not chosen:
        raise InputError(
            "no method is left", "--skip takes away all that --only names", "leave out one --skip"
        )
    return chosen
