"""What a run keeps to be looked at: that it is true, bounded, and cannot run anything."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from made_runs import make_run, messy_digits, network
from PIL import Image
from safetensors.torch import load_file

import autodo
from autodo.data import Examples
from autodo.export.learned import Learned
from autodo.report import collect, pictures
from autodo.report.run import Run
from autodo.report.view import ViewFolder, load_baselines, save_baselines
from autodo.train.run_folder import RunFolder


def test_predictions_are_those_of_the_saved_network(run: Path) -> None:
    model = network()
    model.load_state_dict(load_file(RunFolder(run).model))
    seen = Run.open(run).predictions
    for name, examples in zip(("train", "trusted", "test"), messy_digits(), strict=True):
        p = model.eval()(examples.images).softmax(-1)
        assert seen[name]["predicted"].tolist() == p.argmax(-1).tolist()
        assert seen[name]["label"].tolist() == examples.labels.tolist()
        assert np.allclose(seen[name]["confidence"], p.amax(-1).detach(), atol=1e-6)


def test_test_error_of_the_view_is_that_of_the_metrics(run: Path) -> None:
    opened = Run.open(run)
    seen = opened.predictions["test"]
    error = float((seen["label"] != seen["predicted"]).mean())
    assert error == pytest.approx(opened.metrics[-1]["test_error"])


def test_features_keep_the_distances_of_the_networks_features(run: Path) -> None:
    model = network()
    model.load_state_dict(load_file(RunFolder(run).model))
    kept = load_file(ViewFolder(run).features)
    images = messy_digits()[1].images
    with torch.no_grad():
        features = model[:3](images)  # 24 features: all components are kept
    assert torch.equal(kept["trusted_index"], torch.arange(100))
    near, true = (torch.cdist(x.float(), x.float()) for x in (kept["trusted"], features))
    assert torch.allclose(near, true, atol=0.02 * float(true.max()))


def test_thumbnails_show_the_examples_pixel_by_pixel(run: Path) -> None:
    table = pq.read_table(ViewFolder(run).thumbnails)
    images = messy_digits()[0].images
    assert table.num_rows > 10
    for index, data in zip(*(table[c].to_pylist()[:20] for c in ("index", "image")), strict=True):
        shown = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
        assert (shown == (images[index, 0] * 255).round().numpy()).all()


def test_what_stands_out_is_bounded() -> None:
    n = 5000
    found = collect.standing_out(
        {
            "is_label_issue": np.ones(n, bool),
            "label_score": np.linspace(1, 0, n),
            "weight": np.linspace(0.5, 2, n),
        }
    )
    assert {k: len(v) for k, v in found.items()} == {"suspicious": 400, "raised": 100, "muted": 100}
    assert found["suspicious"][0] == found["raised"][0] == n - 1
    assert found["muted"][0] == 0


def test_kept_features_are_the_most_suspicious_and_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "KEPT_FEATURES", 10)
    score = np.linspace(0, 1, 100)
    kept = collect._kept(score, 100, seed=0)
    assert len(kept) == len(kept.unique()) == 10
    assert set(range(5)) <= set(kept.tolist())
    assert kept.tolist() == sorted(kept.tolist())
    assert not torch.equal(kept, collect._kept(score, 100, seed=1))


def test_the_map_has_points_of_every_set_and_at_most_five_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MAP_POINTS", {"test": 40, "trusted": 20, "train": 100})
    view = ViewFolder(make_run(tmp_path / "run"))
    sets = pq.read_table(view.map)["set"].to_pylist()
    assert {name: sets.count(name) for name in ("test", "trusted", "train")} == {
        "test": 40,
        "trusted": 20,
        "train": 40,
    }
    side = pictures.sheet_columns(100) * 8
    assert Image.open(view.sprite).size == (side, side)


def test_strips_begin_with_the_example_itself(run: Path) -> None:
    rows = pq.read_table(ViewFolder(run).strips).to_pylist()
    images = messy_digits()[0].images
    kinds = {(row["kind"], row["label"], row["index"]) for row in rows}
    assert {label for kind, label, _ in kinds if kind == "class"} == set(range(10))
    assert sum(kind == "example" for kind, _, _ in kinds) == collect.STRIP_EXAMPLES
    for row in rows:
        shown = np.asarray(Image.open(io.BytesIO(row["image"])).convert("L"))
        original = (images[row["index"], 0] * 255).round().numpy()
        if row["view"] == 0:
            assert (shown == original).all()
    views = [row["image"] for row in rows if row["view"] > 0]
    assert len(set(views)) > len(views) / 2


def test_lambda_holds_what_the_points_table_says(run: Path) -> None:
    learned, points = Learned.load(run), pq.read_table(RunFolder(run).points)
    q = learned.soft_labels
    given = learned.labels
    assert given.tolist() == points["given_label"].to_pylist()
    score = q.gather(1, given[:, None])[:, 0]
    assert np.allclose(score, np.asarray(points["label_score"]))
    assert np.allclose(learned.weights, np.asarray(points["weight"]))


def test_colour_and_normalised_images_are_shown(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(60, 3, 8, 8, generator=generator)
    labels = torch.arange(60) % 10
    data = Examples.from_arrays(images, labels)
    config = autodo.Config(epochs=2, batch_size=16, device="cpu")
    more = Examples.from_arrays(torch.randn(20, 3, 8, 8, generator=generator), labels[:20])
    autodo.fit(network(3), data, more, config=config, out=tmp_path / "run", progress=False)
    assert Image.open(ViewFolder(tmp_path / "run").sprite).mode == "RGB"


def test_large_images_become_small() -> None:
    picture = Image.open(io.BytesIO(pictures.thumbnail(torch.rand(3, 300, 200))))
    assert picture.size == (64, 96)


def test_an_unfinished_view_does_not_count(run: Path, tmp_path: Path) -> None:
    view = ViewFolder(tmp_path)
    view.begin()
    (view.path / ".map.webp.abc").touch()
    assert not view.exists
    view.begin()
    assert list(view.path.iterdir()) == []
    view.finish({"image_shape": [1, 8, 8]})
    assert view.exists
    assert json.loads(view.about.read_text())["image_shape"] == [1, 8, 8]


def test_baselines_come_back_and_the_best_is_first(run: Path, tmp_path: Path) -> None:
    (plain,) = load_baselines(run)
    assert plain.error == pytest.approx(18 / 28)
    save_baselines(tmp_path, [plain])
    assert load_baselines(tmp_path) == [plain]
    assert load_baselines(tmp_path / "none") == []
