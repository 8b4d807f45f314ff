"""The list of cells, and tables of what was run beside the paper's numbers."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from autodo.experiment.paper.cells import CELLS, ON_TEST, TITLES, Cell, of_table
from autodo.experiment.paper.results import SeedResult, Spread, collect

LAST = "last epoch"
BEST = "best epoch, chosen on test: as the published code reports"


def list_table(dataset: str | None = None) -> Table:
    """Every cell once for each table that it stands in."""
    table = Table(
        title="The cells of the paper's tables (test error in %, mean±deviation)",
        caption="autodo paper DATASET IR-NR METHOD runs one",
        box=None,
        pad_edge=False,
    )
    for column in ("table", "dataset", "IR-NR", "method"):
        table.add_column(column, no_wrap=True)
    table.add_column("paper", justify="right", no_wrap=True)
    table.add_column("what it is")
    before = None
    for cell in CELLS:
        if dataset is not None and cell.dataset != dataset:
            continue
        if before is not None and before.table != cell.table:
            table.add_section()
        before = cell
        about = f"{cell.about}; {cell.note}" if cell.note else cell.about
        table.add_row(
            cell.table, cell.dataset, cell.distortion, cell.name, _paper(cell), about,
            style="yellow" if cell.lambda_from == "test" else None,
        )  # fmt: skip
    return table


def result_table(number: str, out: Path, *, scale: str = "full") -> Table:
    """One table of the paper: seeds that were run, their errors, and the paper's."""
    cells = of_table(number)
    number = cells[0].table
    small = "" if scale == "full" else f"\nat scale {scale}: not comparable with the paper's"
    caption = "- is not run yet (or not printed in the paper); ± is the sample deviation over seeds"
    if any(cell.lambda_from == "test" for cell in cells):
        caption += f"\n*: {ON_TEST}"
    table = Table(title=f"{TITLES[number]}: test error in %{small}", caption=caption)
    with_dataset = len({cell.dataset for cell in cells}) > 1
    if with_dataset:
        table.add_column("dataset", no_wrap=True)
    table.add_column("IR-NR", no_wrap=True)
    table.add_column("method", no_wrap=True)
    table.add_column("seeds", justify="right")
    for column in (LAST, BEST, "paper"):
        table.add_column(column, justify="right", max_width=24)
    ordered = sorted(cells, key=lambda c: _group(c, cells))
    for cell, after in zip(ordered, [*ordered[1:], None], strict=True):
        mark = " *" if cell.lambda_from == "test" else ""
        table.add_row(
            *([cell.dataset] if with_dataset else []),
            cell.distortion,
            cell.name + mark,
            *_measured(collect(out, cell)),
            _paper(cell),
            end_section=after is not None and _group(after, cells) != _group(cell, cells),
        )
    return table


def _group(cell: Cell, cells: list[Cell]) -> tuple[int, int]:
    """Where its data set and its distortion first appear in the table."""
    datasets, distortions = ([getattr(c, k) for c in cells] for k in ("dataset", "distortion"))
    return datasets.index(cell.dataset), distortions.index(cell.distortion)


def _paper(cell: Cell) -> str:
    return "-" if cell.paper is None else str(cell.paper)


def _measured(results: list[SeedResult]) -> tuple[str, str, str]:
    """Number of seeds, error of the last epoch, error of the best one."""
    if not results:
        return "-", "-", "-"
    return (
        str(len(results)),
        str(Spread.of([r.test_error for r in results])),
        str(Spread.of([r.best_test_error for r in results])),
    )


def cell_table(cell: Cell, results: list[SeedResult], *, scale: str = "full") -> Table:
    """One cell: each seed, the mean, and the paper's number."""
    small = "" if scale == "full" else f" (scale {scale}: not comparable with the paper's)"
    title = f"{cell.dataset} {cell.distortion} {cell.name}: {cell.about}{small}"
    table = Table(title=title, caption=f"* {cell.note}" if cell.note else None)
    table.add_column("seed")
    for column in (LAST, BEST, "mean accuracy of the rare half of the classes",
                   "deviation of the accuracy between classes"):  # fmt: skip
        table.add_column(f"{column}, %", justify="right", max_width=24)
    for result in results:
        table.add_row(
            str(result.seed),
            f"{100 * result.test_error:.2f}",
            f"{100 * result.best_test_error:.2f} (epoch {result.best_epoch})",
            f"{100 * result.rare_accuracy:.1f}",
            f"{100 * result.interclass_deviation:.1f}",
        )
    table.add_section()
    columns = ("test_error", "best_test_error", "rare_accuracy", "interclass_deviation")
    means = [Spread.of([getattr(r, c) for r in results]) for c in columns]
    table.add_row("mean", *(str(mean) for mean in means), style="bold")
    table.add_row("paper", _paper(cell), "", "", "")
    return table
