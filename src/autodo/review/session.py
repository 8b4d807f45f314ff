"""A review in progress: what the page can ask for and do, whatever carries it there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autodo.export.decisions import Decision
from autodo.export.origin import Origin
from autodo.report import embed
from autodo.report.run import Run
from autodo.review.estimate import FARTHEST, Estimate, estimate
from autodo.review.gallery import Gallery, Picture, open_galleries
from autodo.review.log import Log
from autodo.review.similar import Similar


class Refused(Exception):
    """A request that cannot be answered: an HTTP status and why."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


class Session:
    """The review of one run; threads may share it."""

    def __init__(self, run: Run, log: Log, galleries: dict[str, Gallery]) -> None:
        self.run, self.log, self.galleries = run, log, galleries
        columns = run.columns
        self.count = run.points.num_rows
        self.given = np.asarray(columns["given_label"])
        self.suggested = np.asarray(columns["suggested_label"])
        self.score = np.asarray(columns["label_score"])
        self._ids = run.points["id"]
        self._similar: Similar | None = None
        if (trusted := run.predictions.get("trusted")) is not None:
            labels = trusted["label"]
            shown = galleries["trusted"].known(np.arange(len(labels)))
            self._similar = Similar.open(run.view, labels, shown)
        self._estimate = lru_cache(maxsize=2)(self._estimate_after)

    @classmethod
    @contextmanager
    def open(
        cls, path: str | Path, *, source: Origin | None = None, trusted: Origin | None = None
    ) -> Iterator[Session]:
        """The review of the run in the folder ``path``, which nobody else reviews meanwhile.

        source, trusted: where these sets lie, if the run does not know.
        """
        run = Run.open(path)
        with Log(run.path, count=run.points.num_rows, num_classes=len(run.classes)) as log:
            yield cls(run, log, open_galleries(run, source=source, trusted=trusted))

    def page(self) -> dict[str, Any]:
        """All that the page needs at once: every example in numbers, and what is decided."""
        columns = self.run.columns
        return {
            "name": self.run.path.resolve().name,
            "classes": self.run.classes,
            "given": embed.packed(self.given, "u2"),
            "suggested": embed.packed(self.suggested, "u2"),
            "score": embed.packed(self.score, "f4"),
            "weight": embed.packed(columns["weight"], "f4"),
            "suspect": embed.packed(columns["is_label_issue"], "u1"),
            "pictured": embed.packed(self.galleries["train"].known(np.arange(self.count)), "u1"),
            "farthest": FARTHEST,
            "notes": [gallery.note for gallery in self.galleries.values() if gallery.note],
            "export": shlex.join(["autodo", "export", str(self.run.path)]),
            "state": self.state(0),
        }

    def state(self, since: int) -> dict[str, Any]:
        """What was decided from line ``since`` of the log on, in whichever tab."""
        lines = len(self.log)
        changed = [
            [index, decision.action if decision else None, decision.label if decision else None]
            for index, decision in self.log.changed(since)
        ]
        now = self._estimate(lines)
        return {
            "lines": lines,
            "changed": changed,
            "last": self.log.last(),
            "estimate": {"mean": now.mean.tolist(), "covariance": now.covariance.tolist()},
        }

    def item(self, index: int) -> dict[str, Any]:
        """What is told of one example beside its numbers."""
        self._check(index)
        predicted = None
        if "train" in self.run.predictions:
            seen = self.run.predictions["train"]
            predicted = [int(seen["predicted"][index]), float(seen["confidence"][index])]
        similar = None
        if self._similar is not None:
            given, suggested = int(self.given[index]), int(self.suggested[index])
            similar = self._similar.nearest(index, given, suggested)
        return {"id": self._ids[index].as_py(), "predicted": predicted, "similar": similar}

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write a decision: index, action, label (of the action label), line (of undo), since.

        Returns the state from line ``since`` on, and the number of the new line.
        """
        index, action = request.get("index"), request.get("action")
        if not isinstance(index, int) or isinstance(index, bool):
            raise Refused(400, "the index is no number")
        self._check(index)
        since = request.get("since", 0)
        if not isinstance(since, int):
            raise Refused(400, "since is no number")
        if action == "undo":
            line = self.log.undo(index, request.get("line", -1))
            if line is None:
                raise Refused(409, "it was decided anew since, perhaps in another tab")
        else:
            line = self.log.add(self._decision(index, action, request.get("label")))
        return {"line": line, **self.state(since)}

    def picture(self, name: str, index: int, size: str) -> Picture:
        """A picture of train or trusted, small or large; raises NoPicture where there is none."""
        if name == "train":
            self._check(index)
        elif index >= int(self.run.data.get("trusted", 0)):
            raise Refused(404, "there is no such example")
        return self.galleries[name].picture(index, size)

    def _check(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise Refused(404, "there is no such example")

    def _decision(self, index: int, action: Any, label: Any) -> Decision:
        """As it is written: with the label that it leads to, under the plainest action."""
        given, suggested = int(self.given[index]), int(self.suggested[index])
        if action not in ("accept", "keep", "label", "unusable"):
            raise Refused(400, "there is no such action")
        if action == "unusable":
            return Decision(index=index, action="unusable")
        wanted = {"accept": suggested, "keep": given, "label": label}[action]
        if not isinstance(wanted, int) or isinstance(wanted, bool):
            raise Refused(400, "the label is no number")
        if not 0 <= wanted < len(self.run.classes):
            raise Refused(400, "there is no such class")
        plain = {suggested: "accept", given: "keep"}  # keep where both are the same
        return Decision(index=index, action=plain.get(wanted, "label"), label=wanted)

    def _estimate_after(self, lines: int) -> Estimate:
        """With the log of so many lines; the argument is what the result is remembered by."""
        judged = [d for d in self.log.holding() if d.action != "unusable"]
        index = np.array([d.index for d in judged], np.int64)
        by_action = {"accept": self.suggested, "keep": self.given}
        final = [by_action[d.action][d.index] if d.label is None else d.label for d in judged]
        return estimate(self.score[index], np.array(final, np.int64) != self.given[index])
