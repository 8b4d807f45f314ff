"""``autodo paper``: the list, the tables, one cell in small, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from paper_data import TINY
from typer.testing import CliRunner, Result

from autodo.cli import app
from autodo.experiment.paper import protocol, tables
from autodo.experiment.paper.cells import CELLS, ON_TEST, find
from autodo.experiment.paper.results import SeedResult, Spread, seed_folder


@pytest.fixture(autouse=True)
def small_is_tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(protocol.SCALES, "small", dataclasses.replace(TINY, name="small"))
    monkeypatch.chdir(tmp_path)


def paper(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["paper", *arguments])


def finish(out: Path, name: str, *errors: tuple[float, float]) -> None:
    """Results of (last, best) errors in the place of runs."""
    cell = find(*name.split())
    for seed, (last, best) in enumerate(errors):
        folder = seed_folder(out, cell, seed)
        folder.mkdir(parents=True)
        SeedResult(
            seed=seed, epochs=200, test_error=last, best_test_error=best, best_epoch=150,
            class_accuracy=(1 - last,) * 10, rare_accuracy=1 - last, interclass_deviation=0.0,
            seconds=1.0, note=cell.note,
        ).save(folder)  # fmt: skip


def row(text: str, *words: str) -> list[str]:
    """The cells of the one line of a table that has these words as cells."""
    lines = [[part.strip() for part in line.split("│")] for line in text.splitlines()]
    (found,) = [line for line in lines if all(word in line for word in words)]
    return found


# The list


def test_the_list_shows_every_cell_with_the_papers_number() -> None:
    result = paper("--list")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    for cell in CELLS:
        shown = [cell.table, cell.dataset, cell.distortion, cell.name]
        assert [*shown, "-" if cell.paper is None else str(cell.paper)] in [x[:5] for x in lines]


def test_the_list_marks_what_was_estimated_on_test() -> None:
    lines = paper("--list").stdout.splitlines()
    marked = [line for line in lines if ON_TEST in line]
    assert len(marked) == 3
    assert all("-on-test" in line for line in marked)


def test_the_list_of_one_data_set() -> None:
    text = paper("imagenet", "--list").stdout
    assert "imagenet" in text
    assert "cifar" not in text


def test_the_list_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['autodo', 'paper', '--list']\n"
        "try:\n"
        "    from autodo.cli import main; main()\n"
        "finally:\n"
        "    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "False"


# The tables


def test_a_table_shows_mean_and_deviation_beside_the_papers(tmp_path: Path) -> None:
    finish(tmp_path, "svhn 100-0.1 aws", (0.06, 0.05), (0.08, 0.05))
    finish(tmp_path, "svhn 100-0.1 raa", (0.135, 0.13))
    result = paper("--table", "1", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert row(result.stdout, "100-0.1", "aws")[3:7] == ["2", "7.00±1.41", "5.00±0.00", "6.3±0.57"]
    assert row(result.stdout, "100-0.1", "raa")[3:7] == ["1", "13.50", "13.00", "13.6±0.96"]
    assert row(result.stdout, "1-0.0", "aws")[3:7] == ["-", "-", "-", "2.5±0.04"]
    assert "best epoch, chosen on" in result.stdout
    assert "as the published" in result.stdout


def test_the_best_epoch_has_a_column_labelled_for_what_it_is() -> None:
    (best,) = [
        c.header for c in tables.result_table("1", Path("none")).columns if "best" in c.header
    ]
    assert best == "best epoch, chosen on test: as the published code reports"


def test_table_5_marks_what_was_estimated_on_test(tmp_path: Path) -> None:
    finish(tmp_path, "svhn 1-0.0 aws", (0.025, 0.024))
    finish(tmp_path, "svhn 1-0.0 aws-on-test", (0.026, 0.02))
    text = paper("--table", "5", "--out", str(tmp_path)).stdout
    assert row(text, "svhn", "aws")[4:8] == ["1", "2.50", "2.40", "2.48±0.04"]
    assert row(text, "svhn", "aws-on-test *")[4:8] == ["1", "2.60", "2.00", "2.48±0.05"]
    assert f"*: {ON_TEST}" in text
    assert ON_TEST not in paper("--table", "6", "--out", str(tmp_path)).stdout


def test_the_study_of_e_shares_the_run_of_table_1(tmp_path: Path) -> None:
    finish(tmp_path, "svhn 100-0.1 aws", (0.07, 0.06))
    finish(tmp_path, "svhn 100-0.1 aws-E190", (0.09, 0.08))
    text = paper("--table", "E", "--out", str(tmp_path)).stdout
    assert row(text, "100-0.1", "aws")[4] == "7.00"
    assert row(text, "100-0.1", "aws-E190")[4:7] == ["9.00", "8.00", "-"]


def test_a_table_of_small_runs_says_that_they_are_small() -> None:
    assert "not comparable with the paper's" in paper("--table", "1", "--scale", "small").stdout
    assert "not comparable" not in paper("--table", "1").stdout


def test_the_deviation_is_that_of_a_sample() -> None:
    spread = Spread.of([0.01, 0.02, 0.03])
    assert (spread.mean, spread.deviation) == (pytest.approx(0.02), pytest.approx(0.01))
    assert Spread.of([0.01]).deviation is None


# One cell


def test_a_cell_runs_and_its_summary_stands_beside_the_papers(data_dir: Path) -> None:
    line = ["cifar10", "10-0.1", "baseline", "--scale", "small", "--seeds", "2"]
    result = paper(*line, "--data-dir", str(data_dir), "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert len(list(Path("runs/paper-small/cifar10/10-0.1/baseline").glob("seed-*"))) == 2
    assert row(result.stdout, "paper")[2] == "22.8±1.09"
    assert "not comparable with the paper's" in " ".join(result.stdout.split())
    assert "seed 1 of 2" in result.stderr
    again = paper(*line, "--device", "cpu", "-q")  # needs no data any more
    assert (again.exit_code, again.output) == (0, "")


def test_figures_come_with_their_numbers(data_dir: Path) -> None:
    pytest.importorskip("matplotlib")
    line = ["--scale", "small", "--seeds", "1", "--data-dir", str(data_dir), "--device", "cpu"]
    assert paper("cifar10", "10-0.1", "baseline", *line, "-q").exit_code == 0
    result = paper("cifar10", "10-0.1", "aws", *line, "--figures")
    assert result.exit_code == 0, result.output
    folder = Path("runs/paper-small/cifar10/10-0.1/figures")
    for name in ("curves", "confusion", "classes", "tsne"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "scale small" in (folder / f"{name}.svg").read_text()
        assert str(folder / f"{name}.png") in result.stdout
    curves = (folder / "curves.csv").read_text().splitlines()
    assert len(curves) == 1 + 2 * TINY.epochs
    confusion = json.loads((folder / "confusion.json").read_text())
    assert set(confusion["methods"]) == {"baseline", "aws"}
    assert sum(map(sum, confusion["methods"]["aws"])) == TINY.test
    assert len((folder / "tsne.csv").read_text().splitlines()) == 1 + 2 * TINY.embedded
    assert len((folder / "classes.csv").read_text().splitlines()) == 3


def test_figures_of_the_ablation_say_that_it_learned_from_test(data_dir: Path) -> None:
    pytest.importorskip("matplotlib")
    line = ["--scale", "small", "--seeds", "1", "--data-dir", str(data_dir), "--device", "cpu"]
    assert paper("svhn", "1-0.0", "aws-on-test", *line, "-q", "--figures").exit_code == 0
    folder = Path("runs/paper-small/svhn/1-0.0/figures")
    for name in ("curves", "confusion", "classes", "tsne"):
        assert ON_TEST in (folder / f"{name}.svg").read_text()
    assert json.loads((folder / "confusion.json").read_text())["notes"] == {"aws-on-test": ON_TEST}
    assert "rare" not in (folder / "classes.svg").read_text()  # nothing is, at 1-0.0


def test_figures_without_matplotlib_are_refused_before_the_training(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = ["--scale", "small", "--data-dir", str(data_dir), "--figures"]
    result = paper("cifar10", "10-0.1", "aws", *line)
    assert result.exit_code == 2
    assert "figures need matplotlib" in result.stderr
    assert "pip install" in result.stderr
    assert not Path("runs").exists()


# Bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no cell is named", "autodo paper --list"]),
        (["cifar11"], ["'cifar11'", "nearest is cifar10"]),
        (["svhn"], ["no distortion of svhn is named", "100-0.1"]),
        (["svhn", "100-0.1", "awz"], ["'awz'", "nearest is aw"]),
        (["cifar11", "--list"], ["nearest is cifar10"]),
        (["--table", "7"], ["no table '7'"]),
        (["--table", "1", "--scale", "huge"], ["--scale is 'huge'"]),
        (["svhn", "1-0.0", "aws", "--scale", "huge"], ["--scale is 'huge'"]),
        (["svhn", "1-0.0", "aws", "--device", "abacus"], ["'abacus'"]),
        (["svhn", "1-0.0", "faa"], ["faa needs a policy file", "--policy-file"]),
        (["svhn", "1-0.0", "faa", "--policy-file", "no.json"], ["no policy file 'no.json'"]),
        (["svhn", "1-0.0", "aws", "--data-dir", "none"], ["'none'"]),
    ],
)
def test_bad_input_is_refused_as_fact_cause_and_cure(
    arguments: list[str], words: list[str]
) -> None:
    result = paper(*arguments)
    assert result.exit_code == 2, result.output
    labels = [line.split(":")[0].strip() for line in result.stderr.splitlines()]
    assert labels == ["error", "why", "do"], result.stderr
    for word in words:
        assert word in result.stderr
    assert not Path("runs").exists()


def test_ctrl_c_says_that_the_same_command_goes_on(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autodo.experiment.paper import runner

    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "fit", stop)
    result = paper("cifar10", "10-0.1", "aws", "--scale", "small", "--data-dir", str(data_dir))
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr


def test_help_teaches_with_examples() -> None:
    result = CliRunner().invoke(app, ["paper", "--help"], env={"COLUMNS": "80"})
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "autodo paper --list" in lines
    assert "autodo paper --table 1" in lines
    assert max(map(len, result.stdout.splitlines())) <= 80
