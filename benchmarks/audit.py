"""Wrong-label detection on frozen features: autodo.audit beside cleanlab, and what was tried.

    python benchmarks/audit.py digits --out benchmarks/results/audit_digits.json
    python benchmarks/audit.py cifar10n --features FEATURES --labels cifar10n_labels.npz \\
        --out benchmarks/results/audit_cifar10n.json
    python benchmarks/audit.py made --embeddings glosses.npz --per-class 20 5 \\
        --out benchmarks/results/audit_glosses.json

AUC and average precision of the truly wrong labels over seeds. FEATURES is what
benchmarks/audit_features.py writes, glosses.npz what benchmarks/audit_embeddings.py does:
embeddings with right labels, some of which are made wrong here. cleanlab (pip install cleanlab)
gets out-of-fold probabilities of logistic regression on the same features, its L2 chosen by the
out-of-fold likelihood of the given labels; once of train alone, once with the
trusted points added to what each fold learns from.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from autodo.auditing.audit import audit
from autodo.auditing.belief import choose_l2, estimate_labels, learn
from autodo.auditing.embeddings import Scale
from autodo.auditing.heads import fit_heads, outside, split
from autodo.data.distort import asymmetric_noise, uniform_noise
from autodo.data.label_file import read_labels
from autodo.experiment.task import digits_task
from autodo.implicit.head import head_hypergradient
from autodo.implicit.solvers import ConjugateGradient

FOLDS = 5


class Case(NamedTuple):
    """One audit whose truth is known."""

    name: str
    trusted_points: int
    seed: int
    embeddings: Tensor
    given: Tensor
    true: Tensor
    trusted: Tensor
    trusted_labels: Tensor

    @property
    def classes(self) -> int:
        return int(self.trusted_labels.max()) + 1


def digits(seeds: int) -> Iterator[Case]:
    """8x8 digits by their pixels, rare classes, uniform and next-class noise."""
    for noise, rate in (
        ("uniform", 0.2),
        ("uniform", 0.4),
        ("next class", 0.2),
        ("next class", 0.4),
    ):
        for trusted in (200, 50):
            for seed in range(seeds):
                uniform = rate if noise == "uniform" else 0.0
                task = digits_task(noise=uniform, trusted=trusted, seed=seed)
                given = task.train.labels
                if noise == "next class":
                    given = asymmetric_noise(given, rate, num_classes=10, seed=seed)
                pixels, right = (d.images.flatten(1).float() for d in (task.train, task.trusted))
                yield Case(
                    f"{noise} {rate}", trusted, seed,
                    pixels, given, task.true_labels, right, task.trusted.labels,
                )  # fmt: skip


def cifar10n(args: argparse.Namespace) -> Iterator[Case]:
    """CIFAR-10 with the labels of people, by features of a network that learned from them."""
    true = read_labels(args.labels, "clean_label")
    for key in args.keys:
        given = read_labels(args.labels, key)
        features = torch.from_numpy(np.load(args.features / f"{key}.npy"))
        for per_class in args.per_class:
            for seed in range(args.seeds):
                right, rest = drawn(true, per_class, seed)
                rest = rest[: args.points]
                yield Case(
                    key, len(right), seed,
                    features[rest], given[rest], true[rest], features[right], true[right],
                )  # fmt: skip


def drawn(true: Tensor, per_class: int, seed: int) -> tuple[Tensor, Tensor]:
    """So many random points of each class, and the other points in random order."""
    order = torch.randperm(len(true), generator=torch.Generator().manual_seed(seed))
    right = torch.cat([order[true[order] == c][:per_class] for c in true.unique()])
    return right, order[~torch.isin(order, right)]


def made(args: argparse.Namespace) -> Iterator[Case]:
    """Embeddings whose labels are right, some of them made wrong.

    "confused" are labels of classes that resemble the point: of those that are wrong the likeliest
    to a head that has learned from points which are in no case.
    """
    with np.load(args.embeddings) as held:
        features, true = (torch.from_numpy(held[key]) for key in ("embeddings", "labels"))
    classes = int(true.max()) + 1
    for noise, rate in (
        ("uniform", 0.2),
        ("uniform", 0.4),
        ("next class", 0.2),
        ("confused", 0.2),
        ("confused", 0.05),
    ):
        for per_class in args.per_class:
            for seed in range(args.seeds):
                right, rest = drawn(true, per_class, seed)
                rest, others = rest[: args.points], rest[args.points :][: args.points]
                labels = true[rest]
                if noise == "uniform":
                    given = uniform_noise(labels, rate, num_classes=classes, seed=seed)
                elif noise == "next class":
                    given = asymmetric_noise(labels, rate, num_classes=classes, seed=seed)
                else:
                    given = confused(features, true, rest, others, rate, seed)
                yield Case(
                    f"{noise} {rate}", len(right), seed,
                    features[rest], given, labels, features[right], true[right],
                )  # fmt: skip


def confused(
    features: Tensor, true: Tensor, points: Tensor, others: Tensor, rate: float, seed: int
) -> Tensor:
    """The labels of ``points``, a share of which say what a head on ``others`` would confuse."""
    scale = Scale.of(features[others])
    onehot = F.one_hot(true[others], int(true.max()) + 1).float()
    heads = fit_heads(
        scale(features[others]), onehot, torch.ones(len(others), 1), l2=10.0, tolerance=0.03
    )
    belief = heads.belief(scale(features[points]), torch.full_like(points, -1))
    likeliest = belief.scatter(1, true[points, None], -math.inf).argmax(1)
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(len(points), generator=generator)[: round(rate * len(points))]
    given = true[points].clone()
    given[some] = likeliest[some]
    return given


def cleanlab_scores(case: Case, *, add_trusted: bool) -> Tensor:
    """cleanlab's label quality with out-of-fold probabilities of logistic regression."""
    from cleanlab.rank import get_label_quality_scores

    scale = Scale.of(case.embeddings)
    features, given = scale(case.embeddings), case.given
    generator = torch.Generator().manual_seed(case.seed)
    fold = split(len(given), FOLDS, generator, given)
    seen, points, labels = outside(fold, FOLDS), features, given
    if add_trusted:
        points = torch.cat([points, scale(case.trusted)])
        labels = torch.cat([labels, case.trusted_labels])
        seen = torch.cat([seen, torch.ones(len(case.trusted), FOLDS)])
    onehot = F.one_hot(labels, case.classes).float()
    found = {}
    for l2 in (1.0, 10.0, 100.0, 1000.0):
        heads = fit_heads(points, onehot, seen, l2=l2, tolerance=0.03)
        log_p = heads.belief(features, fold)
        found[float(F.nll_loss(log_p, given))] = log_p
    probabilities = found[min(found)].exp().double().numpy()
    return torch.from_numpy(get_label_quality_scores(given.numpy(), probabilities))


