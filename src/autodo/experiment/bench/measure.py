"""The measurements of ``autodo bench``: floors, steps, an epoch, memory, tables of any length,
and images that stay on the host.

A step here is what the trainer does for one batch: fetch uint8 images on the device, the policy,
the learned warp, forward, backward, update. Everything compared is timed in one process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from autodo.config import Config
from autodo.data.examples import Examples
from autodo.data.loader import Batch
from autodo.data.pixels import to_unit
from autodo.experiment.bench.host import HostReport, HostSetting, measure_host
from autodo.experiment.bench.published import PublishedSteps
from autodo.experiment.bench.timing import milliseconds
from autodo.models import build
from autodo.models.head import find_head
from autodo.train.devices import choose_device
from autodo.train.loop import Trainer

PARTS = ("steps", "rows", "host")
"""What can be measured by itself."""
CLASSES = 10
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is timed."""

    network: str
    batch: int
    points: int
    trusted: int
    device: str
    policy: str = "randaugment:3,7,colour+standard:svhn"
    repeats: int = 20
    sizes: tuple[int, ...] = SIZES

    @classmethod
    def default(cls, device: str) -> Setting:
        """WRN-28-10 on CUDA as in the paper, a small network elsewhere."""
        if choose_device(device).type == "cuda":
            return cls(network="wrn-28-10", batch=256, points=50_000, trusted=10_000, device=device)
        return cls(
            network="wrn-10-1", batch=64, points=2_000, trusted=500, device=device, repeats=5
        )


