"""``autodo fit``: from sets of images to a run folder and a short summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from autodo.commands.surest import print_surest
from autodo.commands.telling import this_command, told
from autodo.errors import InputError

if TYPE_CHECKING:
    from autodo.export.origin import Origin
    from autodo.result import Result

EXAMPLES = """\
Example, for folders such as photos/train/cat/001.png, one sub-folder per class:

  autodo fit photos/train --trusted photos/trusted --test photos/test

A stopped run is taken up by the same command with --resume:

  autodo fit photos/train --trusted photos/trusted --epochs 20 --resume

Other layouts are read too; which part of a set stands after a colon:

  autodo fit svhn:train --trusted few.npz --test svhn:test --data-dir d

Another network on what a run learned:

  autodo fit photos/train --trusted photos/trusted --lambda runs/train
"""


def fit(
    train: Annotated[
        str,
        typer.Argument(
            help="Folder of images by class, Parquet, .npz, or svhn, cifar10, cifar100, imagenet, "
            "mnist, fashion_mnist, digits; labels may be wrong.",
            metavar="TRAIN",
        ),
    ],
    trusted: Annotated[
        str, typer.Option(help="A few images whose labels are right.", metavar="SET")
    ],
    test: Annotated[
        str | None, typer.Option(help="To measure on; never learned from.", metavar="SET")
    ] = None,
    data_dir: DataDir = None,
    skip_corrupt: SkipCorrupt = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder to write.", show_default="runs/<name of TRAIN>"),
    ] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Device = None,
    augment: Annotated[
        str | None, typer.Option(help="affine, colour, affine+colour or none.", metavar="KIND")
    ] = None,
    model: Model = "small_cnn",
    image_size: ImageSize = None,
    channels: Channels = None,
    config: ConfigFile = None,
    settings: Settings = None,
    learned: Annotated[
        Path | None,
        typer.Option(
            "--lambda",
            help="Train on the weights, labels and augmentation that this run learned of TRAIN, "
            "as its review left them.",
            metavar="RUN",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Train on a messy set of images; find its wrong labels with the help of a trusted one."""
    if out is None:
        out = Path("runs") / (Path(part(train)[0]).resolve().stem or "fit")
    flags = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "device": device,
        "augment": augment,
    }
    with told(_Continue(out)):
        import autodo
        from autodo.models.registry import find
        from autodo.train.devices import choose_device
        from autodo.train.run_folder import RunFolder

        chosen = read_config(config, settings or [], flags)
        if resume and overwrite:
            raise InputError(
                "both --resume and --overwrite are given",
                "one goes on with the run, the other deletes it",
                "give one of the two",
            )
        # What needs no image is refused before the first is read; fit checks the rest.
        choose_device(chosen.device)
        if not resume:
            RunFolder.check(out, chosen, {}, overwrite=overwrite)
        builder = find(model)
        options: dict[str, Any] = {
            "image_size": image_size,
            "channels": channels,
            "data_dir": data_dir,
            "skip_corrupt": skip_corrupt,
        }
        sets = read_sets(
            {"train": train, "trusted": trusted} | ({} if test is None else {"test": test}),
            show=not quiet,
            **options,
        )
        result = autodo.fit(
            make_network(builder, sets["train"], chosen.seed),
            sets["train"],
            sets["trusted"],
            test=sets.get("test"),
            config=chosen,
            out=out,
            resume=resume,
            overwrite=overwrite,
            progress=not quiet,
            source=_origin(train, options),
            trusted_source=_origin(trusted, options),
            learned=learned,
        )
        if not quiet:
            _summarise(result)


def _origin(source: str, options: dict[str, Any]) -> Origin | None:
    """Where a set can be read again, to show and to export it; the digits are in no file."""
    from autodo.data.sources import DIGITS
    from autodo.export.origin import Origin

    place, split = part(source)
    if place == DIGITS and not Path(place).exists():
        return None
    return Origin.of(place, split, **options)


def _summarise(result: Result) -> None:
    """Errors, the surest wrong labels, the classes that count more, and where the files are."""
    import pyarrow as pa
    from rich.console import Console

    from autodo.train import phases, recognition
    from autodo.train.run_folder import RunFolder

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # whole paths in logs and pipes
    names, last, issues = result.class_names, result.history[-1], result.label_issues

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(f"\ntrusted error {last['trusted_error']:.1%} (trusted images were learned from)")
    if "test_error" in last:
        say(f"test error {last['test_error']:.1%}")
    say(f"{issues.num_rows:,} of {result.points.num_rows:,} labels look wrong")
    print_surest(console, issues, names, "file")
    means: pa.Table = result.points.group_by("given_label").aggregate([("weight", "mean")])
    by_weight = means.sort_by([("weight_mean", "descending")]).to_pylist()
    raised = [row for row in by_weight if row["weight_mean"] > 1.005][:3]
    if raised:
        told = (f"{names[row['given_label']]} {row['weight_mean']:.2f}" for row in raised)
        say(f"classes whose mean weight rose most from 1: {', '.join(told)}")
    for text in (
        phases.in_words(result.config, result.history),
        recognition.in_words(result.config.symmetry, result.history),
    ):
        if text:
            say(text)
    assert result.path is not None
    folder = RunFolder(result.path)
    say("results:")
    for path, about in (
        (folder.points, "one row per training image"),
        (folder.model, "the network"),
        (folder.metrics, "every epoch's numbers"),
        (folder.tensorboard, "the same as curves"),
        (folder.config, "how it was made"),
    ):
        say(f"  {path}  {about}")


class _Continue:
    """What Ctrl-C is answered with: how to take the run in ``out`` up again."""

    def __init__(self, out: Path) -> None:
        self.metrics = out / "metrics.jsonl"
        self.before = self._state()

    def _state(self) -> tuple[int, int] | None:
        try:
            stat = self.metrics.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns

    def __str__(self) -> str:
        if self._state() == self.before:
            return "training had not begun"
        again = this_command(without={"--overwrite", "--resume"}, also=["--resume"])
        return f"continue with: {again}"
