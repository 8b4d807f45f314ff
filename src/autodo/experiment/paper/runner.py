"""Running a cell: one run folder per seed, finished seeds skipped, interrupted ones resumed.

OUT/<data set>/<IR-NR>/<method>/cell.json     what is run here, with the paper's number
OUT/<data set>/<IR-NR>/<method>/seed-k/       the run folder of seed k, and beside its files
    sets.npz        which points were trained on and trusted, labels before and after noise
    analysis.npz    confusion matrix and features of the test set
    result.json     the numbers, written last
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from autodo import policies
from autodo.config import Config
from autodo.data.checks import SharedImages
from autodo.data.examples import Examples
from autodo.data.randomness import seeded
from autodo.errors import RunFolderError
from autodo.experiment.paper import analysis, protocol
from autodo.experiment.paper.cells import Cell
from autodo.experiment.paper.protocol import FULL, PROTOCOLS, Scale
from autodo.experiment.paper.results import SeedResult, seed_folder
from autodo.experiment.paper.sets import load_pair, make_task
from autodo.experiment.task import Task
from autodo.fitting import fit
from autodo.models import build, pixel_statistics
from autodo.models.crop import CentreCrop
from autodo.train.devices import choose_device
from autodo.train.files import write_text, write_with
from autodo.train.run_folder import RunFolder

# A finished run is the same run on whatever machine and in whatever place its policy lay.
_INCIDENTAL = ("device", "num_workers", "checkpoint_every", "measure_every", "policy")


def run_cell(
    cell: Cell,
    *,
    seeds: int = 4,
    scale: Scale = FULL,
    out: str | Path = "runs/paper",
    data_dir: str | Path | None = None,
    device: str = "auto",
    policy_file: str | Path | None = None,
    measure_every: int = 1,
    trusted_every: int = 1,
    progress: bool = True,
    tell: Callable[[str], object] = lambda text: None,
) -> list[SeedResult]:
    """Run the seeds 0 .. seeds - 1 of a cell that are not finished yet; the results of all.

    Args:
        scale: how much of it; ``FULL`` is the paper's protocol.
        out: the folder of all runs.
        data_dir: where the data set lies, if it should not be fetched.
        policy_file: of the searched policies, for faa and dada.
        measure_every: epochs between points of the curves; among them is the best epoch.
        trusted_every: hyper steps that follow the same batch of trusted points; the paper's is 1.
        progress: show bars.
        tell: told in words of every seed as it begins or is skipped.
    """
    out = Path(out)
    choose_device(device)
    policy = protocol.policy(cell, scale=scale, policy_file=policy_file)
    file = out / cell.folder / "cell.json"
    _check_scale(file, scale)
    policies.get(policy)  # a file that cannot be read is told before the data are
    pair: tuple[Examples, Examples] | None = None
    done = []
    for seed in range(seeds):
        folder = seed_folder(out, cell, seed)
        config = protocol.settings(
            cell,
            scale=scale,
            seed=seed,
            device=device,
            policy=policy,
            measure_every=measure_every,
            trusted_every=trusted_every,
        )
        result = SeedResult.load(folder)
        if result is not None:
            _check_same(folder, config)
            tell(f"seed {seed} is finished already: {folder}")
        else:
            if pair is None:
                pair = load_pair(cell.dataset, scale=scale, data_dir=data_dir, progress=progress)
                _describe(file, cell, scale)
            tell(f"seed {seed} of {seeds}: {folder}")
            task = make_task(cell, *pair, scale=scale, seed=seed)
            result = _run_seed(cell, task, config, scale, folder, progress)
        done.append(result)
    return done


def _run_seed(
    cell: Cell, task: Task, config: Config, scale: Scale, folder: Path, progress: bool
) -> SeedResult:
    with warnings.catch_warnings():
        if cell.lambda_from != "trusted":
            # The trusted set is the test or the training set itself: that is the ablation.
            warnings.simplefilter("ignore", SharedImages)
        fitted = fit(
            _network(cell, task, scale, config.seed),
            task.train,
            task.trusted,
            test=task.test,
            config=config,
            out=folder,
            resume=True,
            progress=progress,
            title=f"{cell.dataset} {cell.distortion} {cell.name}, seed {config.seed}",
        )
    _save_sets(folder, task)
    arrays = analysis.analyse(
        fitted.model, task.test, embedded=scale.embedded, precision=config.precision
    )
    analysis.save_analysis(folder, arrays)
    result = analysis.score(fitted.history, arrays["confusion"], seed=config.seed, note=cell.note)
    result.save(folder)
    return result


def _network(cell: Cell, task: Task, scale: Scale, seed: int) -> nn.Module:
    of_set = PROTOCOLS[cell.dataset]
    mean, std = pixel_statistics(task.train.images)
    crop = of_set.crop if scale.image_size is None else None
    with seeded(seed):
        model = build(
            scale.network or of_set.network,
            channels=task.train.image_shape[0],
            num_classes=task.train.num_classes,
            image_size=crop or task.train.image_shape[1],
            mean=mean,
            std=std,
        )
    return model if crop is None else nn.Sequential(CentreCrop(crop), model)


def _check_scale(file: Path, scale: Scale) -> None:
    """Keep runs of two scales from getting into one mean."""
    if not file.is_file():
        return
    before = json.loads(file.read_text(encoding="utf-8"))["scale"]
    if before != scale.name:
        raise RunFolderError(
            f"{file.parent} holds runs at the scale {before!r}",
            f"{scale.name!r} is asked for, and a mean over both would mean nothing",
            f"choose another --out, or run with --scale {before}",
        )


def _describe(file: Path, cell: Cell, scale: Scale) -> None:
    about: dict[str, Any] = {
        "dataset": cell.dataset,
        "distortion": cell.distortion,
        "method": cell.name,
        "about": cell.about,
        "note": cell.note,
        "paper_error_percent": None if cell.paper is None else str(cell.paper),
        "scale": scale.name,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def _check_same(folder: Path, config: Config) -> None:
    """Refuse to count a finished run that was made with other settings."""
    stored = RunFolder(folder).read_config()["config"]
    wanted = tomllib.loads(config.to_toml())
    for key in sorted(stored.keys() | wanted.keys()):
        if key not in _INCIDENTAL and stored.get(key) != wanted.get(key):
            raise RunFolderError(
                f"{folder} was run with another setting: {key} was "
                f"{stored.get(key, 'unset')!r} and is now {wanted.get(key, 'unset')!r}",
                "it was made by another version, or by hand",
                "choose another --out, or delete the folder to run it again",
            )


def _save_sets(folder: Path, task: Task) -> None:
    """Which points the run saw and what the distortion did to them."""
    truth = task.train.labels if task.true_labels is None else task.true_labels

    def write(file: Any) -> None:
        np.savez_compressed(
            file,
            train_ids=np.array(task.train.ids),
            given_labels=task.train.labels.cpu().numpy(),
            true_labels=truth.cpu().numpy(),
            trusted_ids=np.array(task.trusted.ids),
        )

    write_with(folder / "sets.npz", write)
