"""How much of the training speed is left when the images stay on the host.

Three ways to feed the same training step: images on the device; images in a mapped file on the
host, gathered by a thread into pinned memory (:mod:`autodo.data.loader`); and a map-style
dataset, read item by item in worker processes. Plain training without a policy is timed, because
the shortest step is the hardest to feed. What counts is the steady state: the trainer's own batches
and steps, over more of them than the ways prepare ahead.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autodo.config import Config
from autodo.data.examples import Examples
from autodo.data.joined import Parts
from autodo.data.loader import Loader
from autodo.data.map_images import MapImages
from autodo.experiment.bench.timing import RUNS, milliseconds, wait
from autodo.models import build
from autodo.models.head import find_head
from autodo.train.devices import choose_device
from autodo.train.loop import Trainer

DEVICE, HOST, WORKERS = "device", "host", "workers"
WAYS = {
    DEVICE: "on the device",
    HOST: "on the host, gathered by a thread",
    WORKERS: "read item by item in processes",
}


@dataclass(frozen=True, kw_only=True)
class HostSetting:
    """What is fed."""

    network: str
    size: int
    """Pixels a side."""
    batch: int
    points: int
    classes: int
    steps: int
    """Timed in one run."""
    device: str
    workers: int
    trusted: int = 64

    @classmethod
    def default(cls, device: str) -> HostSetting:
        """ResNet-18 on images of ImageNet's shape on CUDA, a small network elsewhere."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        workers = cores or 1
        if choose_device(device).type == "cuda":
            return cls(
                network="resnet18", size=224, batch=256, points=4096, classes=1000,
                steps=max(100, 6 * workers), device=device, workers=workers,
            )  # fmt: skip
        return cls(
            network="small_cnn", size=32, batch=32, points=1024, classes=10, steps=10,
            device=device, workers=workers,
        )  # fmt: skip

    @property
    def batch_bytes(self) -> int:
        return self.batch * 3 * self.size**2


@dataclass(kw_only=True)
class HostReport:
    """What was measured."""

    setting: HostSetting
    images_per_s: dict[str, float] = field(default_factory=dict)
    over_device: dict[str, float] = field(default_factory=dict)
    """Speed of each way over that of images on the device."""
    first_step_s: dict[str, float] = field(default_factory=dict)
    """Until the first step is done: processes started, kernels chosen."""
    gather_ms: float = 0.0
    """A batch from the mapped file into (pinned) memory, by itself."""
    send_ms: float | None = None
    """A batch from pinned memory to the device, by itself; None off CUDA."""
    threads: int = 0
    """That gather a batch."""


def measure_host(
    setting: HostSetting, tell: Callable[[str], object] = lambda _: None
) -> HostReport:
    """Each way after the other, in one process; ``tell`` hears what comes next."""
    report = HostReport(setting=setting, threads=torch.get_num_threads())
    device = choose_device(setting.device)
    with tempfile.TemporaryDirectory(prefix="autodo-bench-") as folder:
        tell("how a batch is gathered on the host")
        images = mapped_images(Path(folder) / "images.npy", setting)
        trusted = examples(images[: setting.trusted].clone(), setting)
        in_file = examples(images, setting)
        report.gather_ms, report.send_ms = _alone(Parts((in_file, trusted)), setting, device)
        for way, words in WAYS.items():
            done = "".join(f"; {k}: {v:,.0f}/s" for k, v in report.images_per_s.items())
            tell(f"images {words}{done}")
            train = as_items(images, setting) if way == WORKERS else in_file
            fed = Fed(setting, train, trusted, way, workers=setting.workers)
            report.first_step_s[way], report.images_per_s[way] = fed.measure()
            del fed
    base = report.images_per_s[DEVICE]
    report.over_device = {way: speed / base for way, speed in report.images_per_s.items()}
    return report


