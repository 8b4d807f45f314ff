"""The command line: arguments in, a run and a short summary out.

Nothing is learned here. Torch and everything built on it are imported inside the commands, so
that ``--help`` and misspelt options answer at once. What a user can mend is printed as fact,
cause and cure with exit code 2; a traceback always means a bug in autodo.
"""

from __future__ import annotations

import errno
import functools
import shlex
import shutil
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autodo.auditing import command as audit_command
from autodo.errors import AutodoError, InputError
from autodo.experiment.paper import command as paper_command
from autodo.export import command as export_command
from autodo.report import command as report_command

if TYPE_CHECKING:
    from torch import nn

    from autodo.config import Config
    from autodo.data.examples import Examples
    from autodo.models.registry import Builder
    from autodo.result import Result

app = typer.Typer(
    name="autodo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script ``autodo``."""
    app(prog_name="autodo")


def _version(wanted: bool) -> None:
    if wanted:
        import autodo

        typer.echo(f"autodo {autodo.__version__}")
        raise typer.Exit


@app.callback(epilog="Example, a minute on a laptop:\n\n  autodo demo")
def _autodo(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    """Learn from a small trusted set how to augment, weigh and relabel every training image."""


@app.command(epilog="Example:\n\n  autodo demo --noise 0.2 --out runs/demo")
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
    with _told("autodo demo starts anew"):
        from autodo.experiment import demo

        demo.run(out=out, seed=seed, noise=noise)


FIT_EXAMPLES = """\
Example, for folders such as photos/train/cat/001.png, one sub-folder per class:

  autodo fit photos/train --trusted photos/trusted --test photos/test

A stopped run is taken up by the same command with --resume:

  autodo fit photos/train --trusted photos/trusted --epochs 20 --resume

Other layouts are read too; which part of a set stands after a colon:

  autodo fit svhn:train --trusted few.npz --test svhn:test --data-dir d

Another network on what a run learned:

  autodo fit photos/train --trusted photos/trusted --lambda runs/train
"""


@app.command(epilog=FIT_EXAMPLES)
def fit(
    train: Annotated[
        str,
        typer.Argument(
            help="Folder of images by class, Parquet, .npz, or svhn, cifar10, cifar100, imagenet; "
            "labels may be wrong.",
            metavar="TRAIN",
        ),
    ],
    trusted: Annotated[
        str, typer.Option(help="A few images whose labels are right.", metavar="SET")
    ],
    test: Annotated[
        str | None, typer.Option(help="To measure on; never learned from.", metavar="SET")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where svhn, cifar10 ... lie; else they are fetched.", metavar="FOLDER"),
    ] = None,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Leave out images that cannot be decoded.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder to write.", show_default="runs/<name of TRAIN>"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per training step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = None,
    augment: Annotated[
        str | None, typer.Option(help="affine, colour, affine+colour or none.", metavar="KIND")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="small_cnn, wrn-16-4 (any depth and width), resnet18, timm:NAME, or your own as "
            "module:function, called with (channels, num_classes).",
            metavar="NAME",
        ),
    ] = "small_cnn",
    image_size: Annotated[
        int | None, typer.Option(help="Resize images to this side in pixels.", metavar="N")
    ] = None,
    channels: Annotated[
        int | None, typer.Option(help="Read as grey (1) or RGB (3).", metavar="1|3")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings in TOML; the config.toml of any run shows them all.", metavar="FILE"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="One setting by name, such as label_lr=0.2; goes over --config, and the options "
            "above over it.",
            metavar="KEY=VALUE",
        ),
    ] = None,
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
        out = Path("runs") / (Path(_part(train)[0]).resolve().stem or "fit")
    flags = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "device": device,
        "augment": augment,
    }
    with _told(_Continue(out)):
        import autodo
        from autodo.export.origin import Origin
        from autodo.models.registry import find
        from autodo.train.devices import choose_device
        from autodo.train.run_folder import RunFolder

        chosen = _config(config, settings or [], flags)
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
        sets = _read(
            {"train": train, "trusted": trusted} | ({} if test is None else {"test": test}),
            show=not quiet,
            image_size=image_size,
            channels=channels,
            data_dir=data_dir,
            skip_corrupt=skip_corrupt,
        )
        result = autodo.fit(
            _network(builder, sets["train"], chosen.seed),
            sets["train"],
            sets["trusted"],
            test=sets.get("test"),
            config=chosen,
            out=out,
            resume=resume,
            overwrite=overwrite,
            progress=not quiet,
            source=Origin.of(
                *_part(train),
                data_dir=data_dir,
                image_size=image_size,
                channels=channels,
                skip_corrupt=skip_corrupt,
            ),
            learned=learned,
        )
        if not quiet:
            _summarise(result)


@app.command(epilog="Example:\n\n  autodo bench --json bench.json")
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
    json: Annotated[
        Path | None, typer.Option(help="Write everything measured here, too.", metavar="FILE")
    ] = None,
) -> None:
    """Time the steps beside the machine's limits and beside the published way."""
    with _told("nothing was written"):
        from autodo.experiment.bench import command

        command.run(
            device=device,
            network=network,
            batch=batch,
            points=points,
            sizes=tuple(rows) if rows else None,
            json_file=json,
        )


