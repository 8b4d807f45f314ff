"""A run that is killed, at any moment and as often as one likes, ends like one that never was."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autodo.data import load_digits
from autodo.train.run_folder import RunFolder

PROGRAM = """
import os
import sys
import numpy as np
import torch
from torch import nn
import autodo
from autodo.data import Examples

torch.set_num_threads(1)
digits = Examples.from_arrays(**np.load(os.environ["DIGITS"]))
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
    nn.Linear(108, 10),
)
config = autodo.Config(
    epochs=12, belief_epochs=6, batch_size=32, hyper_batch_size=32, warmup_epochs=1, device="cpu",
    checkpoint_every=int(sys.argv[2]),
)
autodo.fit(
    model, digits.subset(range(256)), digits.subset(range(256, 320)), config=config,
    out=sys.argv[1], resume=True, progress=False,
)
"""


@pytest.fixture(scope="module", autouse=True)
def _digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In a file, so that no process waits for scikit-learn."""
    digits, file = load_digits(), tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(file, images=digits.images.numpy(), labels=digits.labels.numpy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIGITS", str(file))
        yield


def start(run: Path, every: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(run), str(every)])


def finish(run: Path, every: int) -> None:
    assert start(run, every).wait(timeout=120) == 0


def outcome(run: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """Weights and points to the byte, and every epoch's numbers but the time it took."""
    folder = RunFolder(run)
    metrics = [{k: v for k, v in m.items() if k != "seconds"} for m in folder.read_metrics()]
    return folder.model.read_bytes(), folder.points.read_bytes(), metrics


def lines(run: Path) -> int:
    """Whole lines of metrics.jsonl."""
    try:
        return (run / "metrics.jsonl").read_text().count("\n")
    except FileNotFoundError:
        return -1


def checkpointed(run: Path) -> int:
    """Epochs in the checkpoint, which must load whole."""
    state = RunFolder(run).load_checkpoint()
    return 0 if state is None else len(state["history"])


def signal_after(run: Path, every: int, epochs: int, delay: float, number: int) -> int:
    """Take the run up, send the signal when it has made ``epochs`` more; the exit status."""
    metrics, target = run / "metrics.jsonl", checkpointed(run) + epochs
    before = metrics.stat().st_ino if metrics.exists() else None
    process, deadline = start(run, every), time.monotonic() + 120
    # A run that is taken up writes metrics.jsonl anew: until then its lines are another's.
    try:
        while not metrics.exists() or metrics.stat().st_ino == before or lines(run) < target:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline, f"no epoch {target} within 120 s"
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(number)
        return process.wait(timeout=60)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    finish(run, every=1)
    return run


def test_killed_runs_end_bit_for_bit_like_one_that_was_not(
    uninterrupted: Path, tmp_path: Path
) -> None:
    run, moments = tmp_path / "run", random.Random(0)
    # The first as soon as the folder is there, the others at any moment of the epochs that follow.
    for epochs in (0, 2, 3, 3):
        status = signal_after(run, 1, epochs, moments.uniform(0, 0.03), signal.SIGKILL)
        assert status == -signal.SIGKILL
        # At most the epoch that was being written is lost, and a checkpoint is never torn.
        assert lines(run) - 1 <= checkpointed(run) <= lines(run)
    assert checkpointed(run) >= 5
    finish(run, every=1)
    assert outcome(run) == outcome(uninterrupted)
    left = {path.name for path in run.iterdir() if path.is_file()}
    assert left == {
        "config.toml",
        "metrics.jsonl",
        "points.parquet",
        "model.safetensors",
        "lambda.safetensors",
    }
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["last.pt"]
    views = [sorted(path.iterdir()) for path in (run / "view", uninterrupted / "view")]
    assert [p.name for p in views[0]] == [p.name for p in views[1]]
    assert [p.read_bytes() for p in views[0]] == [p.read_bytes() for p in views[1]]


def test_a_checkpoint_every_third_epoch_loses_at_most_three(
    uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for _ in range(2):
        assert signal_after(run, 3, 5, 0, signal.SIGKILL) == -signal.SIGKILL
        assert checkpointed(run) % 3 == 0
        assert 0 <= lines(run) - checkpointed(run) <= 3
    assert checkpointed(run) >= 6
    finish(run, every=3)
    assert outcome(run) == outcome(uninterrupted)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(uninterrupted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert signal_after(run, 1, 3, 0.01, signal.SIGINT) != 0
    assert not RunFolder(run).model.exists()
    assert checkpointed(run) >= 2
    finish(run, every=1)
    assert outcome(run) == outcome(uninterrupted)


# Moments that a kill seldom meets, made by hand


def test_a_kill_before_the_first_checkpoint_starts_anew(
    uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.toml", "metrics.jsonl"):
        (run / name).write_bytes((uninterrupted / name).read_bytes())
    (run / "checkpoints" / ".last.pt.abcdefgh").write_bytes(b"half")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 31, "train_l')
    finish(run, every=1)
    assert outcome(run) == outcome(uninterrupted)
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["last.pt"]


def test_a_kill_while_the_folder_is_made_leaves_it_free(tmp_path: Path) -> None:
    import autodo

    (tmp_path / ".config.toml.abcdefgh").write_bytes(b"half")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        RunFolder.check(tmp_path, autodo.Config(), {}, **options)
    RunFolder.open(tmp_path, autodo.Config(), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints", "config.toml"]


def test_a_finished_run_resumes_to_itself(uninterrupted: Path) -> None:
    before = outcome(uninterrupted)
    lines_before = (uninterrupted / "metrics.jsonl").read_text().splitlines()
    finish(uninterrupted, every=1)
    assert outcome(uninterrupted) == before
    assert [json.loads(line) for line in lines_before] == RunFolder(uninterrupted).read_metrics()
