"""autodo compare: every method on a person's own data, nothing run twice, a sentence at the end."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autodo
from autodo.cli import app
from autodo.commands.compare import Again
from autodo.config import Config
from autodo.data import Examples, load_digits, stratified_split
from autodo.data.loader import Loader
from autodo.errors import InputError, RunFolderError
from autodo.experiment import compare as module
from autodo.experiment.cleaning import FOLDS, _folds, out_of_fold, run_cleanlab
from autodo.experiment.compare import Comparison
from autodo.experiment.demo import digits_model
from autodo.experiment.methods import METHODS, OURS, papers
from autodo.experiment.own_task import task_maker
from autodo.experiment.score import Score, Scores
from autodo.experiment.task import digits_task
from autodo.experiment.verdict import markdown, table, verdict


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 digits to train on and 100 to test, as .npz."""
    folder, digits = tmp_path_factory.mktemp("digits"), load_digits()
    _, few = stratified_split(digits.labels, 400, seed=0)
    rest, test = stratified_split(digits.labels[few], 100, seed=0)
    for name, index in (("train", few[rest]), ("test", few[test])):
        part = digits.subset(index)
        images = (part.images[:, 0] * 255).round().to(torch.uint8).numpy()
        np.savez(folder / f"{name}.npz", images=images, labels=part.labels.numpy())
    return folder


def run(files: Path, out: Path, *more: str) -> tuple[int, str]:
    line = [
        "compare", str(files / "train.npz"), "--test", str(files / "test.npz"), "--trusted", "60",
        "--distortion", "2-0.3", "--epochs", "2", "--seeds", "1", "--out", str(out), "-q",
        "--set", "device=cpu", *more,
    ]  # fmt: skip
    result = CliRunner().invoke(app, line)
    return result.exit_code, result.output