def _config(file: Path | None, settings: list[str], flags: dict[str, Any]) -> Config:
    """Options over --set over --config over the defaults."""
    from autodo.config import Config

    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"'{file}' is not TOML", str(error), "correct the file") from error
        if isinstance(values.get("config"), dict):  # the config.toml of a run
            values = values["config"]
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key.strip() and equals):
            raise InputError(
                f"--set {setting} is not of the form key=value",
                "a setting has a name and a value",
                "write for instance --set label_lr=0.2",
            )
        values[key.strip()] = _toml_value(value.strip())
    return Config.from_dict(values | {k: v for k, v in flags.items() if v is not None})


def _toml_value(text: str) -> Any:
    """A number or true/false as TOML has it; anything else is a string without quotes.

    >>> [_toml_value(text) for text in ("0.5", "false", "kl", '"kl"')]
    [0.5, False, 'kl', 'kl']
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _part(source: str) -> tuple[str, str | None]:
    """A set and its part, which stands after a colon.

    >>> _part("svhn:test"), _part("photos/train")
    (('svhn', 'test'), ('photos/train', None))
    """
    path, colon, split = source.rpartition(":")
    return (path, split) if colon and split.isidentifier() and path else (source, None)


def _read(sources: dict[str, str], *, show: bool, **options: Any) -> dict[str, Examples]:
    from autodo.data.sources import load
    from autodo.train.progress import counting

    sets: dict[str, Examples] = {}
    for name, source in sources.items():
        path, split = _part(source)
        with counting(show, f"reading {name}") as bar:
            task = bar.add_task(name, total=None)

            def tell(done: int, total: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            sets[name] = load(
                path,
                split,
                name=name,
                class_names=sets["train"].class_names if sets else None,
                progress=tell,
                **options,
            )
    return sets


def _network(builder: Builder, train: Examples, seed: int) -> nn.Module:
    import torch

    from autodo.models import pixel_statistics
    from autodo.models.registry import Shape

    torch.manual_seed(seed)
    channels, height, _ = train.image_shape
    mean, std = pixel_statistics(train.images)
    return builder(
        Shape(
            channels=channels,
            num_classes=train.num_classes,
            image_size=height,
            mean=mean,
            std=std,
        )
    )


def _summarise(result: Result) -> None:
    """Errors, the surest wrong labels, the classes that count more, and where the files are."""
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
    if issues.num_rows:
        table = Table("file", "given", "suggested", "score", box=None, pad_edge=False)
        for row in issues.slice(0, 10).to_pylist():
            table.add_row(
                Text(row["id"], overflow="fold"),
                Text(names[row["given_label"]], overflow="fold"),
                Text(names[row["suggested_label"]], overflow="fold"),
                f"{row['label_score']:.3f}",
            )
        say("the surest (score: the learned probability of the given label):")
        console.print(table)
    means: pa.Table = result.points.group_by("given_label").aggregate([("weight", "mean")])
    by_weight = means.sort_by([("weight_mean", "descending")]).to_pylist()
    raised = [row for row in by_weight if row["weight_mean"] > 1.005][:3]
    if raised:
        told = (f"{names[row['given_label']]} {row['weight_mean']:.2f}" for row in raised)
        say(f"classes whose mean weight rose most from 1: {', '.join(told)}")
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
        words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
        return f"continue with: {shlex.join(['autodo', *words, '--resume'])}"


@contextmanager
def _told(interrupted: object) -> Iterator[None]:
    """Turn what a user can mend, warnings and Ctrl-C into plain words and an exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            yield
    except AutodoError as error:
        _say_error(error.fact, error.cause, error.cure)
        raise typer.Exit(2) from None
    except OSError as error:
        _say_error(*_os_error(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; {interrupted}", err=True)
        raise typer.Exit(130) from None


def _telling(command: Callable[..., None], interrupted: str) -> Callable[..., None]:
    """A command of another module, with its errors and Ctrl-C told like those of ours."""

    @functools.wraps(command)
    def told(*arguments: Any, **options: Any) -> None:
        with _told(interrupted):
            command(*arguments, **options)

    return told


app.command(epilog=audit_command.EXAMPLES)(_telling(audit_command.audit, "nothing was written"))
app.command(epilog=export_command.EXAMPLES)(_telling(export_command.export, "nothing was exported"))
app.command(epilog=report_command.EXAMPLES)(
    _telling(report_command.report, "no report was written")
)
app.command(epilog=paper_command.EXAMPLES)(
    _telling(paper_command.paper, "the same command goes on with the last whole epoch")
)


_CURES = {
    errno.EACCES: "give yourself the permission (chmod), or choose another place",
    errno.EPERM: "give yourself the permission (chmod), or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.ENOSPC: "make room, then continue with --resume",
    errno.EDQUOT: "make room, then continue with --resume",
    errno.ENOENT: "check the path",
}


def _os_error(error: OSError) -> tuple[str, str, str]:
    where = (
        f"'{error.filename}' cannot be used"
        if error.filename
        else "a file cannot be read or written"
    )
    reason = error.strerror or str(error) or type(error).__name__
    cure = _CURES.get(error.errno or 0, "check the path and the disk")
    return where, f"the system says: {reason}", cure


def _say_error(fact: str, cause: str, cure: str) -> None:
    _say("error: ", fact)
    _say("  why: ", cause)
    _say("   do: ", cure)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say("warning: ", str(message))


def _say(label: str, text: str) -> None:
    """On standard error: wrapped between words on a terminal, else one line for logs and grep."""
    lines = [text]
    if sys.stderr.isatty():
        width = max(40, shutil.get_terminal_size().columns - len(label))
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    typer.echo(label + ("\n" + " " * len(label)).join(lines), err=True)
