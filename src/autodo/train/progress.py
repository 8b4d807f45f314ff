"""What a person watches while a run goes on: a bar with epoch, losses, error and time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from autodo.train.run_folder import Metrics


class Reporter(Protocol):
    """Told of every step and every epoch."""

    def step(self) -> None: ...

    def epoch(self, metrics: Metrics, epochs: int) -> None: ...


class Silent:
    """Says nothing."""

    def step(self) -> None:
        pass

    def epoch(self, metrics: Metrics, epochs: int) -> None:
        pass


def summary(metrics: Metrics) -> str:
    """The numbers of an epoch in a few words.

    >>> summary({"epoch": 3, "train_loss": 0.5, "trusted_loss": 0.25, "trusted_error": 0.04})
    'train loss 0.500, trusted loss 0.250, trusted error 4.0%'
    """
    parts = [f"train loss {metrics['train_loss']:.3f}"]
    if "trusted_error" in metrics:
        parts.append(f"trusted loss {metrics['trusted_loss']:.3f}")
        parts.append(f"trusted error {100 * metrics['trusted_error']:.1f}%")
    if "test_error" in metrics:
        parts.append(f"test error {100 * metrics['test_error']:.1f}%")
    network = f"network without fold {metrics['fold']}: " if "fold" in metrics else ""
    return network + ", ".join(parts)


class _TwoLines(Progress):
    """The numbers below the bar: on one line they would push it and the time left out of sight."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.note:
            yield Text(f"  {self.note}", no_wrap=True, overflow="ellipsis")


class _Bar:
    def __init__(self, progress: _TwoLines, total: int, done: int, title: str) -> None:
        self.progress = progress
        self.task = progress.add_task(title, total=total, completed=done, epoch="")

    def step(self) -> None:
        self.progress.advance(self.task)

    def epoch(self, metrics: Metrics, epochs: int) -> None:
        self.progress.note = summary(metrics)
        self.progress.update(self.task, epoch=f"epoch {metrics['epoch']}/{epochs}")


class _Lines:
    """For logs and pipes: about ten lines a run instead of a bar."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title

    def step(self) -> None:
        pass

    def epoch(self, metrics: Metrics, epochs: int) -> None:
        if metrics["epoch"] % max(1, epochs // 10) == 0 or metrics["epoch"] == epochs:
            self.console.print(
                f"{self.title}: epoch {metrics['epoch']}/{epochs}: {summary(metrics)}",
                highlight=False,
                soft_wrap=True,
            )


@contextmanager
def reporting(
    show: bool, *, total: int, done: int = 0, title: str = "training"
) -> Iterator[Reporter]:
    """A reporter on standard error: a bar on a terminal, lines elsewhere, or nothing."""
    console = Console(stderr=True)
    if not show:
        yield Silent()
    elif not console.is_terminal:
        yield _Lines(console, title)
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[epoch]}"),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
        )
        with _TwoLines(*columns, console=console, transient=True) as progress:
            yield _Bar(progress, total, done, title)


@contextmanager
def counting(show: bool, title: str) -> Iterator[Progress]:
    """A plain bar for work that is counted in items, such as reading images."""
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (show and console.is_terminal)
    ) as progress:
        yield progress
