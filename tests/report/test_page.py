"""The page as a file: what it says, that it stands alone, that no name of a class can bite."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_runs import HOSTILE, NAMES, make_run, messy_digits, network
from many_points import make_large_run
from typer.testing import CliRunner

import autodo
from autodo.cli import app
from autodo.errors import RunFolderError
from autodo.report import page
from autodo.report.outcome import outcome
from autodo.report.projection import project
from autodo.report.run import Run
from autodo.report.summaries import class_table, confusion, curves, weight_histograms
from autodo.train.run_folder import RunFolder


class Parsed(HTMLParser):
    """Tags with their attributes, the text, and the contents of the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._inside = "", [], ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


@pytest.fixture(scope="module")
def html(run: Path) -> str:
    return page.write_report(run).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(html: str) -> Parsed:
    return Parsed(html)


# What it says


def test_the_first_sentence_has_errors_before_and_after_and_the_labels(run: Path) -> None:
    opened = Run.open(run)
    said = outcome(opened)
    error = opened.metrics[-1]["test_error"]
    issues = sum(opened.points["is_label_issue"].to_pylist())
    assert f"from 64.3% (plain) to {error:.1%}" in said
    assert f"{issues} of 200 labels" in said


def test_the_sentence_says_so_when_the_other_method_is_better(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    best = np.eye(10, dtype=int).tolist()
    (copy / "view" / "baselines.json").write_text(json.dumps([{"name": "z", "confusion": best}]))
    said = outcome(Run.open(copy))
    assert "fell" not in said
    assert "z has 0.0%" in said


def test_the_sentence_of_a_run_without_a_test_set_warns_of_the_trusted_error(
    tmp_path: Path,
) -> None:
    train, trusted, _ = messy_digits()
    config = autodo.Config(epochs=2, batch_size=32, device="cpu", learn_labels=False)
    autodo.fit(network(), train, trusted, config=config, out=tmp_path / "run", progress=False)
    said = outcome(Run.open(tmp_path / "run"))
    assert "which were learned from" in said
    assert "Labels were not learned" in said


def test_the_page_shows_every_section(parsed: Parsed) -> None:
    ids = [attributes["id"] for tag, attributes in parsed.tags if tag == "section"]
    assert ids == [
        "labels", "classes", "curves", "confusion", "weights", "augmentation", "map", "points",
        "settings",
    ]  # fmt: skip
    links = {a["href"] for tag, a in parsed.tags if tag == "a" and "href" in a}
    assert {f"#{i}" for i in ids} <= links


def test_the_class_table_counts_what_the_points_say(run: Path) -> None:
    opened = Run.open(run)
    points = pq.read_table(RunFolder(run).points).to_pylist()
    rows = class_table(opened)
    assert [row["name"] for row in rows] == list(NAMES)
    of_three = [p for p in points if p["given_label"] == 3]
    assert rows[3]["count"] == len(of_three)
    assert rows[3]["weight"] == pytest.approx(np.mean([p["weight"] for p in of_three]))
    share = np.mean([p["is_label_issue"] for p in of_three])
    assert rows[3]["suspected"] == pytest.approx(share)
    assert rows[3]["before"] == pytest.approx(18 / 28)


def test_confusion_adds_up_to_the_error(run: Path) -> None:
    seen = Run.open(run).predictions["test"]
    matrix = confusion(seen["label"], seen["predicted"], 10)
    assert matrix.sum() == 150
    assert 1 - np.trace(matrix) / 150 == pytest.approx(Run.open(run).metrics[-1]["test_error"])
    assert matrix.sum(1).tolist() == np.bincount(seen["label"], minlength=10).tolist()


def test_histograms_hold_every_point_once(run: Path) -> None:
    drawn = weight_histograms(Run.open(run))
    assert drawn is not None
    assert np.sum(drawn["counts"]) == 200
    edges = drawn["edges"]
    assert edges[0] * edges[-1] == pytest.approx(1, rel=1e-3)


def test_gallery_and_data_are_those_of_the_points(run: Path, parsed: Parsed) -> None:
    data = json.loads(parsed.scripts[0])
    points = pq.read_table(RunFolder(run).points).to_pylist()
    shown = data["gallery"]["suspicious"]
    assert [s["score"] for s in shown] == sorted(s["score"] for s in shown)
    assert len(shown) == sum(p["is_label_issue"] for p in points)
    for item in shown:
        point = points[item["index"]]
        assert (item["id"], item["given"]) == (point["id"], point["given_label"])
        assert item["suggested"] == point["suggested_label"]
        assert str(item["index"]) in data["images"]
    score = np.frombuffer(base64.b64decode(data["points"]["score"]), "<u2") / 65535
    assert np.allclose(score, [p["label_score"] for p in points], atol=2e-5)


def test_curves_say_where_the_first_networks_end_and_lambda_starts(run: Path, html: str) -> None:
    data = page.page_data(Run.open(run))["curves"]
    config = Run.open(run).config
    assert config.epochs == 20
    assert data["epochs_before"] == 80
    assert data["lambda_start"] == 85
    assert len(data["epochs"]) == 100
    assert data["rounds"] == ""
    assert "The first 80 epochs belong to networks that each left out a part" in html


def test_curves_say_why_there_was_no_second_round(run: Path) -> None:
    judged = [{"epoch": 20, "noise_rate": 0.001}, {"epoch": 40, "noise_rate": 0.001}]
    data = curves(dataclasses.replace(Run.open(run), metrics=judged))
    assert (data["epochs_before"], data["lambda_start"]) == (40, 65)
    assert data["rounds"] == (
        "hardly a label looked wrong after round 1, so the network trained for 40 epochs "
        "instead of 20"
    )


# What it must not do


def test_names_of_classes_and_files_stay_text(parsed: Parsed) -> None:
    assert not any(tag == "img" and a.get("src") == "x" for tag, a in parsed.tags)
    assert not any(tag == "b" and "onerror" in a for tag, a in parsed.tags)
    assert HOSTILE in parsed.text  # in the class table
    assert len(parsed.scripts) == 2
    data = json.loads(parsed.scripts[0])
    assert data["classes"][0] == HOSTILE
    assert "<b>" in data["gallery"]["suspicious"][0]["id"]


def test_only_its_own_script_may_run_and_nothing_is_asked_for(html: str, parsed: Parsed) -> None:
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    for tag, attributes in parsed.tags:
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    outside = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", html)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}


def test_a_hundred_thousand_points_and_noise_stay_below_15_megabytes(tmp_path: Path) -> None:
    # Noise is the worst that compression can meet: 400 thumbnails, a full map, 120,000 points.
    run = make_large_run(tmp_path / "run", points=120_000)
    path = page.write_report(run)
    assert 5e6 < path.stat().st_size < 15e6
    data = json.loads(Parsed(path.read_text()).scripts[0])
    assert data["points"]["total"] == 120_000
    index = np.frombuffer(base64.b64decode(data["points"]["index"]), "<u4")
    assert len(index) == len(set(index.tolist())) == page.SHOWN_POINTS
    scores = np.asarray(pq.read_table(RunFolder(run).points)["label_score"])
    assert set(np.argsort(scores)[:1000].tolist()) <= set(index.tolist())


# Runs of every kind


def test_the_same_run_gives_the_same_page(run: Path, html: str, tmp_path: Path) -> None:
    other = page.write_report(run, tmp_path / "again.html")
    assert other.read_text(encoding="utf-8") == html


def test_a_run_saved_from_python_has_a_report_without_pictures(run: Path, tmp_path: Path) -> None:
    train, trusted, test = messy_digits()
    config = autodo.Config(epochs=2, batch_size=32, device="cpu")
    result = autodo.fit(network(), train, trusted, test=test, config=config, progress=False)
    text = page.write_report(result.save(tmp_path / "saved")).read_text()
    assert "This run kept no predictions" in text
    assert "This run kept no features" in text
    assert json.loads(Parsed(text).scripts[0])["map"] is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learn_weights": False}, "Weights were not learned"),
        ({"learn_labels": False}, "Labels were not learned"),
        ({"augment": "none"}, "This run had no augmentation"),
        ({"shared_augment": True}, "All images share one row"),
        ({"symmetry": "mirror"}, "Images are also mirrored."),
        ({"belief_folds": 0, "start_epoch": 4}, "were not learned in this run"),
    ],
)
def test_what_was_not_learned_is_said(
    settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    short = {"epochs": 4, "belief_epochs": 2, **settings}
    text = page.write_report(make_run(tmp_path / "run", **short)).read_text()
    assert words in text


def test_places_that_are_no_finished_run_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run: there is no such folder"):
        page.write_report(tmp_path / "none")
    with pytest.raises(RunFolderError, match=r"is not a run: it has no config\.toml"):
        page.write_report(tmp_path)
    shutil.copy(run / "config.toml", tmp_path)
    with pytest.raises(RunFolderError, match="is not finished"):
        page.write_report(tmp_path)


def test_the_command_prints_the_path(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    result = CliRunner().invoke(app, ["report", str(run), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert str(out) in result.stdout
    assert out.stat().st_size > 50_000
    refused = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert refused.exit_code == 2
    assert "is not a run" in refused.stderr


def test_no_file_but_an_earlier_report_is_written_over(run: Path, tmp_path: Path) -> None:
    own = shutil.copytree(run, tmp_path / "run")
    points = (own / "points.parquet").read_bytes()
    refused = CliRunner().invoke(app, ["report", str(own), "--out", str(own / "points.parquet")])
    assert refused.exit_code == 2
    assert "points.parquet' exists and is no report" in refused.stderr
    assert (own / "points.parquet").read_bytes() == points
    for _ in range(2):
        page.write_report(own, tmp_path / "r.html")


def test_projection_keeps_groups_together_and_is_kept(run: Path) -> None:
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 40)
    features = rng.normal(size=(120, 8)) + 12 * np.eye(3, 8)[label]
    xy = project(features.astype(np.float32), seed=0)
    assert xy.min() == 0
    assert xy.max() == 1
    centres = np.stack([xy[label == c].mean(0) for c in range(3)])
    nearest = np.linalg.norm(xy[:, None] - centres, axis=-1).argmin(1)
    assert (nearest == label).mean() > 0.95
    assert project(np.zeros((1, 8)), 0).tolist() == [[0.5, 0.5]]
    assert project(np.zeros((50, 8)), 0).tolist() == [[0.5, 0.5]] * 50