def test_all_methods_on_own_data_and_nothing_twice(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = run(files, tmp_path / "out")
    assert code == 0, said
    for name in METHODS:
        assert name in said
    stored = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [row["method"] for row in stored["runs"]] == list(METHODS)
    assert {row["auc"] is None for row in stored["runs"]} == {True, False}
    kept = (tmp_path / "out" / "compare.md").read_text()
    assert all(name in kept for name in METHODS)
    assert "one seed cannot say how sure that is" in kept

    asked: list[str] = []
    whole = module.run_method
    monkeypatch.setattr(
        module, "run_method", lambda name, *a, **k: (asked.append(name), whole(name, *a, **k))[1]
    )
    code, again = run(files, tmp_path / "out", "--seeds", "2", "--only", "plain")
    assert code == 0, again
    assert asked == ["plain"]
    code, refused = run(files, tmp_path / "out", "--lr", "0.5")
    assert code == 2
    assert "another config" in refused


def test_bad_requests_are_refused(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for more, words in (
        (["--only", "plain", "--skip", "plain"], "no method is left"),
        (["--trusted", "²"], "no such file"),
        (["--only", "plian"], "plain"),
        (["--skip", "zzz"], "no method begins"),
        (["--distortion", "1000-0.1"], "leaves no example"),
        (["--trusted", "5000"], "cannot pick"),
        (["--model", "wrm-16-4"], "wrn-16-4"),
    ):
        code, said = run(files, out, *more)
        assert code == 2, (more, said)
        assert words in said, said
        assert not out.exists()
    line = ["compare", str(files / "train.npz"), "--trusted", "60", "-q"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2
    assert "there is no test set" in result.output


def score(error: float, seconds: float = 1.0) -> Score:
    return Score(test_error=error, rare_error=error, seconds=seconds)


def scores(**errors: list[float]) -> Scores:
    return {
        name: {k: score(e, seconds=len(name)) for k, e in enumerate(values)}
        for name, values in errors.items()
    }


def test_images_in_two_sets_are_told_once_and_before_any_run(files: Path, tmp_path: Path) -> None:
    again = "--test", str(files / "train.npz"), "--seeds", "2", "--only", "plain", "--only", OURS
    code, said = run(files, tmp_path / "out", *again)
    assert code == 0, said
    told = [line for line in said.splitlines() if "pixel for pixel" in line]
    assert [line.split("also in ")[1].split(",")[0] for line in told] == ["train", "trusted"]


def test_the_sentence_follows_the_numbers() -> None:
    clear = scores(AutoDO=[0.10, 0.11, 0.10], plain=[0.20, 0.22, 0.21])
    assert verdict(clear).startswith("Use AutoDO: 10.3%")
    other = scores(AutoDO=[0.20, 0.22, 0.21], plain=[0.10, 0.11, 0.10])
    assert verdict(other).startswith("Use plain")
    level = scores(AutoDO=[0.10, 0.12, 0.11], plain=[0.12, 0.10, 0.12])
    assert "cannot be told from plain; the cheapest of these is plain" in verdict(level)
    # Ahead by more than a standard error, as one of two methods that are alike often is.
    luck = scores(AutoDO=[0.10, 0.12], plain=[0.11, 0.14])
    assert "cannot be told" in verdict(luck)
    assert "one seed" in verdict(scores(AutoDO=[0.1], plain=[0.2]))
    assert table(clear, "title").row_count == 2


def test_the_sentence_is_of_the_seeds_that_all_have() -> None:
    """Else a method with more seeds, and luck in them, would be called the best."""
    unlike = scores(AutoDO=[0.10, 0.11, 0.12, 0.04, 0.05], plain=[0.09, 0.101, 0.11])
    assert verdict(unlike).startswith("Use plain: 10.0% test error, 11.0%")
    assert "**plain**" in markdown(unlike, "mine")
    apart: Scores = {"AutoDO": {0: score(0.1)}, "plain": {1: score(0.2)}}
    assert "no seed in common" in verdict(apart)
    assert "one seed" in verdict({**unlike, "trusted alone": {2: score(0.5)}})


def test_what_only_autodo_knew_of_the_images_is_told() -> None:
    found = scores(AutoDO=[0.10, 0.11, 0.10], plain=[0.20, 0.22, 0.21])
    assert "mirrored" not in verdict(found)
    for k, symmetry in enumerate(("none", "mirror", "none")):
        found["AutoDO"][k] = dataclasses.replace(found["AutoDO"][k], symmetry=symmetry)
    assert verdict(found).endswith(
        "found out that these images may be mirrored and learned from them so, the others did "
        "not: --set symmetry=mirror tells all."
    )


@pytest.mark.parametrize(("images", "told"), [(200, True), (20_000, False)])
def test_few_test_images_are_told(images: int, told: bool) -> None:
    found = {
        name: {
            k: dataclasses.replace(score(error + 0.001 * k), confusion=((images,),))
            for k in range(3)
        }
        for name, error in (("AutoDO", 0.10), ("plain", 0.12))
    }
    found["plain"][2] = dataclasses.replace(found["plain"][2], test_error=0.1225)
    assert verdict(found).startswith("Use AutoDO")
    assert (f"Other {images:,} test images could order the two" in verdict(found)) == told


def test_the_table_that_is_kept_has_means_deviations_and_paired_differences() -> None:
    found = scores(AutoDO=[0.10, 0.12], plain=[0.20, 0.26])
    lines = markdown(found, "mine").splitlines()
    assert lines[0] == "# mine"
    assert lines[2] == verdict(found)
    assert [line.split(" | ")[:4] for line in lines[6:8]] == [
        ["| plain", "23.00 ± 4.24", "23.00 ± 4.24", "-12.00 ± 2.83"],
        ["| **AutoDO**", "11.00 ± 1.41", "11.00 ± 1.41", ""],
    ]


def test_the_time_left_is_told_once_every_method_has_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "run_method", lambda name, *_, **__: score(0.5, seconds=300))
    said: list[str] = []
    comparison = Comparison(tmp_path, {}, title="mine")
    task = digits_task(noise=0.2)

    def run(*methods: str) -> None:
        comparison.run(
            lambda seed: task, Config(device="cpu"), lambda *_: lambda: digits_model(0),
            methods=methods, seeds=2, tell=said.append,
        )  # fmt: skip

    run("plain", OURS)
    assert said == [
        "1 of 4: plain, seed 0",
        "2 of 4: AutoDO, seed 0",
        "3 of 4: plain, seed 1, about 10 min left",
        "4 of 4: AutoDO, seed 1, about 5 min left",
    ]
    (tmp_path / "compare.md").unlink()
    run("plain")
    assert (tmp_path / "compare.md").read_text().startswith("# mine")
    assert len(said) == 4


def test_a_score_is_on_disk_before_the_next_run(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, {"data": 1})
    comparison.add("plain", 0, score(0.5))
    again = Comparison(tmp_path, {"data": 1})
    assert again.scores["plain"][0].test_error == 0.5
    with pytest.raises(RunFolderError, match="another data"):
        Comparison(tmp_path, {"data": 2})
    assert Comparison(tmp_path, {"data": 2}, overwrite=True).scores == {}


def test_probabilities_are_out_of_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network gives probabilities for a point that it was trained on."""
    task = digits_task(noise=0.2)
    seen: list[set[str]] = []
    held: list[set[str]] = []
    import autodo.experiment.cleaning as cleaning

    def train(model, data, *_, **__):  # type: ignore[no-untyped-def]
        seen.append(set(data.ids))
        return model

    whole = cleaning._probabilities

    def probabilities(model, data):  # type: ignore[no-untyped-def]
        held.append(set(data.ids))
        return whole(model, data)

    monkeypatch.setattr(cleaning, "train", train)
    monkeypatch.setattr(cleaning, "_probabilities", probabilities)
    found = out_of_fold(task, Config(device="cpu"), lambda: digits_model(0))
    assert len(seen) == len(held) == FOLDS
    assert all(not a & b for a, b in zip(seen, held, strict=True))
    assert set().union(*held) == set(task.train.ids)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


def test_cleanlab_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own do not find what they need in a process that was spawned, such as the study's."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pool of processes was asked for")

    monkeypatch.setattr("multiprocessing.Pool", refuse)
    monkeypatch.setattr("autodo.experiment.cleaning.train", lambda model, *_, **__: model)
    task = digits_task(noise=0.2)
    found = run_cleanlab(task, Config(device="cpu"), lambda: digits_model(0))
    assert found.auc is not None


def test_a_class_with_fewer_points_than_folds_is_shared_out() -> None:
    labels = np.array([0] * 30 + [1] * 30 + [2])
    held = np.concatenate([part for _, part in _folds(labels, 0)])
    assert sorted(held) == list(range(61))


def test_balanced_batches_have_equal_classes() -> None:
    labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    data = Examples.from_arrays(np.zeros((1000, 4, 4), np.uint8), labels)
    drawn = torch.cat([y for _, y, _ in Loader(data, "cpu").batches(100, seed=3, balanced=True)])
    assert len(drawn) == 1000
    counts = drawn.bincount(minlength=3)
    assert (counts - 1000 / 3).abs().max() < 60  # four deviations


def test_the_papers_way_keeps_the_budget_and_nothing_else_of_ours() -> None:
    paper = papers(Config(epochs=40, lr=0.3, batch_size=7, seed=5))
    assert (paper.epochs, paper.lr, paper.batch_size, paper.seed) == (40, 0.3, 7, 5)
    assert (paper.start_epoch, paper.lambda_optimizer, paper.belief_folds) == (10, "rmsprop", 0)
    assert paper.loss == "symmetric_kl"
    # It sees images as all methods do that find no symmetry of their own.
    told = papers(Config(magnitude=2.0, symmetry="mirror"))
    assert (told.magnitude, told.symmetry, paper.symmetry) == (2.0, "mirror", "none")


def test_true_labels_from_a_file(files: Path, tmp_path: Path) -> None:
    held = np.load(files / "train.npz")
    np.save(tmp_path / "truth.npy", held["labels"])
    noisy = held["labels"].copy()
    noisy[:50] = (noisy[:50] + 1) % 10

    def load(source: str, name: str) -> Examples:
        which = np.load(source)
        labels = noisy if name == "train" else which["labels"]
        return Examples.from_arrays(which["images"], labels)

    names = str(files / "train.npz"), "60", str(files / "test.npz")
    make, about = task_maker(load, *names, true_labels=tmp_path / "truth.npy")
    task = make(0)
    assert about["trusted"] == 60
    assert 20 < int(task.wrong.sum()) <= 50
    truth = dict(zip(map(str, range(300)), held["labels"].tolist(), strict=True))
    given = task.trusted.labels.tolist()
    assert [truth[i] for i in task.trusted.ids] == given  # trusted points get their true labels
    np.save(tmp_path / "short.npy", held["labels"][:9])
    with pytest.raises(InputError, match="9 labels"):
        task_maker(load, *names, true_labels=tmp_path / "short.npy")


def test_points_held_out_of_train_to_measure_on(files: Path, tmp_path: Path) -> None:
    held = np.load(files / "train.npz")
    others = (held["labels"] + 1) % 10
    np.save(tmp_path / "others.npy", others)

    def load(source: str, name: str) -> Examples:
        assert name == "train"
        which = np.load(source)
        return Examples.from_arrays(which["images"], which["labels"])

    names = str(files / "train.npz"), "60", "50"
    make, about = task_maker(load, *names, distortion=f"1-file:{tmp_path / 'others.npy'}")
    assert (about["train"], about["trusted"], about["test"]) == (190, 60, 50)
    tasks = make(0), make(1)
    assert tasks[0].test.ids == tasks[1].test.ids
    assert tasks[0].trusted.ids != tasks[1].trusted.ids
    for task in tasks:
        assert len({*task.train.ids, *task.trusted.ids, *task.test.ids}) == 300
        assert task.train.labels.tolist() == [others[int(i)] for i in task.train.ids]
        assert task.test.labels.tolist() == [held["labels"][int(i)] for i in task.test.ids]
    with pytest.raises(InputError, match="as messy as the rest"):
        task_maker(load, *names)


def test_points_that_are_left_out_take_their_image_with_them(files: Path) -> None:
    def load(source: str, name: str) -> Examples:
        which = np.load(source)
        return Examples.from_arrays(which["images"], which["labels"])

    whole = load(str(files / "train.npz"), "train")
    for trusted, test in (("60", "50"), ("60", str(files / "test.npz"))):
        make, about = task_maker(load, str(files / "train.npz"), trusted, test, distortion="3-0.4")
        task = make(2)
        at = [int(i) for i in task.train.ids]
        assert len(at) == about["train"] < 240
        assert not set(task.train.ids) & set(task.trusted.ids)
        assert task.true_labels is not None
        assert torch.equal(task.train.images, whole.images[at])
        assert torch.equal(task.true_labels, whole.labels[at])
        assert task.wrong.float().mean() > 0.2


def test_trusted_points_out_of_a_set_that_may_be_messy_are_told(files: Path) -> None:
    def load(source: str, name: str) -> Examples:
        which = np.load(source)
        return Examples.from_arrays(which["images"], which["labels"])

    names = str(files / "train.npz"), "60", str(files / "test.npz")
    with pytest.warns(UserWarning, match="60 trusted points are taken out of train"):
        task_maker(load, *names)


def test_a_file_of_labels_must_be_of_this_very_set(files: Path, tmp_path: Path) -> None:
    def load(source: str, name: str) -> Examples:
        which = np.load(source)
        return Examples.from_arrays(which["images"], which["labels"])

    labels = np.load(files / "train.npz")["labels"]
    np.save(tmp_path / "longer.npy", np.concatenate([labels, labels[:1]]))
    names = str(files / "train.npz"), str(files / "test.npz"), str(files / "test.npz")
    for trusted in (names[1], "60"):
        with pytest.raises(InputError, match="has 301 labels and train has 300 examples"):
            task_maker(
                load, names[0], trusted, names[2], distortion=f"1-file:{tmp_path / 'longer.npy'}"
            )


def test_from_python_with_any_dataset() -> None:
    task = digits_task(noise=0.3, trusted=60)
    pairs = [list(zip(part.images, part.labels.tolist(), strict=True)) for part in (
        task.train, task.trusted, task.test)]  # fmt: skip
    found = autodo.compare(
        lambda: digits_model(0), *pairs, true_labels=task.true_labels, progress=False,
        config=Config(epochs=2, device="cpu"), seeds=1, methods=["plain", OURS],
    )  # fmt: skip
    assert list(found.scores) == ["plain", OURS]
    assert "labels right" in str(found)
    assert found.scores[OURS][0].auc is not None


def test_from_python_a_folder_is_taken_up_for_the_same_data_only(tmp_path: Path) -> None:
    task = digits_task(noise=0.3, trusted=60)

    def run(labels: torch.Tensor, truth: torch.Tensor | None = None) -> Comparison:
        return autodo.compare(
            lambda: digits_model(0), task.train.with_labels(labels), task.trusted, task.test,
            true_labels=truth, config=Config(epochs=1, device="cpu"), seeds=1, methods=["plain"],
            out=tmp_path, progress=False,
        )  # fmt: skip

    first = run(task.train.labels)
    again = run(task.train.labels)
    assert again.scores["plain"][0].seconds == first.scores["plain"][0].seconds
    with pytest.raises(RunFolderError, match="another fingerprint"):
        run(task.train.labels.flip(0))
    with pytest.raises(RunFolderError, match="another true_labels"):
        run(task.train.labels, task.true_labels)
    with pytest.raises(InputError, match="628 labels and train has 629"):
        run(task.train.labels, task.train.labels[1:])


def test_other_pixels_or_another_truth_are_another_comparison(files: Path, tmp_path: Path) -> None:
    only = "--only", "plain"
    assert run(files, tmp_path / "out", *only)[0] == 0
    held = np.load(files / "train.npz")
    other = tmp_path / "other"
    other.mkdir()
    np.savez(other / "train.npz", images=255 - held["images"], labels=held["labels"])
    np.savez(other / "test.npz", **np.load(files / "test.npz"))
    for where, more in ((other, ()), (files, ("--image-size", "10"))):
        code, said = run(where, tmp_path / "out", *only, *more)
        assert code == 2
        assert "holds a comparison with another fingerprint" in said
    code, said = run(files, tmp_path / "out", *only, "--lr", "0.5")
    assert "another config: lr was 0.02 and is now 0.5" in said


def a_comparison(out: Path, **options: Any) -> Comparison:
    """What of digits is compared for an epoch."""
    comparison = Comparison(out, {}, **options)
    comparison.run(
        lambda seed: digits_task(noise=0.2), Config(epochs=1, device="cpu"),
        lambda *_: lambda: digits_model(0), methods=["plain"], seeds=1,
    )  # fmt: skip
    return comparison


def test_two_comparisons_cannot_write_to_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(*_: object, **__: object) -> Score:
        with pytest.raises(RunFolderError, match="another comparison is writing"):
            a_comparison(tmp_path)
        return score(0.5)

    monkeypatch.setattr(module, "run_method", another)
    first, late = Comparison(tmp_path, {}), Comparison(tmp_path, {})
    assert a_comparison(tmp_path).scores["plain"][0].test_error == 0.5
    # One that was begun meanwhile takes up what has been found since.
    monkeypatch.setattr(module, "run_method", lambda *_, **__: score(0.1))
    for comparison in (first, late):
        comparison.run(
            lambda seed: digits_task(noise=0.2), Config(device="cpu"),
            lambda *_: lambda: digits_model(0), methods=["plain"], seeds=1,
        )  # fmt: skip
        assert comparison.scores["plain"][0].test_error == 0.5


def test_what_would_stop_a_comparison_is_found_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Score:
        raise AssertionError("it trained")

    monkeypatch.setattr(module, "run_method", refuse)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        a_comparison(tmp_path / "file" / "out")

    def of_seed(seed: int) -> Any:
        if seed == 2:
            raise InputError("no example is left", "of a class", "another seed")
        return digits_task(noise=0.2)

    def begin(build: Any, make: Any = of_seed) -> None:
        Comparison(tmp_path / "out", {}).run(
            make, Config(device="cpu"), lambda *_: build, methods=["plain"], seeds=3
        )

    with pytest.raises(InputError, match="no example is left"):
        begin(lambda: digits_model(0))
    for build, words in (
        (lambda: None, "model is a NoneType"),
        (lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 13)), "13 outputs"),
        (lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 10)), "cannot"),
    ):
        with pytest.raises(InputError, match=words):
            begin(build, lambda seed: digits_task(noise=0.2))
    assert not (tmp_path / "out").exists()


def test_starting_anew_forgets_the_old_runs_and_goes_on_without_saying_so_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Comparison(tmp_path, {}).add("plain", 0, score(0.25))

    def stop(*_: object, **__: object) -> Score:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_method", stop)
    with pytest.raises(KeyboardInterrupt):
        a_comparison(tmp_path, overwrite=True)
    assert Comparison(tmp_path, {}).scores == {}
    assert "the same command" in str(Again())
    monkeypatch.setattr("sys.argv", ["autodo", "compare", "my photos", "--overwrite", "-q"])
    assert str(Again()) == "continue with: autodo compare 'my photos' -q"


@pytest.mark.parametrize("text", ["[]", '{"setting": {}, "runs": [{}]}', "{", '{"setting": {}}'])
def test_a_damaged_comparison_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text(text)
    with pytest.raises(RunFolderError, match="is no comparison"):
        Comparison(tmp_path, {})
    assert Comparison(tmp_path, {}, overwrite=True).scores == {}


def test_titles_and_folders_are_no_markup(files: Path, tmp_path: Path) -> None:
    code, said = run(files, tmp_path / "a[/b]c[old]", "--only", "plain")
    assert code == 0, said
    assert "a[/b]c[old]/compare.md" in said.replace("\n", "")


@pytest.mark.parametrize("methods", [[], ["foo"], "plain"])
def test_methods_that_there_are_not_are_refused(methods: Any) -> None:
    task = digits_task(noise=0.2)
    sets = task.train, task.trusted, task.test
    with pytest.raises(InputError, match="method"):
        autodo.compare(lambda: digits_model(0), *sets, methods=methods, progress=False)
    with pytest.raises(InputError, match="seeds is 0"):
        autodo.compare(lambda: digits_model(0), *sets, seeds=0, progress=False)


def test_a_test_set_may_lack_classes() -> None:
    task = digits_task(noise=0.2)
    few = Examples.from_arrays(*(
        part[task.test.labels < 2] for part in (task.test.images, task.test.labels)
    ))  # fmt: skip
    assert few.num_classes == 2
    found = autodo.compare(
        lambda: digits_model(0), task.train, task.trusted, few, progress=False,
        config=Config(epochs=1, device="cpu"), seeds=1, methods=["plain"],
    )  # fmt: skip
    assert np.shape(found.scores["plain"][0].confusion) == (10, 10)


def test_ours_is_last_and_named() -> None:
    assert METHODS[-1] == OURS
