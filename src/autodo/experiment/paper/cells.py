"""The cells of the paper's tables as data: what is run, and the error the paper prints for it.

A :class:`Cell` names one run (data set, distortion IR-NR, method, and what the ablations change)
and its place in a table. Two places can hold the same run: the left column of Table 5
repeats runs of Tables 1 to 3. Knows nothing of torch, so that ``autodo paper --list`` answers at
once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from autodo.errors import InputError

METHODS = {
    "baseline": "standard augmentation",
    "raa": "RandAugment",
    "faa": "Fast AutoAugment's policy",
    "dada": "DADA's policy",
    "sha": "AutoDO, one augmentation for all points",
    "a": "AutoDO, augmentation per point",
    "aw": "AutoDO, augmentation and weights",
    "aws": "AutoDO, augmentation, weights and labels",
}
"""The eight configurations, in the order of the tables' rows."""

DATASETS = ("svhn", "cifar10", "cifar100", "imagenet")

TITLES = {
    "1": "Table 1: SVHN, WRN-28-10",
    "2": "Table 2: CIFAR-10, WRN-28-10",
    "3": "Table 3: CIFAR-100, WRN-28-10",
    "4": "Table 4: ImageNet, ResNet-18",
    "5": "Table 5: lambda estimated on the trusted split and on the test set",
    "6": "Table 6: training and estimating lambda on all training data",
    "E": "Study of E: SVHN, the epoch after which lambda is learned",
}

ON_TEST = "lambda estimated on test: an ablation, not a result"
"""What every mention of a run says that learned from the test set."""

E_STUDY = (10, 50, 150, 190)
DEFAULT_E = 50
"""E of the tables for all data sets but ImageNet; the study's run with it is Table 1's."""


@dataclass(frozen=True)
class Figure:
    """A test error in percent as the paper prints it: mean, and deviation where there is one."""

    mean: str
    deviation: str | None = None

    def __str__(self) -> str:
        return self.mean if self.deviation is None else f"{self.mean}±{self.deviation}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place in one table.

    >>> cell = find("svhn", "100-0.1", "aws")
    >>> cell.table, str(cell.paper), cell.folder
    ('1', '6.3±0.57', 'svhn/100-0.1/aws')
    """

    dataset: str
    distortion: str
    """IR-NR: imbalance ratio and noise ratio, such as "100-0.1"."""
    method: str
    """One of METHODS."""
    table: str
    """"1" to "6", or "E"."""
    paper: Figure | None = None
    """What the paper prints; it draws the study of E but prints no numbers."""
    lambda_from: str = "trusted"
    """Where lambda is estimated: "trusted", the split; "test", Table 5; "train", Table 6."""
    start_epoch: int | None = None
    """E, where the study sets another than the protocol's."""

    @property
    def name(self) -> str:
        """The method as it is typed: with a suffix where an ablation changes the protocol."""
        suffix = {"trusted": "", "test": "-on-test", "train": "-on-all"}[self.lambda_from]
        return self.method + suffix + (f"-E{self.start_epoch}" if self.start_epoch else "")

    @property
    def folder(self) -> str:
        """Where its runs lie, below the folder of all runs."""
        return f"{self.dataset}/{self.distortion}/{self.name}"

    @property
    def note(self) -> str:
        """What a reader of the number must know."""
        if self.lambda_from == "test":
            return ON_TEST
        if self.lambda_from == "train":
            learns = METHODS[self.method].startswith("AutoDO")
            return (
                "lambda estimated and trained on all training data"
                if learns
                else ("trained on all training data")
            )
        return f"E = {self.start_epoch}" if self.start_epoch else ""

    @property
    def about(self) -> str:
        """The method in words."""
        return METHODS[self.method]


def _grid(table: str, dataset: str, columns: str, rows: str) -> list[Cell]:
    """Cells of a table written as in the paper, errors as mean/deviation."""
    cells = []
    for row in rows.strip().splitlines():
        method, *errors = row.split()
        for distortion, error in zip(columns.split(), errors, strict=True):
            mean, _, deviation = error.partition("/")
            cells.append(
                Cell(
                    dataset=dataset,
                    distortion=distortion,
                    method=method,
                    table=table,
                    paper=Figure(mean, deviation or None),
                )
            )
    return cells


