"""Distortions of a clean set: classes made rare, labels made wrong.

All work on labels alone and are functions of their seed (a numpy generator), so a distorted
set can be made again anywhere. The paper's two are the step imbalance and the uniform noise;
their figures are those of the published protocol. :class:`Distortion` names one of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autodo.data import wording
from autodo.data.label_file import read_labels
from autodo.data.labels import check_range, default_names
from autodo.errors import InputError

CIFAR10_FLIPS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""The customary confusions of CIFAR-10: truck is called automobile, bird airplane, deer horse,
and cat and dog each other."""


def step_imbalance(labels: Tensor, ratio: float, *, num_classes: int, seed: int) -> Tensor:
    """Make the classes C/2 .. C-1 rare; labels (N,) -> index (M,) of the points kept, sorted.

    That half is cut to (number of points in the other half) / ratio, rounded down, drawn
    over the whole half; it is left alone if it is as small already.

    >>> labels = torch.arange(4).repeat(100)
    >>> kept = labels[step_imbalance(labels, 10, num_classes=4, seed=0)]
    >>> (kept < 2).sum(), (kept >= 2).sum()
    (tensor(200), tensor(20))
    """
    _check_ratio(
        ratio, "the ratio is how many times more points the common half of the classes has"
    )
    check_range(labels, num_classes, name="labels")
    given = labels.cpu().numpy()
    rare = np.flatnonzero(given >= num_classes // 2)
    common = np.flatnonzero(given < num_classes // 2)
    size = min(int(len(common) / ratio), len(rare))
    drawn = np.random.default_rng(seed).choice(rare, size, replace=False)

    lost = sorted(set(given[rare].tolist()) - set(given[drawn].tolist()))
    if lost:
        raise InputError(
            f"an imbalance ratio of {ratio:g} leaves no example of "
            f"{wording.classes(lost, default_names(num_classes))}",
            f"only {len(common):,} / {ratio:g} = {size:,} of {len(rare):,} points are kept "
            f"of classes {num_classes // 2} .. {num_classes - 1} together",
            "take a smaller ratio, a larger set, or another seed",
        )
    return torch.from_numpy(np.sort(np.concatenate([common, drawn])))


def long_tail(labels: Tensor, ratio: float, *, num_classes: int, seed: int) -> Tensor:
    """Make each class rarer than the one before; labels (N,) -> index (M,) kept, sorted.

    Class c keeps n * ratio^(-c / (C - 1)) points, rounded down, of the n that the largest class
    has (or all of its own, if fewer): the first class is ``ratio`` times as large as the last.

    >>> labels = torch.arange(3).repeat(100)
    >>> labels[long_tail(labels, 100, num_classes=3, seed=0)].bincount()
    tensor([100,  10,   1])
    """
    _check_ratio(ratio, "the ratio is how many times more points the first class has than the last")
    check_range(labels, num_classes, name="labels")
    given = labels.cpu().numpy()
    counts = np.bincount(given, minlength=num_classes)
    place = np.arange(num_classes) / max(num_classes - 1, 1)
    # The small addend undoes rounding errors of the power: 100 * 100^(-1/2) is to be 10.
    sizes = np.minimum(np.floor(counts.max() * ratio**-place + 1e-9).astype(int), counts)
    lost = np.flatnonzero((sizes == 0) & (counts > 0)).tolist()
    if lost:
        raise InputError(
            f"a long tail of ratio {ratio:g} leaves no example of "
            f"{wording.classes(lost, default_names(num_classes))}",
            f"the largest class has {counts.max():,} points, and "
            f"{counts.max():,} / {ratio:g} is less than 1",
            f"take a ratio of at most {counts.max()}, or a larger set",
        )
    generator = np.random.default_rng(seed)
    kept = [
        generator.choice(np.flatnonzero(given == c), size, replace=False)
        for c, size in enumerate(sizes)
    ]
    return torch.from_numpy(np.sort(np.concatenate(kept)))


def uniform_noise(labels: Tensor, rate: float, *, num_classes: int, seed: int) -> Tensor:
    """Labels (N,) of which round(rate * N) random ones are drawn anew, uniform over all classes.

    A redrawn label may be the old one, so about rate * (1 - 1/C) of the labels become wrong.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> 0.16 < uniform_noise(labels, 0.2, num_classes=10, seed=0).bool().float().mean() < 0.2
    tensor(True)
    """
    noisy, chosen, generator = _chosen(labels, rate, num_classes, seed)
    noisy[chosen] = generator.integers(num_classes, size=len(chosen))
    return torch.from_numpy(noisy)


def symmetric_noise(labels: Tensor, rate: float, *, num_classes: int, seed: int) -> Tensor:
    """Labels (N,) of which round(rate * N) random ones become wrong, uniform over other classes.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> (symmetric_noise(labels, 0.2, num_classes=10, seed=0) != labels).sum()
    tensor(200)
    """
    noisy, chosen, generator = _chosen(labels, rate, num_classes, seed)
    if num_classes < 2 and len(chosen):
        raise InputError(
            "symmetric label noise with one class",
            "there is no other class to call a point by",
            "take two classes or more",
        )
    if len(chosen):
        noisy[chosen] += generator.integers(1, num_classes, size=len(chosen))
    return torch.from_numpy(noisy % num_classes)


def asymmetric_noise(
    labels: Tensor,
    rate: float,
    *,
    num_classes: int,
    seed: int,
    flips: Mapping[int, int] | None = None,
) -> Tensor:
    """Labels (N,) of which, in each class c of ``flips``, round(rate * n_c) become flips[c].

    Without ``flips`` every class is called by the next one, and the last by the first.
    :data:`CIFAR10_FLIPS` are those customary for CIFAR-10.

    >>> labels = torch.arange(3).repeat(10)
    >>> noisy = asymmetric_noise(labels, 0.4, num_classes=3, seed=0, flips={0: 2})
    >>> [noisy[labels == c].bincount(minlength=3).tolist() for c in range(3)]
    [[6, 0, 4], [0, 10, 0], [0, 0, 10]]
    """
    _check_rate(rate)
    check_range(labels, num_classes, name="labels")
    if flips is None:
        flips = {c: (c + 1) % num_classes for c in range(num_classes)}
    unknown = sorted({c for pair in flips.items() for c in pair if not 0 <= c < num_classes})
    if unknown:
        raise InputError(
            f"label flips of {wording.classes(unknown, ())}",
            f"there are {num_classes} classes, counted from 0",
            f"give flips between 0 and {num_classes - 1}",
        )
    generator = np.random.default_rng(seed)
    given = labels.cpu().numpy()
    noisy = given.copy()
    for c in sorted(flips):
        members = np.flatnonzero(given == c)
        noisy[generator.choice(members, round(rate * len(members)), replace=False)] = flips[c]
    return torch.from_numpy(noisy)


def _check_ratio(ratio: float, meaning: str) -> None:
    if not (math.isfinite(ratio) and ratio >= 1):
        raise InputError(f"an imbalance ratio of {ratio}", meaning, "give a number of 1 or more")


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InputError(
            f"a label noise rate of {rate}",
            "the rate is the share of labels that are drawn anew or made wrong",
            "give a number from 0 to 1",
        )


def _chosen(
    labels: Tensor, rate: float, num_classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """A copy of the labels, which round(rate * N) of them to change, and what to draw from."""
    _check_rate(rate)
    check_range(labels, num_classes, name="labels")
    generator = np.random.default_rng(seed)
    chosen = generator.choice(len(labels), round(rate * len(labels)), replace=False)
    return labels.cpu().numpy().copy(), chosen, generator


IMBALANCES = {"step": step_imbalance, "long-tail": long_tail}
NOISES = {
    "uniform": uniform_noise,
    "symmetric": symmetric_noise,
    "asymmetric": asymmetric_noise,
}
_SHORT = {"": "step", "lt": "long-tail"}, {"": "uniform", "sym": "symmetric", "asym": "asymmetric"}


@dataclass(frozen=True, kw_only=True)
class Distortion:
    """One imbalance and one noise, in that order, as saved with a run.

    As text: IMBALANCE-NOISE. The imbalance is a number (step), or lt and a number (long tail);
    the noise is a number (uniform), sym or asym and a number, or file:PATH with an optional
    #KEY. ``asym0.4:cifar10`` takes the flips customary for CIFAR-10.

    >>> Distortion.parse("100-0.1")
    Distortion(imbalance=100.0, imbalance_kind='step', noise=0.1, noise_kind='uniform', \
flips=None, labels=None, labels_key=None)
    >>> str(Distortion.parse("lt50-asym0.4:cifar10"))
    'lt50-asym0.4:cifar10'
    """

    imbalance: float = 1
    """1 leaves the classes as they are."""
    imbalance_kind: str = "step"
    """step or long-tail."""
    noise: float = 0
    """Share of the labels that are drawn anew (uniform) or made wrong (the others)."""
    noise_kind: str = "uniform"
    """uniform, symmetric or asymmetric."""
    flips: str | None = None
    """Of asymmetric noise: cifar10, or None for the next class."""
    labels: str | None = None
    """A file of labels that takes the place of noise."""
    labels_key: str | None = None
    """Which labels of that file."""

    def __post_init__(self) -> None:
        for what, kind, kinds in (
            ("an imbalance", self.imbalance_kind, IMBALANCES),
            ("label noise", self.noise_kind, NOISES),
        ):
            if kind not in kinds:
                raise InputError(
                    f"{what} of kind '{kind}'",
                    f"the kinds are {wording.some(kinds)}",
                    "take one of them",
                )
        _check_ratio(self.imbalance, "the ratio is that of the common to the rare classes")
        _check_rate(self.noise)
        if self.flips not in (None, "cifar10"):
            raise InputError(
                f"label flips called '{self.flips}'",
                "known are cifar10, and without a name the next class",
                "take one of them; any others go through asymmetric_noise(flips=...)",
            )
        if self.flips is not None and self.noise_kind != "asymmetric":
            raise InputError(
                f"label flips with {self.noise_kind} noise",
                "only asymmetric noise goes from one class to a certain other",
                "take noise_kind='asymmetric', or leave the flips out",
            )
        if self.labels is not None and self.noise:
            raise InputError(
                f"labels from '{self.labels}' and a label noise rate of {self.noise}",
                "the labels of a file take the place of noise",
                "give one of the two",
            )

    @classmethod
    def parse(cls, text: str) -> Distortion:
        """From IMBALANCE-NOISE, such as 100-0.1."""
        imbalance, dash, noise = text.partition("-")
        number = r"(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)"
        first = re.fullmatch(f"(lt)?{number}", imbalance)
        second = re.fullmatch(f"(sym|asym)?{number}(?::(.+))?", noise)
        file = re.fullmatch(r"file:(.+?)(?:#([^#/]+))?", noise)
        if not (first and dash and (second or file)):
            raise InputError(
                f"'{text}' is no distortion",
                "it is IMBALANCE-NOISE, such as 100-0.1: the imbalance a number or lt and a "
                "number, the noise a number, sym or asym and a number, or file:PATH#KEY",
                "write 1-0 for none",
            )
        values: dict[str, Any] = {
            "imbalance": float(first[2]),
            "imbalance_kind": _SHORT[0][first[1] or ""],
        }
        if file:
            return cls(**values, labels=file[1], labels_key=file[2])
        assert second is not None
        return cls(
            **values,
            noise=float(second[2]),
            noise_kind=_SHORT[1][second[1] or ""],
            flips=second[3],
        )

    def __str__(self) -> str:
        first, second = ({kind: short for short, kind in pairs.items()} for pairs in _SHORT)
        imbalance = f"{first[self.imbalance_kind]}{self.imbalance:g}"
        if self.labels is not None:
            key = f"#{self.labels_key}" if self.labels_key else ""
            return f"{imbalance}-file:{self.labels}{key}"
        flips = f":{self.flips}" if self.flips else ""
        return f"{imbalance}-{second[self.noise_kind]}{self.noise:.6g}{flips}"

    def apply(
        self,
        labels: Tensor,
        num_classes: int,
        seed: int,
        *,
        positions: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Labels (N,) -> index (M,) of the points kept, sorted, and their new labels (M,).

        The imbalance counts the labels as they come. ``positions`` (N,) says where the points
        stand in the set that a file of labels is about, where they are only a part of it.

        >>> labels = torch.arange(4).repeat(100)
        >>> kept, noisy = Distortion.parse("10-sym0.5").apply(labels, 4, seed=0)
        >>> len(kept), int((noisy != labels[kept]).sum())
        (220, 110)
        """
        check_range(labels, num_classes, name="labels")
        kept = torch.arange(len(labels))
        if self.imbalance > 1:
            cut = IMBALANCES[self.imbalance_kind]
            kept = cut(labels, self.imbalance, num_classes=num_classes, seed=seed)
        left = labels.cpu()[kept]
        if self.labels is not None:
            return kept, self._from_file(len(labels), num_classes, positions)[kept]
        if not self.noise:
            return kept, left
        flips = {"flips": CIFAR10_FLIPS} if self.flips else {}
        blur: Any = NOISES[self.noise_kind]
        return kept, blur(left, self.noise, num_classes=num_classes, seed=seed, **flips)

    def _from_file(
        self, size: int, num_classes: int, positions: Tensor | Sequence[int] | None
    ) -> Tensor:
        """The labels of the file for all ``size`` points."""
        assert self.labels is not None
        known = read_labels(self.labels, self.labels_key)
        if positions is None:
            if len(known) != size:
                raise InputError(
                    f"'{self.labels}' has {wording.count(len(known), 'label')} "
                    f"for {wording.count(size, 'example')}",
                    "there is one label per example, in the order of the set",
                    "give the labels of this very set; for a part of it, say which part",
                )
            positions = range(size)
        where = torch.as_tensor(positions).cpu()
        if len(where) and int(where.max()) >= len(known):
            raise InputError(
                f"'{self.labels}' has {wording.count(len(known), 'label')}, "
                f"and none for example {int(where.max())}",
                "there is one label per example, in the order of the set",
                "give the labels of this very set",
            )
        check_range(known, num_classes, name=f"'{self.labels}'")
        return known[where]

    def to_dict(self) -> dict[str, Any]:
        """The fields that say something, for TOML and JSON.

        >>> Distortion.parse("100-0").to_dict()
        {'imbalance': 100.0, 'imbalance_kind': 'step', 'noise': 0.0, 'noise_kind': 'uniform'}
        """
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Distortion:
        """What :meth:`to_dict` gave."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise InputError(
                f"a distortion has no {wording.some(unknown)}",
                f"its settings are {wording.some(known, 10)}",
                "correct the spelling",
            )
        return cls(**values)