@dataclass(kw_only=True)
class Timing:
    """One row of the table."""

    name: str
    ms: float
    flops: float
    """Of the step, counted at the convolutions and products of the network."""
    images: int
    floor_ms: float
    """``flops`` at the speed of a large product in the step's precision."""
    published_ms: float | None = None
    gib: float | None = None

    def row(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return {
            "step": self.name,
            "ms": self.ms,
            "images_per_s": self.images / self.ms * 1e3,
            "tflops": self.flops / self.ms / 1e9,
            "times_floor": self.ms / self.floor_ms,
            "published_ms": self.published_ms,
            "times_faster_than_published": self.published_ms and self.published_ms / self.ms,
            "gib": self.gib,
        }


@dataclass(kw_only=True)
class Report:
    """Everything that was measured."""

    setting: Setting
    device: str
    product_tflops: float | None = None
    copy_gbs: float | None = None
    timings: list[Timing] = field(default_factory=list)
    epoch_over_steps: float | None = None
    memory_over_plain: float | None = None
    ms_by_rows: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Training and hyper step for each length of the tables."""
    prepare_s: float | None = None
    """First steps: kernels chosen and compiled, graphs recorded."""
    host: HostReport | None = None


def measure(
    setting: Setting,
    tell: Callable[[str], object] = lambda _: None,
    *,
    parts: Collection[str] = PARTS,
    host: HostSetting | None = None,
) -> Report:
    """The ``parts`` of it that are asked for; ``tell`` hears what comes next."""
    device = choose_device(setting.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    report = Report(setting=setting, device=name)
    if "steps" in parts:
        _measure_steps(report, device, tell)
    if "rows" in parts:
        _measure_rows(report, tell)
    if "host" in parts:
        report.host = measure_host(host or HostSetting.default(setting.device), tell)
    return report


def _measure_steps(report: Report, device: torch.device, tell: Callable[[str], object]) -> None:
    setting = report.setting
    tell("floors: a large product and a copy")
    product, report.copy_gbs = floors(device)
    report.product_tflops = product

    tell("plain training, for its time and memory")
    forward = _forward_flops(setting, device)
    start = time.perf_counter()
    # First: what a measurement leaves behind must not make plain training look large.
    plain = Bench(setting, setting.points, plain=True)
    plain.theta()
    report.prepare_s = time.perf_counter() - start
    plain_ms = plain.milliseconds(plain.theta)
    plain_gib = plain.gibibytes()
    del plain

    tell("training step, hyper steps")
    bench = Bench(setting, setting.points)
    training = bench.milliseconds(bench.theta)
    training_gib = bench.gibibytes()
    full = bench.hyper_milliseconds()
    whole_gib = bench.gibibytes()
    tell("an epoch against its steps")
    report.epoch_over_steps = bench.epoch_over_steps()
    del bench
    few = Bench(setting, setting.points, learn_augment=False)
    partial = few.hyper_milliseconds()
    trusted = few.trusted_passes / few.trainer.hyper_steps
    del few

    tell("the published way")
    published = _published(setting, device)
    rows = (
        # name, ms, forward passes' worth of arithmetic, published, peak
        ("plain training", plain_ms, 3.0, None, plain_gib),
        ("training", training, 3.0, published[0], training_gib),
        ("hyper A+W+S", full, 2.0 + trusted, published[1], whole_gib),
        ("hyper W+S", partial, 1.0 + trusted, None, None),
    )
    for name, ms, passes, other, gib in rows:
        flops = passes * forward
        report.timings.append(
            Timing(
                name=name,
                ms=ms,
                flops=flops,
                images=setting.batch,
                floor_ms=flops / product / 1e9,
                published_ms=other,
                gib=gib,
            )
        )
    if whole_gib is not None and plain_gib is not None:
        report.memory_over_plain = whole_gib / plain_gib


def _measure_rows(report: Report, tell: Callable[[str], object]) -> None:
    setting = report.setting
    for size in setting.sizes:
        tell(f"tables of {size:,} rows")
        bench = Bench(setting, size)
        report.ms_by_rows[size] = (
            bench.milliseconds(bench.theta), bench.hyper_milliseconds()
        )  # fmt: skip
        del bench


class Bench:
    """A trainer on random images, whose steps can be taken one at a time.

    ``rows`` is the length of lambda's tables; beyond the number of images, points share images.
    """

    def __init__(
        self, setting: Setting, rows: int, *, learn_augment: bool = True, plain: bool = False
    ) -> None:
        self.setting = setting
        device = choose_device(setting.device)
        config = Config.paper(
            epochs=1_000_000,  # far from the end of every schedule
            batch_size=setting.batch,
            hyper_batch_size=setting.batch,
            start_epoch=0,
            policy="none" if plain else setting.policy,
            augment="none" if plain else "affine",
            learn_augment=learn_augment and not plain,
            learn_weights=not plain,
            learn_labels=not plain,
            trusted_every=Config().trusted_every,
            trusted_points=Config().trusted_points,
            device=setting.device,
            lr=1e-3,
        )
        model = build(setting.network, channels=3, num_classes=CLASSES, image_size=32).to(device)
        images = random_images(setting.points, 0)
        head = find_head(model, to_unit(images.images[:2]))
        self.trainer = Trainer(model, head, images, random_images(setting.trusted, 1), config)
        if rows != setting.points:
            self._lengthen(rows, config)
        self.rows = rows
        self.generator = torch.Generator().manual_seed(0)
        self.taken = 0
        self.batches = self._batches()

    def _lengthen(self, rows: int, config: Config) -> None:
        """Give the trainer tables of another length."""
        from autodo.hyper.dataset_model import DatasetModel
        from autodo.train.steps import Steps

        trainer = self.trainer
        labels = torch.arange(rows, device=trainer.device) % CLASSES
        trainer.data = DatasetModel(
            labels,
            num_classes=CLASSES,
            augment=trainer.data.augmentation,
            optimizer=config.lambda_optimizer,
        ).to(trainer.device)
        given = trainer.model, trainer.head, trainer.data, config, trainer.device
        trainer.take = Steps(*given, trainer.take.layout)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Without end, as the trainer prepares them."""
        points = self.trainer.points

        def drawn() -> Iterator[Batch]:
            while True:
                index = torch.randint(self.rows, (self.setting.batch,), generator=self.generator)
                image = index % self.setting.points
                yield points.fetch(image), points.labels[points.send(image)], points.send(index)

        return self.trainer.prepared(drawn(), self.generator)

    def theta(self) -> None:
        """One training step; the model is in training mode."""
        self.trainer.take.theta(*next(self.batches), 1e-3)

    @torch.no_grad()
    def encode_trusted(self) -> None:
        """What an outer loop does before its first step; the model is in eval mode."""
        self.trusted = next(self.trainer.trusted_features(self.taken))
        self.taken += 1

    def hyper(self) -> None:
        """One hyper step of an outer loop; the model is in eval mode."""
        self.trainer.take.hyper_step(*next(self.batches), self.trusted, 0.0)

    @property
    def trusted_passes(self) -> float:
        """Forward passes of a batch that an outer loop spends on trusted points."""
        return len(self.trusted[1]) / self.setting.batch

    def hyper_milliseconds(self) -> float:
        """Of a hyper step with its share of what the outer loop spends on trusted points."""
        once = self.milliseconds(self.encode_trusted, repeats=3)
        return self.milliseconds(self.hyper) + once / self.trainer.hyper_steps

    def milliseconds(self, step: Callable[[], None], repeats: int | None = None) -> float:
        """Median over a few runs of so many steps, one after the other."""
        self.trainer.model.train(step == self.theta)
        return milliseconds(step, self.trainer.device, repeats or self.setting.repeats)

    def gibibytes(self) -> float | None:
        """Memory that the steps taken so far hold on to, with their data; None off CUDA."""
        if self.trainer.device.type != "cuda":
            return None
        gc.collect()  # trainers of earlier measurements
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(self.trainer.device) / 2**30

    def epoch_over_steps(self) -> float:
        """Wall-clock time of a whole training epoch of the trainer over that of its steps."""
        step, phase = self.milliseconds(self.theta), self.trainer.plan.phases[-1]
        self.trainer._descend_theta(phase.start, phase)
        start = time.perf_counter()
        # It ends by reading the loss, hence waits for the device.
        self.trainer._descend_theta(phase.start + 1, phase)
        return (time.perf_counter() - start) * 1e3 / (step * self.trainer.steps)


def floors(device: torch.device) -> tuple[float, float]:
    """TFLOP/s of a large product (bfloat16 on CUDA, else float32) and GB/s of a copy."""
    cuda = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a = torch.randn(size, size, device=device).to(dtype)
    product = milliseconds(lambda: a @ a, device, 20)
    source = torch.empty(1 << (30 if cuda else 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source), device, 10)
    return 2 * size**3 / product / 1e9, 2 * source.numel() / copy / 1e6


def random_images(count: int, seed: int) -> Examples:
    """uint8 images of 3x32x32 with labels in turn."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Examples.from_arrays(images, torch.arange(count) % CLASSES)


def _forward_flops(setting: Setting, device: torch.device) -> float:
    """Floating-point operations of one forward pass of a batch."""
    model = build(setting.network, channels=3, num_classes=CLASSES, image_size=32).to(device).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(setting.batch, 3, 32, 32, device=device))
    return float(counter.get_total_flops())


def _published(setting: Setting, device: torch.device) -> tuple[float, float]:
    """Milliseconds of the published training and hyper step."""
    model: nn.Module = build(setting.network, channels=3, num_classes=CLASSES, image_size=32)
    model.to(device)
    images = to_unit(random_images(setting.batch, 2).images.to(device))
    labels = torch.arange(setting.points) % CLASSES
    steps = PublishedSteps(model, find_head(model, images[:2]), labels, CLASSES)
    index = torch.randint(setting.points, (setting.batch,), device=device)
    trusted = labels[: setting.batch].to(device)
    repeats = max(3, setting.repeats // 3)
    return (
        milliseconds(lambda: steps.theta(images, index), device, repeats),
        milliseconds(lambda: steps.hyper(images, index, images, trusted), device, repeats),
    )
