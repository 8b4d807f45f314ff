"""The command line: what a run leaves, what every bad input is answered with, what help teaches."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from autodo.cli import app
from autodo.config import Config
from autodo.models import SmallCNN
from autodo.train import progress
from autodo.train.phases import plan
from autodo.train.run_folder import RunFolder

CLASSES = ("ant", "bee", "cat")
SIZES = {"train": 12, "trusted": 4, "test": 4}
AUTODO = str(Path(sys.executable).with_name("autodo"))


def stripes(label: int, rng: np.random.Generator) -> np.ndarray:
    """An 8x8 image whose class is the place of a bright stripe."""
    image = rng.integers(0, 60, (8, 8), dtype=np.uint8)
    image[3 * label : 3 * label + 2] += 180
    return image


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train, trusted and test of three classes; the first image of each class in train is wrong."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, count in SIZES.items():
        for label, title in enumerate(CLASSES):
            (root / name / title).mkdir(parents=True)
            for i in range(count):
                shown = (label + 1) % 3 if name == "train" and i == 0 else label
                Image.fromarray(stripes(shown, rng)).save(root / name / title / f"{i:02}.png")
    return root


@pytest.fixture
def photos(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, as the working folder."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(*arguments: str, train: str = "train", trusted: str = "trusted") -> Result:
    line = ["fit", train, "--trusted", trusted, "--out", "run", "--epochs", "2", *arguments]
    return CliRunner().invoke(app, line)


def assert_refused(result: Result, *words: str, run: str = "run") -> None:
    """Exit code 2; fact, cause and cure on stderr; no traceback; no run folder."""
    assert result.exit_code == 2, result.output
    labels = [line.split(":")[0].strip() for line in result.stderr.splitlines()]
    assert labels == ["error", "why", "do"], result.stderr
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr
    assert not Path(run).exists()


# What a run leaves


def test_fit_writes_every_file_of_a_run(photos: Path) -> None:
    result = fit("--test", "test")
    assert result.exit_code == 0, result.output
    run = RunFolder("run")
    assert tomllib.loads(run.config.read_text())["config"]["epochs"] == 2
    assert [m["epoch"] for m in run.read_metrics()] == list(range(1, 11))
    assert ["test_error" in m for m in run.read_metrics()] == [False] * 8 + [True] * 2
    state = run.load_checkpoint()
    assert state is not None
    assert len(state["history"]) == 10
    assert list(run.tensorboard.glob("events.out.tfevents.*"))
    points = pq.read_table(run.points)
    assert points["id"].to_pylist() == [f"{c}/{i:02}.png" for c in CLASSES for i in range(12)]
    assert points["given_label"].to_pylist() == [0] * 12 + [1] * 12 + [2] * 12
    SmallCNN(1, 3).load_state_dict(load_file(run.model))


def test_the_network_normalises_by_the_pixels_of_train(photos: Path) -> None:
    assert fit("-q").exit_code == 0
    pixels = np.stack([np.asarray(Image.open(p)) for p in Path("train").glob("*/*.png")]) / 255
    state = load_file(RunFolder("run").model)
    assert float(state["normalize.mean"]) == pytest.approx(pixels.mean(), abs=1e-6)
    assert float(state["normalize.std"]) == pytest.approx(pixels.std(), abs=1e-6)


def test_the_summary_names_the_wrong_labels_and_the_files(photos: Path) -> None:
    # With the default rate the surest two of these.
    result = fit("--test", "test", "--epochs", "30", "--set", "label_lr=0.02")
    assert result.exit_code == 0, result.output
    assert "3 of 36 labels look wrong" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    found = {tuple(line[:3]) for line in lines if line and line[0].endswith(".png")}
    assert found == {
        ("ant/00.png", "ant", "bee"),
        ("bee/00.png", "bee", "cat"),
        ("cat/00.png", "cat", "ant"),
    }
    assert "test error 0.0%" in result.stdout
    assert "run/points.parquet" in result.stdout


def test_quiet_says_nothing(photos: Path) -> None:
    result = fit("--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_the_run_folder_is_named_after_train_unless_told(photos: Path) -> None:
    line = ["fit", "train", "--trusted", "trusted", "--epochs", "1", "-q"]
    assert CliRunner().invoke(app, line).exit_code == 0
    assert Path("runs/train/points.parquet").is_file()


def test_options_go_over_set_over_config_over_defaults(photos: Path) -> None:
    Path("my.toml").write_text('lr = 0.5\nseed = 7\nepochs = 9\naugment = "none"\nmomentum = 0\n')
    result = fit("-q", "--config", "my.toml", "--set", "lr=0.01", "--set", "seed=8", "--seed", "9")
    assert result.exit_code == 0, result.output
    written = tomllib.loads(RunFolder("run").config.read_text())["config"]
    asked = {k: written[k] for k in ("lr", "seed", "epochs", "augment", "momentum", "solver")}
    assert asked == {
        "lr": 0.01,  # --set
        "seed": 9,  # the option
        "epochs": 2,  # the option
        "augment": "none",  # the file
        "momentum": 0.0,  # the file, a whole number there
        "solver": "neumann",  # the default
    }


def test_the_config_of_a_run_makes_the_same_run_again(photos: Path) -> None:
    assert fit("-q", "--seed", "3", "--augment", "none").exit_code == 0
    shutil.move("run", "first")
    line = ["fit", "train", "--trusted", "trusted", "--out", "run", "-q"]
    assert CliRunner().invoke(app, [*line, "--config", "first/config.toml"]).exit_code == 0
    assert Path("run/model.safetensors").read_bytes() == (
        Path("first/model.safetensors").read_bytes()
    )


def test_resume_goes_on_and_overwrite_starts_anew(photos: Path) -> None:
    assert fit("-q").exit_code == 0
    before = RunFolder("run").points.read_bytes()
    RunFolder("run").points.unlink()
    assert fit("-q", "--resume").exit_code == 0
    assert RunFolder("run").points.read_bytes() == before
    assert fit("-q", "--overwrite", "--seed", "1").exit_code == 0
    assert RunFolder("run").points.read_bytes() != before


def test_resize_and_channels_make_mixed_folders_usable(photos: Path) -> None:
    Image.new("RGB", (10, 12)).save("train/ant/odd.png")
    assert fit("-q", "--image-size", "8", "--channels", "1").exit_code == 0


def test_an_own_network_is_built_by_its_function(photos: Path) -> None:
    Path("net_of_mine.py").write_text(
        "from torch import nn\n"
        "def build(channels, num_classes, image_size):\n"
        "    pixels = channels * image_size**2\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, num_classes))\n"
    )
    result = fit("-q", "--model", "net_of_mine:build")
    assert result.exit_code == 0, result.output
    assert set(load_file(RunFolder("run").model)) == {"1.weight", "1.bias"}


def test_parts_of_a_set_and_other_layouts_than_folders(photos: Path) -> None:
    """A folder of splits with the part after a colon; an .npz as trusted set."""
    rng = np.random.default_rng(1)
    labels = np.arange(6) % 3
    images = np.stack([stripes(int(label), rng) for label in labels])
    np.savez("few.npz", images=images, labels=labels)
    result = fit("--test", ".:test", train=".:train", trusted="few.npz")
    assert result.exit_code == 0, result.output
    assert tomllib.loads(Path("run/config.toml").read_text())["data"]["trusted"] == 6


def test_corrupt_images_can_be_left_out(photos: Path) -> None:
    (photos / "train" / "ant" / "00.png").write_bytes(b"no image")
    result = fit("--skip-corrupt")
    assert result.exit_code == 0, result.output
    assert "ant/00.png" in result.stderr.replace(os.sep, "/")
    assert tomllib.loads(Path("run/config.toml").read_text())["data"]["train"] == 35


def test_the_same_image_in_train_and_trusted_is_a_warning_with_the_count(photos: Path) -> None:
    for i in range(3):
        shutil.copy(f"train/bee/{i + 1:02}.png", f"trusted/bee/copy{i}.png")
    result = fit("-q")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: 3 images of trusted")
    assert "UserWarning" not in result.output


def test_bar_epoch_numbers_and_time_left_fit_in_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    numbers = {"train_loss": 0.5, "trusted_loss": 0.25, "trusted_error": 0.04, "test_error": 0.05}
    with progress.reporting(True, total=120, done=60, title="autodo") as reporter:
        reporter.epoch({"epoch": 30, **numbers}, 60)
    bar = r"autodo \S+ +epoch 30/60 \d:\d\d:\d\d < \S+ *\n"
    below = "  train loss 0.500, trusted loss 0.250, trusted error 4.0%, test error 5.0%"
    assert re.search(bar + re.escape(below), screen.getvalue())


# Bad input


def test_missing_folder(photos: Path) -> None:
    assert_refused(fit(train="nowhere"), "no dataset called 'nowhere'")
    assert_refused(fit(trusted="nowhere"), "trusted", "no dataset called 'nowhere'")
    assert_refused(fit("--test", "nowhere"), "test", "no dataset called 'nowhere'")


def test_empty_folder(photos: Path) -> None:
    Path("void").mkdir()
    assert_refused(fit(train="void"), "'void' is empty")


def test_folder_of_images_without_classes(photos: Path) -> None:
    assert_refused(fit(train="train/ant"), "no class sub-folders")


def test_class_that_trusted_lacks(photos: Path) -> None:
    shutil.rmtree("trusted/cat")
    assert_refused(fit(), "without a folder: cat")


def test_class_that_train_lacks(photos: Path) -> None:
    shutil.rmtree("train/cat")
    assert_refused(fit(), "not a known class: cat")


def test_trusted_of_fewer_points_than_classes(photos: Path) -> None:
    for file in [*Path("trusted/cat").iterdir(), *Path("trusted/bee").iterdir()]:
        file.unlink()
    assert_refused(fit(), "no image in 2 class folders of trusted", "trusted/bee, trusted/cat")


def test_corrupt_image_is_named(photos: Path) -> None:
    whole = Path("train/bee/03.png").read_bytes()
    Path("train/bee/03.png").write_bytes(whole[: len(whole) // 2])
    assert_refused(fit(), "1 image file of train", "bee/03.png")


def test_images_of_mixed_sizes_and_channels(photos: Path) -> None:
    Image.new("L", (9, 8)).save("train/ant/wide.png")
    assert_refused(fit(), "2 sizes", "ant/wide.png", "--image-size")
    os.replace("train/ant/wide.png", "ant.png")
    Image.new("RGB", (8, 8)).save("train/ant/red.png")
    assert_refused(fit(), "2 numbers of channels", "ant/red.png", "--channels")


def test_sets_of_different_sizes(photos: Path) -> None:
    for file in Path("trusted").glob("*/*.png"):
        Image.open(file).resize((10, 10)).save(file)
    assert_refused(fit(), "(1, 8, 8)", "(1, 10, 10)", "--image-size")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "abacus"], ["'abacus'", "'cpu'"]),
        (["--set", "nonsense=1"], ["no field 'nonsense'", "the fields are"]),
        (["--set", "epochs"], ["--set epochs", "key=value"]),
        (["--set", "=3"], ["--set =3", "key=value"]),
        (["--set", "label_lr=fast"], ["label_lr is 'fast'", "float"]),
        (["--augment", "upside-down"], ["'upside-down'", "affine"]),
        (["--lr", "nan"], ["lr is nan"]),
        (["--epochs", "0"], ["epochs is 0"]),
        (["--channels", "2"], ["2 channels"]),
        (["--image-size", "0"], ["image size of (0, 0)"]),
        (["--config", "nowhere.toml"], ["'nowhere.toml'"]),
        (["--config", "bad.toml"], ["'bad.toml' is not TOML", "line 1"]),
        (["--config", "field.toml"], ["no field 'epoch'"]),
        (["--resume", "--overwrite"], ["--resume", "--overwrite"]),
        (["--model", "resnet"], ["--model resnet", "module:function"]),
        (["--model", "nomodule:f"], ["--model nomodule:f", "ModuleNotFoundError"]),
        (["--model", "spoilt:f"], ["--model spoilt:f", "SyntaxError"]),
        (["--model", "nets:absent"], ["--model nets:absent", "AttributeError"]),
        (["--model", "nets:raises"], ["nets:raises", "ValueError: no", "nets.py, line 3"]),
        (["--model", "nets:number"], ["nets:number is a int"]),
        (["--model", "nets:headless"], ["does not end in nn.Linear"]),
        (["--model", "nets:narrow"], ["2 outputs", "3 classes"]),
        (["--model", "nets:other_size"], ["cannot take images of shape (1, 8, 8)"]),
        (["--model", "nets:none"], ["model is a NoneType"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_bad_options_are_refused(photos: Path, arguments: list[str], words: list[str]) -> None:
    Path("bad.toml").write_text("epochs is 3")
    Path("field.toml").write_text("epoch = 3")
    Path("spoilt.py").write_text("def f(:\n")
    Path("nets.py").write_text(
        "from torch import nn\n"
        "def raises(channels, num_classes):\n"
        "    raise ValueError('no')\n"
        "def headless(channels, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes), nn.Softmax(1))\n"
        "def narrow(channels, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))\n"
        "def other_size(channels, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(100, num_classes))\n"
        "def none(channels, num_classes):\n"
        "    pass\n"
        "number = 3\n"
    )
    for module in ("nets", "spoilt"):
        sys.modules.pop(module, None)
    assert_refused(fit(*arguments), *words)


def test_existing_run_folder_is_left_alone(photos: Path) -> None:
    Path("run").mkdir()
    Path("run/config.toml").write_text("precious")
    shutil.copytree("run", "copy")
    assert_refused(fit("--out", "copy"), "copy already exists", "--resume", "--overwrite", run="-")
    assert Path("copy/config.toml").read_text() == "precious"


def test_overwrite_deletes_nothing_but_a_run(photos: Path) -> None:
    assert_refused(fit("--out", "train", "--overwrite"), "train is not a run folder", run="-")
    assert len(list(Path("train").glob("*/*.png"))) == 36


def test_resume_with_another_configuration_or_model_or_data(photos: Path) -> None:
    assert fit("-q", "--out", "old").exit_code == 0
    files = {path: path.read_bytes() for path in Path("old").rglob("*") if path.is_file()}
    again = ["--out", "old", "--resume"]
    assert_refused(fit(*again, "--lr", "0.3"), "lr was 0.02 and is now 0.3")
    Path("flat.py").write_text(
        "from torch import nn\n"
        "def build(channels, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    assert_refused(fit(*again, "--model", "flat:build"), "does not fit this model")
    Path("train/ant/05.png").unlink()
    assert_refused(fit(*again), "another property of the data")
    assert {path: path.read_bytes() for path in files} == files


def test_a_run_folder_below_a_file(photos: Path) -> None:
    assert_refused(fit("--out", "trusted/ant/00.png/run"), "00.png/run", "Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_to(photos: Path) -> None:
    Path("locked").mkdir(mode=0o500)
    assert_refused(fit("--out", "locked/run"), "locked/run", "Permission denied", "permission")


def test_a_full_disk_is_told_without_a_traceback(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RunFolder, state: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run/checkpoints/last.pt")

    monkeypatch.setattr(RunFolder, "save_checkpoint", fail)
    result = fit("-q")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "--resume" in result.stderr


def test_a_bug_keeps_its_traceback(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(self: RunFolder, points: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(RunFolder, "save_points", bug)
    assert isinstance(fit("-q").exception, ZeroDivisionError)


def test_loss_that_is_not_finite_names_points(photos: Path) -> None:
    result = fit("-q", "--lr", "1e30")
    assert result.exit_code == 2
    assert "of the points" in result.stderr
    assert "lower lr" in result.stderr


# The real program


def run_program(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*arguments], capture_output=True, text=True, timeout=120, **options
    )


def test_the_console_script_refuses_with_exit_code_2(photos: Path) -> None:
    done = run_program(AUTODO, "fit", "nowhere", "--trusted", "trusted")
    assert done.returncode == 2
    assert done.stderr.startswith("error: train: there is no dataset called 'nowhere', and")
    assert "\n  why: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()


def test_ctrl_c_tells_how_to_go_on_and_that_works(photos: Path) -> None:
    line = ["fit", "train", "--trusted", "trusted", "--out", "run", "--epochs", "40", "-q"]
    line += ["--set", "batch_size=12"]
    process = subprocess.Popen([AUTODO, *line], stderr=subprocess.PIPE, text=True)
    metrics, deadline = Path("run/metrics.jsonl"), time.monotonic() + 90
    while not (metrics.is_file() and len(metrics.read_text().splitlines()) >= 3):
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline, "no third epoch within 90 s"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert f"continue with: autodo {' '.join(line)} --resume" in stderr
    done = len(metrics.read_text().splitlines())
    assert 3 <= done < 40

    # Resumed here and not in a second process, which would spend its time importing torch.
    shutil.copytree("run", "copy")
    state = RunFolder("copy").load_checkpoint()
    assert state is not None
    assert done - 1 <= len(state["history"]) <= done + 1
    result = CliRunner().invoke(app, [*line, "--resume"])
    assert result.exit_code == 0, result.output
    epochs = [json.loads(text)["epoch"] for text in metrics.read_text().splitlines()]
    made = plan(Config(epochs=40), RunFolder("run").read_metrics())
    assert epochs == list(range(1, made.epochs + 1))


def test_python_m_autodo_is_the_command() -> None:
    done = run_program(sys.executable, "-m", "autodo", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("autodo 0.")


# Help


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ([], "autodo demo"),
        (["demo"], "autodo demo --noise 0.2 --out runs/demo"),
        (["fit"], "autodo fit photos/train --trusted photos/trusted --test photos/test"),
        (["compare"], "autodo compare photos/train --trusted photos/trusted --test photos/test"),
        (["bench"], "autodo bench --json bench.json"),
    ],
)
def test_help_ends_with_an_example_on_a_line_of_its_own(command: list[str], example: str) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert example in [line.strip() for line in result.stdout.splitlines()]
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_every_command_has_an_example() -> None:
    for command in app.registered_commands:
        assert f"autodo {command.callback.__name__}" in (command.epilog or "")  # type: ignore[union-attr]


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['autodo', '--help']\n"
        "try:\n"
        "    from autodo.cli import main; main()\n"
        "finally:\n"
        "    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    assert run_program(sys.executable, "-c", code).stderr.strip() == "False"


def test_the_same_seed_gives_the_same_network(photos: Path) -> None:
    torch.manual_seed(123)  # the state of the calling process must not matter
    assert fit("-q").exit_code == 0
    torch.manual_seed(321)
    assert fit("-q", "--out", "again").exit_code == 0
    assert Path("run/model.safetensors").read_bytes() == (
        Path("again/model.safetensors").read_bytes()
    )
