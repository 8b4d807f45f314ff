"""How long does a policy take per batch, beside Pillow doing the same operations image by image?

    python benchmarks/policies.py                     # 256 x 3 x 32 x 32 on the CPU, one thread
    python benchmarks/policies.py --device cuda
    python benchmarks/policies.py --policy file:policy.json --policy trivialaugment

All columns run in turn in every repeat, on the same images with the same draws. A policy is carried
out in all its ways: "called" does each operation to the images that drew it, "whole" every
operation to the whole batch, "fused" is a kernel in which each image does what it drew; the last
needs CUDA. There both are recorded and replayed (unless the batch is larger than what is recorded).
"issued" is the time after which the host is free again, "plan" the part of it that the host works
alone, "done" the time until the device has finished, and "device" what the device works for
a batch, recordings replayed in a row. Pillow gets the images as arrays and gives arrays back, and
has no part in the standard augmentation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
import typer
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from rich.console import Console
from rich.table import Table

from autodo import policies
from autodo.policies import fused
from autodo.policies.operations import NAMES, Steps
from autodo.policies.policy import Policy, StepPolicy
from autodo.train.recorded import WARM_UP, Recorded
from autodo.train.recorded_policy import RecordedPolicy

POLICIES = [
    "standard:svhn",
    "standard:cifar",
    "randaugment:3,7",
    "randaugment:3,15",
    "randaugment:1,15,colour",
    "autoaugment:cifar",
    "autoaugment:svhn",
    "trivialaugment",
    "randaugment:3,7,colour+standard:svhn",
]


def affine(image: Image.Image, *map: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, map)


def cutout(image: Image.Image, side: float, place: list[float]) -> Image.Image:
    left = int(max(0, place[0] * image.width - side * image.width / 2))
    top = int(max(0, place[1] * image.height - side * image.width / 2))
    box = (left, top, left + side * image.width, top + side * image.width)
    ImageDraw.Draw(image).rectangle(box, (125, 123, 114))
    return image


WAYS = ("called", "whole", "fused")
"""How a policy is carried out."""

PILLOW: dict[str, Callable[[Image.Image, float, list[float]], Image.Image]] = {
    "Identity": lambda image, value, place: image,
    "Rotate": lambda image, value, place: image.rotate(value),
    "ShearX": lambda image, value, place: affine(image, 1, value, 0, 0, 1, 0),
    "ShearY": lambda image, value, place: affine(image, 1, 0, 0, value, 1, 0),
    "TranslateX": lambda image, value, place: affine(image, 1, 0, value * image.width, 0, 1, 0),
    "TranslateY": lambda image, value, place: affine(image, 1, 0, 0, 0, 1, value * image.height),
    "Flip": lambda image, value, place: ImageOps.mirror(image),
    "Invert": lambda image, value, place: ImageOps.invert(image),
    "Posterize": lambda image, value, place: ImageOps.posterize(image, int(value)),
    "Solarize": lambda image, value, place: ImageOps.solarize(image, int(value)),
    "AutoContrast": lambda image, value, place: ImageOps.autocontrast(image),
    "Equalize": lambda image, value, place: ImageOps.equalize(image),
    "Brightness": lambda image, value, place: ImageEnhance.Brightness(image).enhance(value),
    "Color": lambda image, value, place: ImageEnhance.Color(image).enhance(value),
    "Contrast": lambda image, value, place: ImageEnhance.Contrast(image).enhance(value),
    "Sharpness": lambda image, value, place: ImageEnhance.Sharpness(image).enhance(value),
    "Cutout": cutout,
}


def in_pillow(arrays: np.ndarray, steps: Steps) -> np.ndarray:
    """``steps`` on arrays (B, H, W, 3) uint8, one image after the other."""
    operations, values = steps.operation.tolist(), steps.value.tolist()
    places = steps.place.tolist()
    results = []
    for i, array in enumerate(arrays):
        image = Image.fromarray(array)
        for operation, value, place in zip(operations[i], values[i], places[i], strict=True):
            image = PILLOW[NAMES[operation]](image, value, place)
        results.append(np.asarray(image))
    return np.stack(results)


REPLAYS = 100
"""Of a recording in a row, for the time of the device."""

AHEAD = 50_000_000
"""Clock ticks that the device sleeps first, so that it never waits for the host."""


@contextmanager
def kernels(on: bool) -> Iterator[None]:
    """Policies with or without the kernels of ``fused``."""
    largest = fused.LARGEST
    fused.LARGEST = largest if on else 0
    try:
        yield
    finally:
        fused.LARGEST = largest


def whole(policy: Policy, device: torch.device, batch: int) -> Policy:
    """The second way to carry ``policy`` out; recorded where that is possible."""
    if device.type == "cuda":
        return RecordedPolicy(policy, device, sizes={batch})
    parts = policies.planned(policy)
    assert parts is not None

    def carry_out(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        height, width = images.shape[-2:]
        return parts.carry_out(images, parts.plan(len(images), (height, width), generator))

    return carry_out


def on_device(parts: policies.Planned, images: torch.Tensor, plan: torch.Tensor) -> float:
    """Seconds that a GPU works for a batch whose plan it has: copies in and out, and the policy."""
    step = Recorded(lambda images, plan: (parts.carry_out(images, plan),), images.device)
    for _ in range(WARM_UP + 1):
        step(images, plan)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(AHEAD)
    start.record()
    for _ in range(REPLAYS):
        step(images, plan)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / REPLAYS


@dataclass
class Times:
    """Seconds of every repeat."""

    plan: list[float] = field(default_factory=list)
    issued: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in WAYS})
    done: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in WAYS})
    device: dict[str, float] = field(default_factory=dict)
    """Seconds a batch, of the ways that are recorded."""
    pillow: list[float] = field(default_factory=list)
    """Empty where Pillow has no part."""


def measure(spec: str, images: torch.Tensor, arrays: np.ndarray, repeats: int) -> Times:
    """Time ``repeats`` batches, after some that warm up and show that all ways agree."""
    policy = policies.get(spec)
    parts = policies.planned(policy)
    assert parts is not None
    ways = {"called": policy, "whole": whole(policy, images.device, len(images))}
    if fused.kernels(images):
        ways["fused"] = whole(policy, images.device, len(images))
    height, width = images.shape[-2:]
    times = Times()
    for repeat in range(-WARM_UP - 3, repeats):
        seed = repeat + WARM_UP + 3
        if repeat == 0:
            times = Times()
        start = time.perf_counter()
        parts.plan(len(images), (height, width), torch.Generator().manual_seed(seed))
        times.plan.append(time.perf_counter() - start)
        results = []
        for name, way in ways.items():
            generator = torch.Generator().manual_seed(seed)
            with kernels(name == "fused"):
                start = time.perf_counter()
                results.append(way(images, generator))
                middle = time.perf_counter()
            if images.is_cuda:
                torch.cuda.synchronize()
            times.issued[name].append(middle - start)
            times.done[name].append(time.perf_counter() - start)
        assert repeat >= 0 or all(torch.equal(results[0], other) for other in results[1:])
        if isinstance(policy, StepPolicy):
            generator = torch.Generator().manual_seed(seed)
            start = time.perf_counter()
            in_pillow(arrays, policy.draw(len(images), (height, width), generator))
            times.pillow.append(time.perf_counter() - start)
    if images.is_cuda:
        plan = parts.plan(len(images), (height, width), torch.Generator().manual_seed(0)).cuda()
        for name in [*ways][1:]:
            with kernels(name == "fused"):
                times.device[name] = on_device(parts, images, plan)
    return times


def milliseconds(seconds: list[float]) -> str:
    """The median, or nothing."""
    return f"{statistics.median(seconds) * 1e3:.2f}" if seconds else ""


def main(
    policy: Annotated[list[str] | None, typer.Option(help="Policies to time.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[int, typer.Option(help="Images of a batch.")] = 256,
    size: Annotated[int, typer.Option(help="Height and width.")] = 32,
    repeats: Annotated[int, typer.Option(help="Batches; the median is printed.")] = 20,
) -> None:
    """Time policies per batch."""
    torch.set_num_threads(1)
    levels = torch.randint(256, (batch, 3, size, size), generator=torch.Generator().manual_seed(0))
    images = (levels.float() / 255).to(device)
    arrays = levels.to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    shape = f"{batch} x 3 x {size} x {size}"
    printed = Table(title=f"ms per batch of {shape} on {device}, median of {repeats}")
    printed.add_column("policy")
    for heading in (
        "called:\nissued", "\ndone", "whole:\nplan", "\nissued", "\ndone", "\ndevice",
        "fused:\nissued", "\ndone", "\ndevice", "Pillow", "Pillow /\ncalled",
    ):  # fmt: skip
        printed.add_column(heading, justify="right")
    for spec in policy or POLICIES:
        times = measure(spec, images, arrays, repeats)
        row = [*map(milliseconds, (times.issued["called"], times.done["called"], times.plan))]
        for name in WAYS[1:]:
            row += map(milliseconds, (times.issued[name], times.done[name]))
            row.append(f"{times.device[name] * 1e3:.3f}" if name in times.device else "")
        if times.pillow:
            theirs = statistics.median(times.pillow)
            row += [
                f"{theirs * 1e3:.1f}",
                f"{theirs / statistics.median(times.done['called']):.1f}",
            ]
        printed.add_row(spec, *row)
    Console().print(printed)


if __name__ == "__main__":
    typer.run(main)
