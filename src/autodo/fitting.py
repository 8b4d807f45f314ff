"""``autodo.fit``: from a model, a messy training set and a trusted set to a Result.

Everything that can be wrong with the input is looked for first; only then does a run folder
come into being and training begin.
"""

from __future__ import annotations

import hashlib
import textwrap
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from autodo.config import Config
from autodo.data.checks import SharedImages, check_pair, open_dataset
from autodo.data.examples import Examples
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit
from autodo.errors import AutodoError, InputError, RunFolderError
from autodo.export.decisions import load_reviewed
from autodo.export.origin import Origin
from autodo.models.head import check_head, find_head
from autodo.report.collect import collect
from autodo.result import Result
from autodo.train.devices import choose_device
from autodo.train.interval import Interval
from autodo.train.loop import Trainer
from autodo.train.points import points_table
from autodo.train.progress import Reporter, counting, reporting
from autodo.train.run_folder import Metrics, RunFolder


def fit(
    model: nn.Module,
    train: Any,
    trusted: Any,
    *,
    test: Any = None,
    config: Config | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    head: nn.Linear | None = None,
    num_classes: int | None = None,
    progress: bool = True,
    title: str = "autodo",
    source: Origin | str | Path | None = None,
    trusted_source: Origin | str | Path | None = None,
    learned: str | Path | None = None,
) -> Result:
    """Train ``model`` and learn how to augment, weigh and relabel every example of ``train``.

    Args:
        model: any network that ends in nn.Linear; it is trained in place.
        train: a map-style dataset of (image, label), or Examples; its labels may be wrong.
        trusted: the same kind of dataset, small and right. It takes part in learning.
        test: measured every epoch, never used to choose anything.
        config: how; the defaults are what we recommend.
        out: a run folder to write, with checkpoints; without it everything stays in memory.
        resume: go on with the run in ``out`` if there is one. The model must be built alike.
        overwrite: replace the run in ``out``.
        head: the last linear layer, if it should not be looked for.
        num_classes: C, if some classes have no example.
        progress: show a progress bar.
        source: the path train was read from (or its Origin); ``autodo export`` needs it.
        trusted_source: the same of trusted; ``autodo review`` shows its images.
        learned: another run on the same training set, whose weights, labels and augmentation this
            one trains on as they are (and as its review decided) instead of learning them.
    """
    config = Config() if config is None else config
    rows = None if learned is None else load_reviewed(learned)
    config = config if rows is None else rows.config(config)
    sets = open_sets(train, trusted, test, num_classes, progress)
    for warning in check_pair(sets["train"], sets["trusted"], test=sets.get("test")):
        warnings.warn(warning, SharedImages, stacklevel=2)
    classes = sets["train"].class_names
    if config.learn_labels and config.belief_folds > len(sets["train"]):
        raise InputError(
            f"belief_folds is {config.belief_folds} and train has {len(sets['train'])} examples",
            "each fold needs one at the least",
            "use 2, or 0 for none",
        )
    head = checked_head(model, head, sets["train"], config, len(classes))
    if "colour" in config.augment or config.policy != "none":
        _check_unit_range(sets["train"])
    about = describe(sets)
    if out is not None:
        RunFolder.check(out, config, about, resume=resume, overwrite=overwrite)

    trainer = Trainer(model, head, sets["train"], sets["trusted"], config, test=sets.get("test"))
    if rows is not None:
        rows.into(trainer.data, trainer.count)
    folder = None
    if out is not None:
        folder = RunFolder.open(out, config, about, resume=resume, overwrite=overwrite)
        _take_up(trainer, folder)
    with reporting(
        progress, total=trainer.total_steps, done=trainer.done_steps, title=title
    ) as reporter:
        trainer.on_step = reporter.step
        _run(trainer, folder, reporter)
    result = Result(
        model=model,
        points=points_table(trainer.data, trainer.count, sets["train"].ids, classes),
        history=trainer.history,
        config=config,
        class_names=classes,
        data=about,
        path=folder.path if folder else None,
    )
    if folder is not None:
        result.write(folder)
        collect(
            trainer,
            result.points,
            folder.path,
            source=_origin(source),
            trusted_source=_origin(trusted_source),
            progress=progress,
        )
    return result


def _origin(source: Origin | str | Path | None) -> Origin | None:
    return Origin.of(source) if isinstance(source, str | Path) else source


def _run(trainer: Trainer, folder: RunFolder | None, reporter: Reporter) -> None:
    """Alg. 1 with its bookkeeping: metrics every epoch, a checkpoint every interval."""
    config = trainer.config
    if folder is None:
        for metrics in trainer.epochs():
            reporter.epoch(metrics, trainer.plan.epochs)
        return
    writer = SummaryWriter(str(folder.tensorboard), purge_step=len(trainer.history) + 1)
    interval = Interval(config.checkpoint_every)
    try:
        for metrics in trainer.epochs():
            folder.append_metrics(metrics)
            _to_tensorboard(writer, metrics)
            last = metrics["epoch"] == trainer.plan.epochs
            if interval.is_over(metrics["epoch"]) or last:
                with interval.writing():
                    folder.save_checkpoint(trainer.state())
            reporter.epoch(metrics, trainer.plan.epochs)
    finally:
        writer.close()


