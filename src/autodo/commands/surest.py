"""The surest wrong labels as a table, for every command that finds some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console


def print_surest(console: Console, issues: pa.Table, names: Sequence[str], title: str) -> None:
    """The first ten of ``issues``, which are sorted; ``title`` says what their ids are."""
    from rich.table import Table
    from rich.text import Text

    if not issues.num_rows:
        return
    table = Table(title, "given", "suggested", "score", box=None, pad_edge=False)
    for row in issues.slice(0, 10).to_pylist():
        table.add_row(
            Text(row["id"], overflow="fold"),
            Text(names[row["given_label"]], overflow="fold"),
            Text(names[row["suggested_label"]], overflow="fold"),
            f"{row['label_score']:.3f}",
        )
    about = "the surest (score: the learned probability of the given label):"
    console.print(about, markup=False, soft_wrap=True)
    console.print(table)
