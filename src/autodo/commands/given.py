"""What several commands are given alike: settings, sets of images, a network."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autodo.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from autodo.config import Config
    from autodo.data.examples import Examples
    from autodo.models.registry import Builder


DataDir = Annotated[
    Path | None,
    typer.Option(help="Where svhn, cifar10 ... lie; else they are fetched.", metavar="FOLDER"),
]
Epochs = Annotated[int | None, typer.Option(help="Passes of the network over the training set.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per training step.")]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]
Model = Annotated[
    str,
    typer.Option(
        help="small_cnn, wrn-16-4 (any depth and width), resnet18, timm:NAME, or your own as "
        "module:function, called with (channels, num_classes).",
        metavar="NAME",
    ),
]
ImageSize = Annotated[
    int | None, typer.Option(help="Resize images to this side in pixels.", metavar="N")
]
Channels = Annotated[int | None, typer.Option(help="Read as grey (1) or RGB (3).", metavar="1|3")]
SkipCorrupt = Annotated[
    bool, typer.Option("--skip-corrupt", help="Leave out images that cannot be decoded.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Settings in TOML; the config.toml of any run shows them all.", metavar="FILE"
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="One setting by name, such as label_lr=0.2; goes over --config, and the options "
        "above over it.",
        metavar="KEY=VALUE",
    ),
]


def read_config(file: Path | None, settings: list[str], flags: dict[str, Any]) -> Config:
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


def part(source: str) -> tuple[str, str | None]:
    """A set and its part, which stands after a colon.

    >>> part("svhn:test"), part("photos/train")
    (('svhn', 'test'), ('photos/train', None))
    """
    path, colon, split = source.rpartition(":")
    return (path, split) if colon and split.isidentifier() and path else (source, None)


def read_sets(
    sources: dict[str, str],
    *,
    show: bool,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Examples]:
    """The sets by name, with a progress bar each; all have the classes of the first."""
    from autodo.data.sources import load
    from autodo.train.progress import counting

    sets: dict[str, Examples] = {}
    for name, source in sources.items():
        path, split = part(source)
        with counting(show, f"reading {name}") as bar:
            task = bar.add_task(name, total=None)

            def tell(done: int, total: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            sets[name] = load(
                path,
                split,
                name=name,
                class_names=class_names,
                progress=tell,
                **options,
            )
            class_names = sets[name].class_names
    return sets


def make_network(builder: Builder, train: Examples, seed: int) -> nn.Module:
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