def _take_up(trainer: Trainer, folder: RunFolder) -> None:
    """Continue from the folder's last checkpoint, dropping metrics of epochs after it."""
    state = folder.load_checkpoint()
    if state is not None:
        try:
            trainer.load(state)
        except (RuntimeError, ValueError, KeyError) as error:
            raise RunFolderError(
                f"the checkpoint of {folder.path} does not fit this model",
                f"the run was started with another network: {textwrap.shorten(str(error), 200)}",
                "resume with the model it was started with, or start anew with another --out",
            ) from error
    folder.write_metrics(trainer.history)


def open_sets(
    train: Any, trusted: Any, test: Any, num_classes: int | None, progress: bool
) -> dict[str, Examples | MapImages]:
    """The sets by name, checked one by one, all with the same number of classes."""
    given = {"train": train, "trusted": trusted} | ({} if test is None else {"test": test})
    sets: dict[str, Examples | MapImages] = {}
    for name, dataset in given.items():
        with counting(progress, f"reading {name}") as bar:
            task = bar.add_task(name, total=None)

            def tell(done: int, total: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            sets[name] = open_dataset(dataset, name=name, num_classes=num_classes, progress=tell)
    if num_classes is None:
        # Sets that only know their own labels may count differently; the largest is C.
        count = max(data.num_classes for data in sets.values())
        for name, data in sets.items():
            if data.num_classes < count:
                sets[name] = open_dataset(given[name], name=name, num_classes=count)
    return sets


def checked_head(
    model: nn.Module,
    head: nn.Linear | None,
    train: Examples | MapImages,
    config: Config,
    num_classes: int,
) -> nn.Linear:
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model is a {type(model).__name__}",
            "AutoDO trains a torch.nn.Module",
            "pass the network itself, such as autodo.models.SmallCNN(1, 10)",
        )
    if head is None:
        device = choose_device(config.device)
        images = to_unit(torch.stack([train[i][0] for i in range(min(2, len(train)))]))
        try:
            head = find_head(model.to(device), images.to(device))
        except AutodoError:
            raise
        except Exception as error:  # of any kind: it is the user's network
            raise InputError(
                f"the model cannot take images of shape {tuple(images.shape[1:])}",
                f"it raised {textwrap.shorten(str(error), 200)}",
                "build it for this number of channels and size, or resize the images",
            ) from error
    check_head(head, num_classes)
    return head


def _check_unit_range(train: Examples | MapImages) -> None:
    image = to_unit(torch.stack([train[i][0] for i in range(min(64, len(train)))]))
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        raise InputError(
            f"pixels of train reach from {low:.3g} to {high:.3g}",
            "colours and policies need pixels in [0, 1]; the images seem to be normalised already",
            'normalise inside the model, or use augment="affine" and policy="none"',
        )


def describe(sets: dict[str, Examples | MapImages]) -> dict[str, Any]:
    """Sizes, classes and a fingerprint of labels and ids: what resuming must find unchanged."""
    digest = hashlib.blake2b(digest_size=16)
    for name, data in sets.items():
        digest.update(name.encode())
        digest.update(data.labels.cpu().numpy().tobytes())
        # Names of files need not be UTF-8.
        digest.update("\n".join(data.ids).encode("utf-8", "surrogateescape"))
        if isinstance(data, Examples):
            # One axis, as hashlib wants it: a copy of all images would take as long as the sum.
            digest.update(data.images.cpu().contiguous().view(-1).numpy().data)
    about: dict[str, Any] = {name: len(data) for name, data in sets.items()}
    about["classes"] = list(sets["train"].class_names)
    about["fingerprint"] = digest.hexdigest()
    return about


_TENSORBOARD = {
    "loss/train": "train_loss",
    "loss/trusted": "trusted_loss",
    "loss/test": "test_loss",
    "error/trusted": "trusted_error",
    "error/test": "test_error",
    "density_matching/trusted_gradient_norm2": "trusted_gradient_norm2",
    "density_matching/train_gradient_norm2": "train_gradient_norm2",
    "density_matching/inner_product": "gradient_inner_product",
    "solver/residual": "solver_residual",
    "lr": "lr",
}


def _to_tensorboard(writer: SummaryWriter, metrics: Metrics) -> None:
    for tag, name in _TENSORBOARD.items():
        if name in metrics:
            writer.add_scalar(tag, metrics[name], metrics["epoch"])
    writer.flush()
