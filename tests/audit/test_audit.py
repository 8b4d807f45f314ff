"""autodo.audit: what it finds, what it takes, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from noisy_digits import Digits, digits
from sklearn.metrics import average_precision_score, roc_auc_score

import autodo
from autodo.auditing import audit as module
from autodo.auditing.belief import Learned, learn
from autodo.auditing.embeddings import Scale
from autodo.auditing.worth import Worth
from autodo.errors import InputError
from autodo.implicit.head import head_hypergradient
from autodo.implicit.solvers import ConjugateGradient

DATA = digits()
QUICK = {"rounds": 1, "folds": 2}


def run(data: Digits = DATA, **options: object) -> pa.Table:
    given = {"progress": False, **options}
    return autodo.audit(data.embeddings, data.given, data.trusted, data.trusted_labels, **given)


@pytest.fixture(scope="module")
def points() -> pa.Table:
    return run()


@pytest.fixture(scope="module")
def quick() -> pa.Table:
    return run(**QUICK)


def test_wrong_labels_have_the_lowest_scores(points: pa.Table) -> None:
    suspicion = -points["label_score"].to_numpy()
    # Measured over seeds 0 to 4: AUC 0.9961 to 0.9994, average precision 0.986 to 0.998.
    assert roc_auc_score(DATA.wrong, suspicion) > 0.993
    assert average_precision_score(DATA.wrong, suspicion) > 0.97


def test_suggestions_mend_most_wrong_labels_and_few_right_ones(points: pa.Table) -> None:
    suggested = points["suggested_label"].to_numpy()
    # Measured over seeds 0 to 4: 0.83 to 0.89 of the wrong, at most 0.016 of the right.
    assert (suggested[DATA.wrong] == DATA.true[DATA.wrong]).mean() > 0.75
    assert (suggested[~DATA.wrong] != DATA.true[~DATA.wrong]).mean() < 0.03


def test_labels_moved_to_the_next_class_are_found() -> None:
    given = np.where(DATA.wrong, (DATA.true + 1) % 10, DATA.true)
    suspicion = -run(replace(DATA, given=given))["label_score"].to_numpy()
    assert roc_auc_score(DATA.wrong, suspicion) > 0.985  # 0.996 to 1.000 over seeds 0 to 4


def test_clean_labels_are_left_alone() -> None:
    clean = digits(noise=0.0)
    # Measured over seeds 0 to 4: none.
    assert np.mean(run(clean)["is_label_issue"].to_numpy()) < 0.02


def test_the_table_is_that_of_a_run(points: pa.Table) -> None:
    assert points.schema.names == [
        *("index", "id", "given_label", "suggested_label", "label_score"),
        *("is_label_issue", "weight"),
    ]
    assert points["given_label"].to_pylist() == DATA.given.tolist()
    assert points["id"].to_pylist() == [str(i) for i in range(400)]
    issues = points["suggested_label"].to_numpy() != DATA.given
    assert points["is_label_issue"].to_pylist() == issues.tolist()
    scores, weights = points["label_score"].to_numpy(), points["weight"].to_numpy()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (weights > 0).all()
    assert weights.std() > 0.01
    assert points.schema.metadata[b"class_names"].decode().split("\n") == list("0123456789")


def test_the_same_seed_gives_the_same_table(quick: pa.Table) -> None:
    torch.manual_seed(5)
    assert run(**QUICK).equals(quick)
    assert not run(**QUICK, seed=1).equals(quick)


@pytest.mark.parametrize("kind", ["float16", "float64", "tensor", "bfloat16", "map"])
def test_every_kind_of_array_is_taken(kind: str, quick: pa.Table, tmp_path: Path) -> None:
    """Pixels are whole numbers to 16, which all of them hold."""
    if kind in ("float16", "float64"):
        data = replace(DATA, embeddings=DATA.embeddings.astype(kind))
    elif kind == "map":
        np.save(tmp_path / "x.npy", DATA.embeddings)
        data = replace(DATA, embeddings=np.load(tmp_path / "x.npy", mmap_mode="r"))
    else:
        tensor = torch.from_numpy(DATA.embeddings)
        data = replace(DATA, embeddings=tensor.bfloat16() if kind == "bfloat16" else tensor)
    assert run(data, **QUICK).equals(quick)


def test_the_order_in_memory_changes_no_bit() -> None:
    x = DATA.embeddings + np.float32(0.1) * np.sqrt(DATA.embeddings)
    columns = replace(
        DATA, embeddings=np.asfortranarray(x), trusted=np.asfortranarray(DATA.trusted)
    )
    assert run(columns, **QUICK).equals(run(replace(DATA, embeddings=x), **QUICK))


def test_points_beyond_the_sample_are_judged_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIT_POINTS", 150)
    suspicion = -run()["label_score"].to_numpy()
    assert roc_auc_score(DATA.wrong, suspicion) > 0.985  # 0.993 to 0.996 over seeds 0 to 4


def test_classes_that_do_not_occur_are_never_suggested(quick: pa.Table) -> None:
    data = replace(DATA, given=DATA.given * 3, trusted_labels=DATA.trusted_labels * 3)
    points = run(data, num_classes=40, **QUICK)
    assert set(points["suggested_label"].to_pylist()) <= set(range(0, 30, 3))
    assert (
        points["suggested_label"].to_numpy().tolist()
        == (3 * quick["suggested_label"].to_numpy()).tolist()
    )


def test_one_trusted_point_of_each_class_is_enough_to_run() -> None:
    few = replace(DATA, trusted=DATA.trusted[:10], trusted_labels=DATA.trusted_labels[:10])
    suspicion = -run(few)["label_score"].to_numpy()
    assert np.isfinite(suspicion).all()
    assert roc_auc_score(DATA.wrong, suspicion) > 0.985  # 0.993 to 0.998 over seeds 0 to 4


def test_a_single_point_can_be_audited() -> None:
    one = replace(DATA, embeddings=DATA.embeddings[:1], given=DATA.given[:1])
    (row,) = run(one).to_pylist()
    assert 0 <= row["label_score"] <= 1
    assert row["weight"] > 0


def test_constant_columns_do_no_harm(quick: pa.Table) -> None:
    def widened(x: np.ndarray) -> np.ndarray:
        return np.hstack([x, np.full((len(x), 3), 1e4, np.float32)])

    data = replace(DATA, embeddings=widened(DATA.embeddings), trusted=widened(DATA.trusted))
    np.testing.assert_allclose(
        run(data, **QUICK)["label_score"].to_numpy(), quick["label_score"].to_numpy(), atol=0.05
    )


def test_embeddings_that_say_nothing_leave_the_given_labels() -> None:
    rng = np.random.default_rng(0)
    noise = replace(
        DATA,
        embeddings=rng.normal(size=(400, 16)),
        trusted=rng.normal(size=(100, 16)),
        given=DATA.true,
    )
    assert np.mean(run(noise)["is_label_issue"].to_numpy()) < 0.02  # none


# Worth


@pytest.fixture(scope="module")
def learned() -> tuple[Learned, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    x, t = torch.from_numpy(DATA.embeddings), torch.from_numpy(DATA.trusted)
    scale = Scale.of(torch.cat([x, t]))
    x, t = scale(x), scale(t)
    given, right = torch.from_numpy(DATA.given), torch.from_numpy(DATA.trusted_labels)
    return learn(x, given, t, right, folds=3, rounds=1, seed=0), x, given, t, right


def test_worth_in_chunks_is_the_hypergradient_of_the_whole(learned) -> None:  # type: ignore[no-untyped-def]
    result, x, given, t, right = learned
    log_q = result.labels(result.stacked.belief(x, result.fold), given)
    worth = Worth(result, x, given, t, right)
    parts = [
        worth(*part)
        for part in zip(x.split(50), log_q.split(50), result.fold.split(50), strict=True)
    ]
    expected = torch.zeros(len(x))
    for k in range(3):
        seen, held = result.fold != k, result.trusted_fold == k
        whole = head_hypergradient(
            x[seen], result.heads.weight[k], result.heads.bias[k],
            torch.zeros(int(seen.sum())), log_q[seen], t[held], right[held],
            solver=ConjugateGradient(steps=20, damping=0.1), loss="kl",
            logit_adjustment=result.shift,
        )  # fmt: skip
        expected[seen] -= whole.weight_logits * int(seen.sum()) / 2
    torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-3, atol=1e-5)


# Bad input


def refused(*words: str, **changes: object) -> None:
    options = {k: changes.pop(k) for k in list(changes) if k not in Digits.__dataclass_fields__}
    with pytest.raises(InputError) as caught:
        run(replace(DATA, **changes), **options)
    for word in words:
        assert word in str(caught.value)


def test_numbers_that_are_not_finite_are_named() -> None:
    bad = DATA.embeddings.copy()
    bad[7, 3], bad[300, 0] = np.nan, np.inf
    refused("2 embeddings of train", "train[7]", embeddings=bad)
    refused("1 embedding of trusted", "trusted[0]", trusted=np.where(
        np.arange(100)[:, None] == 0, np.nan, DATA.trusted
    ))  # fmt: skip


def test_rows_whose_sum_overflows_are_no_error() -> None:
    huge = DATA.embeddings * np.float32(1e37)
    trusted = DATA.trusted * np.float32(1e37)
    points = run(replace(DATA, embeddings=huge, trusted=trusted), **QUICK)
    assert roc_auc_score(DATA.wrong, -points["label_score"].to_numpy()) > 0.97


def test_widths_lengths_and_shapes_that_do_not_fit() -> None:
    refused("64 numbers", "trusted 63", "same network", trusted=DATA.trusted[:, 1:])
    refused("400 embeddings and 399 labels", given=DATA.given[1:])
    refused("shape (400, 8, 8)", "reshape", embeddings=DATA.embeddings.reshape(400, 8, 8))
    refused("shape (0, 64)", embeddings=DATA.embeddings[:0], given=DATA.given[:0])
    refused("3 ids for 400", ids=["a", "b", "c"])


def test_classes_that_trusted_lacks() -> None:
    some = DATA.trusted_labels != 3
    refused(
        "10 classes", "no trusted example of class 3",
        trusted=DATA.trusted[some], trusted_labels=DATA.trusted_labels[some],
    )  # fmt: skip
    refused(
        "trusted has 9 examples but train has 10 classes",
        trusted=DATA.trusted[:9], trusted_labels=DATA.trusted_labels[:9],
    )  # fmt: skip
    refused(
        "trusted has only class 0", trusted_labels=DATA.trusted_labels * 0, given=DATA.given * 0
    )


def test_labels_that_are_no_class_numbers() -> None:
    refused("labels of train are not class numbers", given=DATA.given / 2)
    refused("outside 0 .. 4", num_classes=5)
    refused("negative", given=np.where(DATA.given == 4, -1, DATA.given))
    refused("3 class names", num_classes=10, class_names=["a", "b", "c"])


@pytest.mark.parametrize("setting", [{"rounds": 0}, {"folds": 1}, {"weight_lr": -1.0}])
def test_settings_out_of_range(setting: dict[str, float]) -> None:
    (name,) = setting
    refused(f"{name} is {setting[name]}", **setting)


def test_a_row_that_dwarfs_all_others_is_told() -> None:
    embeddings = np.array(DATA.embeddings)
    embeddings[5] *= 1e5
    with pytest.warns(UserWarning, match=r"1 embedding of train .* 1,000 times .* train\[5\]"):
        run(replace(DATA, embeddings=embeddings), **QUICK)
