"""``autodo bench``: the measurements as tables, or as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autodo.experiment.bench.host import WAYS, WORKERS, HostReport
from autodo.experiment.bench.measure import PARTS, Report, Setting, measure
from autodo.models.registry import find
from autodo.train.files import write_text


def run(
    *,
    device: str,
    network: str | None,
    batch: int | None,
    points: int | None,
    sizes: tuple[int, ...] | None,
    parts: tuple[str, ...] = PARTS,
    json_file: Path | None,
) -> Report:
    """Measure, print, and write ``json_file`` if it is named."""
    setting = Setting.default(device)
    setting = dataclasses.replace(
        setting,
        network=network or setting.network,
        batch=batch or setting.batch,
        points=points or setting.points,
        sizes=sizes or setting.sizes,
    )
    find(setting.network)  # a misspelt name is refused before anything is timed
    console = Console(highlight=False)
    with console.status("starting") as status:

        def tell(what: str) -> None:
            status.update(f"measuring {what}")
            if not console.is_terminal:
                print(f"measuring {what}", file=sys.stderr, flush=True)

        report = measure(setting, tell, parts=parts)
    if {"steps", "rows"} & set(parts):
        console.print(
            f"{report.device}: {setting.network}, batch {setting.batch}, {setting.points:,} "
            f"points, policy {setting.policy} and the per-point warp included",
            soft_wrap=True,
        )
    if report.timings:
        console.print(
            f"a large product runs at {report.product_tflops:.3g} TFLOP/s, a copy at "
            f"{report.copy_gbs:.3g} GB/s; the first step took {report.prepare_s:.1f} s",
            soft_wrap=True,
        )
        console.print(_steps(report))
    if report.timings or report.ms_by_rows:
        console.print(_facts(report))
    if report.host is not None:
        host = report.host.setting
        console.print(
            f"{report.device}: {host.network}, batch {host.batch}, {host.size}x{host.size} images, "
            f"plain training with the images in different places; a batch of "
            f"{host.batch_bytes / 1e6:.1f} MB is gathered in {report.host.gather_ms:.1f} ms by "
            f"{report.host.threads} thread(s), sent in {_optional(report.host.send_ms, '.1f')} ms",
            soft_wrap=True,
        )
        console.print(_host(report.host))
    if json_file is not None:
        write_text(json_file, json.dumps(as_json(report), indent=1) + "\n")
    return report


def as_json(report: Report) -> dict[str, object]:
    """Everything measured, with the derived numbers of the table."""
    values = dataclasses.asdict(report)
    values["timings"] = [timing.row() for timing in report.timings]
    return values


def _steps(report: Report) -> Table:
    table = Table()
    for name in (
        "step", "ms", "images/s", "TFLOP/s", "x floor", "published", "faster", "GiB",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name == "step" else "right")
    for timing in report.timings:
        row = timing.row()
        table.add_row(
            timing.name,
            f"{timing.ms:.2f}",
            f"{row['images_per_s']:,.0f}",
            f"{row['tflops']:.3g}",
            f"{row['times_floor']:.2f}",
            _optional(timing.published_ms, ".1f", " ms"),
            _optional(row["times_faster_than_published"], ".1f", "x"),
            _optional(timing.gib, ".2f"),
        )
    return table


def _facts(report: Report) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    if report.timings:
        ratio = _optional(report.epoch_over_steps, ".3f")
        table.add_row("an epoch over the sum of its steps", ratio)
        table.add_row(
            "memory held over that of plain training", _optional(report.memory_over_plain, ".3f")
        )
    for size, (training, hyper) in report.ms_by_rows.items():
        table.add_row(f"training and hyper step, {size:,} rows", f"{training:.2f}, {hyper:.2f} ms")
    return table


def _host(report: HostReport) -> Table:
    table = Table()
    for name in ("images", "images/s", "of the device's speed", "first step"):
        table.add_column(name, justify="left" if name == "images" else "right")
    for way, words in WAYS.items():
        table.add_row(
            words + (f" ({report.setting.workers})" if way == WORKERS else ""),
            _optional(report.images_per_s.get(way), ",.0f"),
            _optional(report.over_device.get(way), ".1%"),
            _optional(report.first_step_s.get(way), ".1f", " s"),
        )
    return table


def _optional(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else format(value, form) + unit