class Fed:
    """A trainer whose images come in one of the ways."""

    def __init__(
        self,
        setting: HostSetting,
        train: Examples | MapImages,
        trusted: Examples,
        way: str,
        *,
        workers: int,
    ) -> None:
        self.setting = setting
        device = choose_device(setting.device)
        config = Config.paper(
            batch_size=setting.batch,
            policy="none",
            augment="none",
            learn_augment=False,
            learn_weights=False,
            learn_labels=False,
            device=setting.device,
            num_workers=workers if way == WORKERS else 0,
        )
        model = build(
            setting.network, channels=3, num_classes=setting.classes, image_size=setting.size
        ).to(device)
        head = find_head(model, torch.zeros(2, 3, setting.size, setting.size))
        self.trainer = Trainer(model, head, train, trusted, config)
        points = self.trainer.points.dataset
        if isinstance(points, Parts):
            limit = points.nbytes if way == DEVICE else 0
            self.trainer.points = Loader(points, device, limit=limit)

    def measure(self) -> tuple[float, float]:
        """Seconds until the first step is done, and images per second after that."""
        trainer, setting = self.trainer, self.setting
        generator = torch.Generator().manual_seed(0)
        trainer.model.train()
        start = time.perf_counter()
        batches = trainer.prepared(trainer.points.sampler(setting.batch, 0), generator)

        def run(steps: int) -> float:
            wait(trainer.device)
            start = time.perf_counter()
            for _ in range(steps):
                trainer.take.theta(*next(batches), 1e-3)
            wait(trainer.device)
            return time.perf_counter() - start

        run(1)
        first = time.perf_counter() - start
        run(setting.steps // 2)  # the step is recorded, mapped pages and pinned memory are there
        seconds = statistics.median(run(setting.steps) for _ in range(RUNS))
        return first, setting.batch * setting.steps / seconds


class Slices:
    """A map-style dataset of (image, label), each image a slice of an array."""

    def __init__(self, images: Tensor, classes: int) -> None:
        self.images, self.classes = images, classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.images[i], i % self.classes


def mapped_images(path: Path, setting: HostSetting) -> Tensor:
    """Random uint8 images (N, 3, size, size) in a file, mapped."""
    shape = (setting.points, 3, setting.size, setting.size)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    random = np.random.default_rng(0)
    for part in np.array_split(array, max(1, setting.points // 256)):
        part[:] = random.integers(256, size=part.shape, dtype=np.uint8)
    return torch.from_numpy(array)


def examples(images: Tensor, setting: HostSetting) -> Examples:
    """Images in memory, with labels in turn."""
    labels, names = torch.arange(len(images)) % setting.classes, range(setting.classes)
    return Examples.from_arrays(images, labels, [str(c) for c in names])


def as_items(images: Tensor, setting: HostSetting) -> MapImages:
    """The same images as a dataset that is read item by item."""
    same = examples(images, setting)
    return MapImages(
        dataset=Slices(images, setting.classes),
        labels=same.labels,
        class_names=same.class_names,
        ids=same.ids,
        image_shape=same.image_shape,
        image_dtype=images.dtype,
        fingerprints=(),  # for finding the same image in another set, which nobody does here
        name="train",
    )


def _alone(parts: Parts, setting: HostSetting, device: torch.device) -> tuple[float, float | None]:
    """Milliseconds of gathering a batch and of sending it, with nothing else to do."""
    cuda = device.type == "cuda"
    shape = (setting.batch, *parts.image_shape)
    room = torch.empty(shape, dtype=parts.image_dtype, pin_memory=cuda)
    generator = torch.Generator().manual_seed(0)

    def gather() -> None:
        index = torch.randint(len(parts), (setting.batch,), generator=generator)
        parts.images_at(index, room)

    gathering = milliseconds(gather, torch.device("cpu"), 10)
    if not cuda:
        return gathering, None
    target: Any = torch.empty_like(room, device=device)
    return gathering, milliseconds(lambda: target.copy_(room, non_blocking=True), device, 10)
