"""The decisions of a review as they are made: each on the disk before it is answered.

One process at a time writes decisions.jsonl of a run (see ``export.decisions`` for its lines). It
knows which decision holds for every example, and the number of the line that made it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from autodo.errors import RunFolderError
from autodo.export.decisions import FILE, Decision, read


class Log:
    """decisions.jsonl of the run in ``run``, open for more; threads may share it.

    >>> import tempfile
    >>> with Log(tempfile.mkdtemp(), count=3, num_classes=2) as log:
    ...     first = log.add(Decision(index=1, action="keep", label=0))
    ...     second = log.add(Decision(index=1, action="unusable"))
    ...     _ = log.undo(1, second)
    ...     first, second, len(log), log.standing(1).action
    (0, 1, 3, 'keep')
    """

    def __init__(self, run: str | Path, *, count: int, num_classes: int) -> None:
        self.path = Path(run) / FILE
        self._thread = threading.Lock()
        # The system lets go of it when the process ends, however it ends.
        self._lock = FileLock(self.path.with_name(f".{FILE}.lock"))
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise RunFolderError(
                f"the run in '{run}' is being reviewed already",
                "another autodo review has it open, and one process writes the decisions",
                "use the link which that one printed, in as many tabs as you like, or stop it",
            ) from None
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            _sync_folder(self.path.parent)
            self._size = _drop_torn_line(self.path, self._descriptor)
            self._entries = read(run, count=count, num_classes=num_classes)
        except BaseException:
            self._lock.release()
            raise
        self._stacks: dict[int, list[int]] = {}
        for line in range(len(self._entries)):
            self._put(line)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            os.close(self._descriptor)
            self._lock.release()

    def __len__(self) -> int:
        """Lines so far."""
        return len(self._entries)

    def add(self, decision: Decision) -> int:
        """Write a decision; returns the number of its line once it is on the disk."""
        with self._thread:
            return self._append(decision)

    def undo(self, index: int, line: int) -> int | None:
        """Take back the decision of ``line`` about ``index``; None if it is not the one that holds.

        Somebody may have decided anew since, in another tab: that is not to be taken back unseen.
        """
        with self._thread:
            if self._stacks.get(index, [])[-1:] != [line]:
                return None
            return self._append(Decision(index=index, action="undo"))

    def standing(self, index: int) -> Decision | None:
        """The decision that holds for an example."""
        with self._thread:
            stack = self._stacks.get(index)
            return self._entries[stack[-1]] if stack else None

    def changed(self, since: int) -> list[tuple[int, Decision | None]]:
        """The examples that lines from number ``since`` on are about, with what now holds."""
        with self._thread:
            touched = dict.fromkeys(entry.index for entry in self._entries[since:])
            return [(i, self._entries[s[-1]] if (s := self._stacks[i]) else None) for i in touched]

    def last(self) -> tuple[int, int] | None:
        """Line and example of the latest decision that holds."""
        with self._thread:
            for line in range(len(self._entries) - 1, -1, -1):
                index = self._entries[line].index
                if self._stacks[index][-1:] == [line]:
                    return line, index
        return None

    def holding(self) -> Iterator[Decision]:
        """Every decision that holds."""
        with self._thread:
            tops = [self._entries[stack[-1]] for stack in self._stacks.values() if stack]
        return iter(tops)

    def _append(self, decision: Decision) -> int:
        data = decision.line().encode() + b"\n"
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(self._descriptor)
        except BaseException:
            # What was not acknowledged must not count, nor spoil the line that comes next.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)
        self._entries.append(decision)
        self._put(len(self._entries) - 1)
        return len(self._entries) - 1

    def _put(self, line: int) -> None:
        entry = self._entries[line]
        stack = self._stacks.setdefault(entry.index, [])
        if entry.action != "undo":
            stack.append(line)
        elif stack:
            stack.pop()


def _drop_torn_line(path: Path, descriptor: int) -> int:
    """Cut a last line without its end, which was never acknowledged; returns the size left."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.ftruncate(descriptor, whole)
    return whole


def _sync_folder(folder: Path) -> None:
    """Put the entry of a new file on the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
