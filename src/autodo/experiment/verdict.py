"""The table of a comparison, on a screen and in Markdown, and the sentence on what to use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from rich.table import Table
from scipy.special import ndtri, stdtrit

from autodo.experiment.methods import METHODS, OURS
from autodo.experiment.score import Score, Scores
from autodo.hyper.symmetry import SYMMETRIES
from autodo.train.recognition import IN_WORDS

SURE = 0.95
"""How sure it must be that a method is better, on one side."""
COLUMNS = (
    "method",
    "test error",
    "rare half",
    "AutoDO minus it",
    "AUC",
    "AP",
    "labels right",
    "seconds",
)
LEGEND = """\
In percent, means ± deviations over the seeds. "rare half": errors on the rarer half of the classes.
"AutoDO minus it": the difference in test error, paired by seed. Where the truth is known, of the
wrong labels: AUC and average precision (AP) of their ranking, and the labels of train that are
right after the suggestions. "seconds": of a run."""


def table(scores: Scores, title: str) -> Table:
    """Means and deviations in percent; differences to AutoDO paired by seed."""
    out = Table(title=title)
    for k, column in enumerate(COLUMNS):
        out.add_column(column, justify="left" if k == 0 else "right")
    best = _ranked(scores)[0]
    for name, *cells in _rows(scores):
        out.add_row(name, *cells, style="bold" if name == best else None)
    return out


def markdown(scores: Scores, title: str) -> str:
    """The same with the sentence, to keep beside the runs.

    >>> one = Score(test_error=0.25, rare_error=0.5, seconds=3.0)
    >>> print("\\n".join(markdown({"plain": {0: one}}, "mine").splitlines()[2:7]))
    Only plain was run: 25.0% test error.
    <BLANKLINE>
    | method | test error | rare half | AutoDO minus it | AUC | AP | labels right | seconds |
    |---|---|---|---|---|---|---|---|
    | **plain** | 25.00 | 50.00 | - | - | - | - | 3.0 |
    """
    best = _ranked(scores)[0]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for name, *cells in _rows(scores):
        lines.append(f"| {' | '.join([f'**{name}**' if name == best else name, *cells])} |")
    return "\n".join([f"# {title}", "", verdict(scores), "", *lines, "", LEGEND, ""])


def _rows(scores: Scores) -> list[list[str]]:
    """A row of cells for each method, in their usual order."""
    return [
        [
            name,
            _spread([run.test_error for run in scores[name].values()]),
            _spread([run.rare_error for run in scores[name].values()]),
            "" if name == OURS else _spread(differences(scores, name)),
            _decimal(scores[name], "auc"),
            _decimal(scores[name], "average_precision"),
            _percent(scores[name], "corrected"),
            _seconds(scores[name]),
        ]
        for name in sorted(scores, key=_place)
    ]


def _ranked(scores: Scores) -> list[str]:
    """The methods by mean test error, the lowest first, over the seeds that all have."""
    common = _in_common(scores)
    runs = common if all(common.values()) else scores
    return sorted(scores, key=lambda name: _mean(runs[name], "test_error"))


def _place(name: str) -> int:
    return METHODS.index(name) if name in METHODS else len(METHODS)


def differences(scores: Scores, name: str) -> list[float]:
    """Test error of AutoDO minus that of another method, seed by seed."""
    ours, theirs = scores.get(OURS, {}), scores[name]
    return [ours[k].test_error - theirs[k].test_error for k in sorted(ours.keys() & theirs.keys())]


def verdict(scores: Scores) -> str:
    """Which method to use, in a sentence that follows from the seeds that all of them have.

    A difference counts when chance between seeds would bring it about one time in twenty at most
    (Student's t, paired by seed). Another sentence says what only AutoDO knew of the images.
    """
    return _which(scores) + _unlike(scores)


def _unlike(scores: Scores) -> str:
    """Of a symmetry that AutoDO found and the others were not told."""
    runs = scores.get(OURS, {}).values()
    found = [run.symmetry for run in runs if run.symmetry is not None and run.symmetry in IN_WORDS]
    if not found or len(scores) == 1:
        return ""
    name = max(found, key=SYMMETRIES.index)
    return (
        f" {OURS} found out that these images may be {IN_WORDS[name]} and learned from them so, "
        f"the others did not: --set symmetry={name} tells all."
    )


def _which(scores: Scores) -> str:
    if len(scores) == 1:
        ((only, runs),) = scores.items()
        return f"Only {only} was run: {_mean(runs, 'test_error'):.1%} test error."
    common = _in_common(scores)
    seeds = min(len(runs) for runs in common.values())
    if seeds == 0:
        return "The methods have no seed in common so far: the same command goes on."
    best, second, *_ = _ranked(common)
    error, next_error = (f"{_mean(common[name], 'test_error'):.1%}" for name in (best, second))
    if seeds == 1:
        return (
            f"{best} has the lowest test error ({error}, against {next_error} of {second}), but "
            "one seed cannot say how sure that is: run more with --seeds."
        )
    level = [name for name in _ranked(common)[1:] if not _clearly(common, best, name)]
    if not level:
        return (
            f"Use {best}: {error} test error, {next_error} with the next best ({second}), more "
            f"than chance between {seeds} seeds.{_few_images(common, best, second)}"
        )
    cheapest = min([best, *level], key=lambda name: _mean(common[name], "seconds"))
    return (
        f"{best} has the lowest test error ({error}), but over {seeds} seeds it cannot be told "
        f"from {_listed(level)}; the cheapest of these is {cheapest}."
    )


def _in_common(scores: Scores) -> Scores:
    """The runs with the seeds that every method has."""
    seeds = set.intersection(*(set(runs) for runs in scores.values()))
    return {name: {k: runs[k] for k in sorted(seeds)} for name, runs in scores.items()}


def _clearly(scores: Scores, best: str, other: str) -> bool:
    """Whether ``best`` is better than ``other`` by more than chance between the seeds."""
    gaps = [scores[other][k].test_error - run.test_error for k, run in scores[best].items()]
    least = float(stdtrit(len(gaps) - 1, SURE)) * stdev(gaps) / math.sqrt(len(gaps))
    return mean(gaps) > least


def _few_images(scores: Scores, best: str, other: str) -> str:
    """A warning where other test images, as many, could well order two methods otherwise.

    Errors on the same images are taken for independent, which makes chance look larger.
    """
    images = sum(map(sum, next(iter(scores[best].values())).confusion))
    low, high = (_mean(scores[name], "test_error") for name in (best, other))
    chance = math.sqrt((low * (1 - low) + high * (1 - high)) / max(images, 1))
    if not images or high - low > float(ndtri(SURE)) * chance:
        return ""
    return f" Other {images:,} test images could order the two otherwise: test on more."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{'; '.join(names[:-1])} and {names[-1]}"


def _mean(runs: Mapping[int, Score], field: str) -> float:
    return mean(getattr(run, field) for run in runs.values())


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    deviation = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2f}{deviation}"


def _decimal(runs: Mapping[int, Score], field: str) -> str:
    found = [value for run in runs.values() if (value := getattr(run, field)) is not None]
    return f"{mean(found):.4f}" if found else "-"


def _percent(runs: Mapping[int, Score], field: str) -> str:
    found = [value for run in runs.values() if (value := getattr(run, field)) is not None]
    return _spread(found) if found else "-"


def _seconds(runs: Mapping[int, Score]) -> str:
    seconds = _mean(runs, "seconds")
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
