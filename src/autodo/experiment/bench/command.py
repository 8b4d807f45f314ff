"""``autodo bench``: the measurements as tables, or as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autodo.experiment.bench.measure import Report, Setting, measure
from autodo.models.registry import find
from autodo.train.files import write_text


def run(
    *,
    device: str,
    network: str | None,
    batch: int | None,
    points: int | None,
    sizes: tuple[int, ...] | None,
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

        report = measure(setting, tell)
    console.print(
        f"{report.device}: {setting.network}, batch {setting.batch}, {setting.points:,} points, "
        f"policy {setting.policy} and the per-point warp included\n"
        f"a large product runs at {report.product_tflops:.3g} TFLOP/s, a copy at "
        f"{report.copy_gbs:.3g} GB/s; the first step took {report.prepare_s:.1f} s",
        soft_wrap=True,
    )
    console.print(_steps(report))
    console.print(_facts(report))
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
    table.add_row("an epoch over the sum of its steps", f"{report.epoch_over_steps:.3f}")
    table.add_row(
        "memory held over that of plain training", _optional(report.memory_over_plain, ".3f")
    )
    for size, (training, hyper) in report.ms_by_rows.items():
        table.add_row(f"training and hyper step, {size:,} rows", f"{training:.2f}, {hyper:.2f} ms")
    return table


def _optional(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else format(value, form) + unit