_MAIN = [
    *_grid(
        "1", "svhn", "1-0.0 100-0.0 1-0.1 100-0.1",
        """
        baseline  3.6/0.10  13.6/0.69  5.3/0.27  20.0/1.92
        raa       2.7/0.04  10.9/0.66  3.4/0.11  13.6/0.96
        faa       2.8/0.02  11.5/0.32  3.7/0.08  15.3/1.07
        dada      2.9/0.03  12.2/0.54  4.1/0.13  16.5/1.51
        sha       2.8/0.10  12.6/1.53  3.0/0.17  13.7/0.77
        a         2.7/0.09  10.2/0.50  3.0/0.07  12.3/0.80
        aw        2.8/0.04   6.1/0.22  2.8/0.07   8.1/0.14
        aws       2.5/0.04   5.3/0.21  2.6/0.05   6.3/0.57
        """,
    ),
    *_grid(
        "2", "cifar10", "1-0.0 10-0.0 1-0.1 10-0.1",
        """
        baseline  6.0/0.10  16.3/0.54  12.8/0.14  22.8/1.09
        raa       5.2/0.08  13.4/0.30   7.8/0.16  17.4/0.21
        faa       5.0/0.14  13.3/0.38   8.2/0.28  17.9/0.32
        dada      5.5/0.12  14.2/0.15  10.6/0.08  20.2/0.83
        sha       5.9/0.22  17.1/0.87   7.6/0.28  19.4/1.23
        a         5.2/0.20  13.0/0.47   7.1/0.16  16.6/0.20
        aw        5.4/0.17  12.9/0.40   6.8/0.07  15.1/0.19
        aws       4.9/0.09  11.8/0.35   5.8/0.29  13.1/0.16
        """,
    ),
    *_grid(
        "3", "cifar100", "1-0.0 10-0.0 1-0.1 10-0.1",
        """
        baseline  24.9/0.19  45.9/0.86  36.6/0.65  54.5/0.74
        raa       23.0/0.15  41.7/0.29  33.7/0.66  50.1/0.52
        faa       22.7/0.23  40.0/0.27  31.4/0.25  48.9/0.51
        dada      23.1/0.05  41.1/0.22  32.4/0.48  49.6/0.44
        sha       24.7/0.94  41.0/1.29  31.4/1.75  48.9/1.80
        a         23.1/0.25  40.8/0.43  30.6/0.48  47.4/0.33
        aw        22.2/0.22  39.0/0.30  30.6/0.50  48.0/0.38
        aws       22.4/0.25  36.7/0.32  27.3/0.29  39.6/0.06
        """,
    ),
    # The paper ran ImageNet once, and of AutoDO only the whole.
    *_grid(
        "4", "imagenet", "10-0.0 10-0.1",
        """
        baseline  43.1  46.2
        raa       42.0  45.4
        faa       41.6  44.7
        dada      41.9  44.9
        aws       40.4  44.1
        """,
    ),
]  # fmt: skip


def _ablation(
    table: str, dataset: str, method: str, mean: str, deviation: str, lambda_from: str
) -> Cell:
    return Cell(
        dataset=dataset,
        distortion="1-0.0",
        method=method,
        table=table,
        paper=Figure(mean, deviation),
        lambda_from=lambda_from,
    )


# For CIFAR-100 Table 5 prints 22.20±0.22, which in Table 3 is the row without labels (aw).
_TABLE_5 = [
    _ablation("5", "svhn", "aws", "2.48", "0.04", "trusted"),
    _ablation("5", "svhn", "aws", "2.48", "0.05", "test"),
    _ablation("5", "cifar10", "aws", "4.92", "0.09", "trusted"),
    _ablation("5", "cifar10", "aws", "5.11", "0.12", "test"),
    _ablation("5", "cifar100", "aw", "22.20", "0.22", "trusted"),
    _ablation("5", "cifar100", "aw", "22.12", "0.30", "test"),
]

_TABLE_6 = [
    _ablation("6", "svhn", "raa", "2.46", "0.05", "train"),
    _ablation("6", "svhn", "faa", "2.49", "0.05", "train"),
    _ablation("6", "svhn", "aws", "2.39", "0.02", "train"),
    _ablation("6", "cifar10", "raa", "4.70", "0.13", "train"),
    _ablation("6", "cifar10", "faa", "4.37", "0.11", "train"),
    _ablation("6", "cifar10", "aws", "4.56", "0.16", "train"),
    _ablation("6", "cifar100", "raa", "21.85", "0.21", "train"),
    _ablation("6", "cifar100", "faa", "20.42", "0.21", "train"),
    _ablation("6", "cifar100", "aws", "20.49", "0.27", "train"),
]

# The paper shows these as curves; of the four runs Table 1 prints the one with E = 50.
_STUDY = [
    Cell(
        dataset="svhn",
        distortion="100-0.1",
        method="aws",
        table="E",
        paper=Figure("6.3", "0.57") if epoch == DEFAULT_E else None,
        start_epoch=None if epoch == DEFAULT_E else epoch,
    )
    for epoch in E_STUDY
]

CELLS: tuple[Cell, ...] = (*_MAIN, *_TABLE_5, *_TABLE_6, *_STUDY)
"""All places of all tables, in the paper's order."""


def of_table(table: str) -> list[Cell]:
    """The cells of "1" to "6" or "E"."""
    cells = [cell for cell in CELLS if cell.table.lower() == table.lower()]
    if not cells:
        raise InputError(
            f"there is no table {table!r}",
            f"the tables are {', '.join(TITLES)}",
            "write for instance --table 1",
        )
    return cells


def find(dataset: str, distortion: str, name: str) -> Cell:
    """The cell of a data set, an IR-NR and a method as typed; else the nearest names."""
    check_dataset(dataset)
    here = [c for c in CELLS if c.dataset == dataset]
    _known("distortion", distortion, {c.distortion for c in here}, f" of {dataset}")
    here = [c for c in here if c.distortion == distortion]
    _known("method", name, {c.name for c in here}, f" of {dataset} {distortion}")
    return next(c for c in here if c.name == name)


def check_dataset(dataset: str) -> None:
    """Raise unless the paper has this data set."""
    _known("data set", dataset, DATASETS, "")


def _known(kind: str, given: str, choices: Iterable[str], where: str) -> None:
    known = _order(choices)
    if given in known:
        return
    near = difflib.get_close_matches(given.lower(), known, n=3, cutoff=0.5)
    raise InputError(
        f"the paper has no {kind} {given!r}{where}" if given else f"no {kind}{where} is named",
        (f"the nearest is {' or '.join(near)}; " if near else "") + f"there are {', '.join(known)}",
        "autodo paper --list shows every cell",
    )


def _order(names: Iterable[str]) -> list[str]:
    """In the paper's order rather than the alphabet's."""
    names = set(names)
    seen = [part for c in CELLS for part in (c.dataset, c.distortion, c.name)]
    return [name for name in dict.fromkeys(seen) if name in names]