def audit_scores(case: Case, rounds: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """label_score, suggested_label and weight of autodo.audit."""
    points = audit(
        case.embeddings, case.given, case.trusted, case.trusted_labels,
        num_classes=case.classes, rounds=rounds, seed=case.seed, progress=False,
    )  # fmt: skip
    names = ("label_score", "suggested_label", "weight")
    return tuple(torch.from_numpy(points[name].to_numpy().copy()) for name in names)  # type: ignore[return-value]


def tried(case: Case) -> dict[str, Tensor]:
    """Scores of what the default is not: parts of it, and hyper steps on S after it."""
    scale = Scale.of(torch.cat([case.embeddings, case.trusted]))
    features, trusted = scale(case.embeddings), scale(case.trusted)
    given, right = case.given, case.trusted_labels
    learned = learn(features, given, trusted, right, folds=FOLDS, rounds=2, seed=case.seed)
    shares = torch.bincount(right, minlength=case.classes) + 1.0
    shares /= shares.sum()
    generator = torch.Generator().manual_seed(case.seed)
    onehot = F.one_hot(right, case.classes).float()
    l2 = choose_l2(trusted, onehot, learned.trusted_fold, generator)
    alone = fit_heads(trusted, onehot, torch.ones(len(right), 1), l2=l2, tolerance=1e-3)
    belief = alone.belief(features, torch.full_like(given, -1))
    labels = estimate_labels(belief, given, shares, generator)
    last = learned.stacked.belief(features, learned.fold)
    log_q = learned.labels(last, given)
    return {
        "trusted head alone": labels(belief, given).gather(-1, given[:, None])[:, 0],
        "the last belief, no posterior": last.gather(-1, given[:, None])[:, 0],
        "hyper steps on S after it": hyper_steps(learned, features, trusted, right, log_q)
        .gather(-1, given[:, None])[:, 0],
    }  # fmt: skip


def hyper_steps(
    learned: object, features: Tensor, trusted: Tensor, right: Tensor, log_q: Tensor
) -> Tensor:
    """log q after five steps of S at the rate 0.1, table-scaled, cross-fitted over the heads."""
    rows = log_q.clone()
    for _ in range(5):
        gradient = torch.zeros_like(rows)
        for k in range(FOLDS):
            seen, unseen = learned.fold != k, learned.trusted_fold == k  # type: ignore[attr-defined]
            at_head = head_hypergradient(
                features[seen], learned.heads.weight[k], learned.heads.bias[k],  # type: ignore[attr-defined]
                torch.zeros(int(seen.sum())), rows[seen], trusted[unseen], right[unseen],
                solver=ConjugateGradient(steps=20, damping=0.1), loss="kl",
                logit_adjustment=learned.shift,  # type: ignore[attr-defined]
            )  # fmt: skip
            gradient[seen] += at_head.label_logits
        rows -= 0.1 * gradient / gradient.square().mean().sqrt()
    return F.log_softmax(rows, -1)


def measure(case: Case, with_tried: bool) -> list[dict[str, object]]:
    wrong = (case.given != case.true).numpy()
    key = {"case": case.name, "trusted": case.trusted_points, "seed": case.seed}
    rows: list[dict[str, object]] = []

    def add(method: str, score: Tensor, start: float, suggested: Tensor | None = None) -> None:
        suspicion = -score.double().numpy()
        row = {
            **key,
            "method": method,
            "auc": float(roc_auc_score(wrong, suspicion)),
            "average_precision": float(average_precision_score(wrong, suspicion)),
            "seconds": time.perf_counter() - start,
            "points": len(wrong),
            "wrong": float(wrong.mean()),
        }
        if suggested is not None:
            row["corrected"] = float((suggested == case.true).float().mean())
            row["broken"] = float((suggested != case.true)[~torch.from_numpy(wrong)].float().mean())
            row["flagged"] = float((suggested != case.given).float().mean())
        rows.append(row)

    for method, add_trusted in (("cleanlab", False), ("cleanlab, trusted added", True)):
        start = time.perf_counter()
        add(method, cleanlab_scores(case, add_trusted=add_trusted), start)
    start = time.perf_counter()
    score, suggested, weight = audit_scores(case)
    add("autodo audit", score, start, suggested)
    if with_tried:
        add("its weight as the score", weight, start)
        for rounds in (1, 4):
            start = time.perf_counter()
            score, suggested, _ = audit_scores(case, rounds)
            add(f"{rounds} round{'s' * (rounds > 1)} in place of 2", score, start, suggested)
        start = time.perf_counter()
        for method, other in tried(case).items():
            add(method, other, start)
    return rows


def spread(values: list[float]) -> str:
    deviation = stdev(values) if len(values) > 1 else math.nan
    return f"{mean(values):.4f} ± {deviation:.4f}"


def show(rows: list[dict[str, object]], console: Console) -> None:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cases = list(dict.fromkeys((row["case"], row["trusted"]) for row in rows))
    for measured in ("auc", "average_precision"):
        table = Table(title=measured)
        for k, column in enumerate(("labels", "trusted", *methods)):
            table.add_column(str(column), justify="left" if k == 0 else "right")
        for case, trusted in cases:
            cells = [
                spread([float(r[measured]) for r in rows if  # type: ignore[arg-type]
                        (r["case"], r["trusted"], r["method"]) == (case, trusted, method)])
                for method in methods
            ]  # fmt: skip
            table.add_row(str(case), str(trusted), *cells)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["digits", "cifar10n", "made"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", type=Path, help="folder of benchmarks/audit_features.py")
    parser.add_argument("--labels", type=Path, help="CIFAR-10N's labels, .npz")
    parser.add_argument("--embeddings", type=Path, help=".npz of benchmarks/audit_embeddings.py")
    parser.add_argument(
        "--keys", nargs="+", default=["worse_label", "aggre_label", "random_label1"]
    )
    parser.add_argument("--per-class", type=int, nargs="+", default=[100, 10])
    parser.add_argument("--points", type=int, default=10_000, help="training points of a case")
    parser.add_argument("--no-tried", action="store_true", help="leave out what is not the default")
    parser.add_argument("--out", type=Path, help="JSON of every run; rows in it are added to")
    args = parser.parse_args()
    if args.data == "cifar10n" and not (args.features and args.labels):
        parser.error("cifar10n needs --features and --labels")
    if args.data == "made" and not args.embeddings:
        parser.error("made needs --embeddings")
    if args.data == "digits":
        cases = digits(args.seeds)
    else:
        cases = cifar10n(args) if args.data == "cifar10n" else made(args)
    rows: list[dict[str, object]] = []
    for case in cases:
        rows += measure(case, not args.no_tried)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        rows = [r for r in before if r["case"] not in {row["case"] for row in rows}] + rows
        args.out.write_text(json.dumps({"runs": rows}, indent=1) + "\n")
    show(rows, Console(width=200))


if __name__ == "__main__":
    main()
