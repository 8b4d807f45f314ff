"""Runs damaged in copying: an error that names the file and the way out, never a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from made_runs import make_run, messy_digits, network
from typer.testing import CliRunner

import autodo
from autodo.cli import app
from autodo.errors import RunFolderError
from autodo.export.learned import Learned
from autodo.report.run import Run

SHORT = {"epochs": 2, "belief_epochs": 1}
NOISE = bytes(range(255, -1, -1)) * 4


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("whole") / "run", **SHORT)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    file.write_bytes({"cut off": data[:-20], "noise": NOISE, "empty": b""}[how])


@pytest.mark.parametrize("how", ["cut off", "noise", "empty"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("report", "config.toml"),
        ("report", "metrics.jsonl"),
        ("report", "points.parquet"),
        ("report", "view/about.json"),
        ("report", "view/predictions.parquet"),
        ("report", "view/features.safetensors"),
        ("export", "points.parquet"),
        ("export", "lambda.safetensors"),
    ],
)
def test_the_damaged_file_is_named_with_the_way_out(
    run: Path, command: str, name: str, how: str
) -> None:
    damage(run / name, how)
    result = CliRunner().invoke(app, [command, str(run)])
    assert result.exit_code == 2, result.output
    assert f"error: '{run / name}' cannot be read" in result.stderr
    assert "do: copy the run again, or " in result.stderr
    assert not (run / "export").exists()


def test_a_config_cut_off_between_two_lines_is_found_out(run: Path) -> None:
    text = (run / "config.toml").read_text()
    for end, words in (("[data]", r"no table \[data\]"), ("classes = [", "not name the classes")):
        (run / "config.toml").write_text(text[: text.index(end)])
        with pytest.raises(RunFolderError, match=words):
            Run.open(run)


def go_on(run: Path, **options: object) -> None:
    train, trusted, test = messy_digits()
    config = autodo.Config(**SHORT, batch_size=32, lr=0.1, device="cpu")  # type: ignore[arg-type]
    autodo.fit(
        network(), train, trusted, test=test, config=config, progress=False,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("how", ["cut off", "noise", "empty"])
@pytest.mark.parametrize("name", ["config.toml", "checkpoints/last.pt"])
def test_a_run_that_cannot_be_resumed_says_which_file_it_lacks(
    run: Path, name: str, how: str
) -> None:
    damage(run / name, how)
    with pytest.raises(RunFolderError, match=f"'{run / name}' cannot be read: .*--overwrite"):
        go_on(run, out=run, resume=True)


def test_a_command_in_a_checkpoint_is_neither_run_nor_recommended(
    run: Path, tmp_path: Path
) -> None:
    class Command:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"model": Command()}, run / "checkpoints" / "last.pt")
    with pytest.raises(RunFolderError, match="something in it that loading would execute") as error:
        go_on(run, out=run, resume=True)
    assert "weights_only" not in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_training_on_a_damaged_lambda_is_refused(run: Path) -> None:
    damage(run / "lambda.safetensors", "cut off")
    with pytest.raises(RunFolderError, match=r"lambda\.safetensors' cannot be read"):
        go_on(run, learned=run)


def test_resuming_writes_anew_what_a_run_ends_with(run: Path, whole: Path) -> None:
    """As the errors promise."""
    names = ("metrics.jsonl", "points.parquet", "view/about.json", "view/predictions.parquet")
    for name in (*names, "lambda.safetensors"):
        damage(run / name, "cut off")
    go_on(run, out=run, resume=True)
    for name in names:
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert torch.equal(Learned.load(run).weights, Learned.load(whole).weights)


def test_a_disk_that_fails_is_not_called_damage(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    result = CliRunner().invoke(app, ["report", str(run)])
    assert result.exit_code == 2
    assert "the system says: No such file" in result.stderr
