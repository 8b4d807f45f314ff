"""autodo audit: from a file to the points table, and every bad file refused in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from noisy_digits import digits
from typer.testing import CliRunner, Result

from autodo.cli import app

DATA = digits(count=200, trusted=60)


def table(x: np.ndarray, y: np.ndarray, **columns: object) -> pa.Table:
    return pa.table({"embedding": list(x), "label": y, **columns})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def both() -> pa.Table:
    """Train and trusted in one table, mixed: every fourth row or so is trusted."""
    x, y = np.concatenate([DATA.embeddings, DATA.trusted]), [*DATA.given, *DATA.trusted_labels]
    mixed = np.random.default_rng(1).permutation(260)
    names = np.array([f"img{i:03}.png" for i in range(260)])
    return table(x[mixed], np.array(y)[mixed], trusted=mixed >= 200, path=names[mixed])


@pytest.fixture
def files() -> None:
    pq.write_table(table(DATA.embeddings, DATA.given), "train.parquet")
    pq.write_table(table(DATA.trusted, DATA.trusted_labels), "trusted.parquet")


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert [line.split(":")[0].strip() for line in result.stderr.splitlines()] == [
        *("error", "why", "do")
    ]
    for word in words:
        assert word in result.stderr
    assert not Path("points.parquet").exists()


# What it reads and writes


def test_the_summary_counts_and_shows_the_surest(files: None) -> None:
    result = audit("train.parquet", "--trusted", "trusted.parquet")
    assert result.exit_code == 0, result.output
    points = pq.read_table("points.parquet")
    issues = [row for row in points.to_pylist() if row["is_label_issue"]]
    assert f"{len(issues)} of 200 labels look wrong" in result.stdout
    surest = sorted(issues, key=lambda row: row["label_score"])[:10]
    shown = [line.split()[0] for line in result.stdout.splitlines() if line[:1].isdigit()][1:]
    assert shown == [row["id"] for row in surest]
    # Measured: all ten of the surest.
    assert np.mean([DATA.wrong[row["index"]] for row in surest]) >= 0.9
    assert "points.parquet" in result.stdout.splitlines()[-1]


def test_where_no_label_looks_wrong_the_summary_says_what_to_look_at() -> None:
    clean = digits(count=200, trusted=60, noise=0.0)
    pq.write_table(table(clean.embeddings, clean.given), "train.parquet")
    pq.write_table(table(clean.trusted, clean.trusted_labels), "trusted.parquet")
    result = audit("train.parquet", "--trusted", "trusted.parquet")
    assert result.exit_code == 0, result.output
    assert "0 of 200 labels look wrong" in result.stdout
    assert "look at those with the lowest first" in result.stdout


def test_all_layouts_give_one_result(files: None) -> None:
    """Two files, one with marked rows, fixed-size lists, float16 and .npz: the same points."""
    assert audit("train.parquet", "--trusted", "trusted.parquet", "-q").output == ""
    expected = pq.read_table("points.parquet").drop_columns(["id"])

    x = np.concatenate([DATA.embeddings, DATA.trusted])
    y, marks = np.concatenate([DATA.given, DATA.trusted_labels]), np.arange(260) >= 200
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float16).ravel()), 64)
    pq.write_table(pa.table({"vec": fixed, "y": y, "ok": marks}), "one.parquet", row_group_size=50)
    np.savez(
        "all.npz", embeddings=DATA.embeddings.astype(np.float64), labels=DATA.given,
        trusted_embeddings=DATA.trusted, trusted_labels=DATA.trusted_labels,
    )  # fmt: skip
    np.savez("right.npz", features=DATA.trusted, targets=DATA.trusted_labels)
    for line in (
        ["one.parquet", "--trusted-column", "ok"],
        ["all.npz"],
        ["train.parquet", "--trusted", "right.npz"],
    ):
        result = audit(*line, "--overwrite", "-q")
        assert (result.exit_code, result.output) == (0, "")
        assert pq.read_table("points.parquet").drop_columns(["id"]).equals(expected), line


def test_ids_come_from_a_column_or_are_rows_of_the_file() -> None:
    pq.write_table(both(), "both.parquet")
    assert audit("both.parquet", "-q").exit_code == 0
    rows = both().to_pylist()
    points = pq.read_table("points.parquet").to_pylist()
    audited = [row for row in rows if not row["trusted"]]
    assert [p["id"] for p in points] == [row["path"] for row in audited]
    assert [p["given_label"] for p in points] == [row["label"] for row in audited]

    pq.write_table(both().drop_columns(["path"]), "both.parquet")
    assert audit("both.parquet", "-q", "--overwrite").exit_code == 0
    numbers = [str(i) for i, row in enumerate(rows) if not row["trusted"]]
    assert pq.read_table("points.parquet")["id"].to_pylist() == numbers


def test_a_column_of_numbers_names_the_points_too(files: None) -> None:
    numbers = np.arange(200) + 5000
    pq.write_table(table(DATA.embeddings, DATA.given, id=numbers), "train.parquet")
    assert audit("train.parquet", "--trusted", "trusted.parquet", "-q").exit_code == 0
    assert pq.read_table("points.parquet")["id"].to_pylist() == list(map(str, numbers))


def test_class_names_of_the_hub_are_shown_and_kept(files: None) -> None:
    names = [f"digit-{c}" for c in range(10)]
    feature = {"label": {"_type": "ClassLabel", "names": names}}
    named = table(DATA.embeddings, DATA.given).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": feature}})}
    )
    pq.write_table(named, "named.parquet")
    result = audit("named.parquet", "--trusted", "trusted.parquet")
    assert "digit-" in result.stdout
    kept = pq.read_schema("points.parquet").metadata[b"class_names"].decode()
    assert kept.split("\n") == names


def named(labels: np.ndarray) -> np.ndarray:
    """Their names; the alphabet has another order than the numbers."""
    return np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )[labels]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "npz"])
def test_labels_may_be_names(kind: str) -> None:
    names = sorted(named(np.arange(10)))
    for file, x, y in (
        ("train", DATA.embeddings, DATA.given),
        ("trusted", DATA.trusted, DATA.trusted_labels),
    ):
        called = named(y)
        pq.write_table(table(x, np.array([names.index(n) for n in called])), f"{file}.parquet")
        if kind == "npz":
            np.savez(f"{file}.npz", embeddings=x, labels=called)
            continue
        array = pa.array(called)
        array = array.dictionary_encode() if kind == "dictionary" else array.cast(kind)
        pq.write_table(table(x, array), f"{file}-named.parquet", row_group_size=50)
    audit("train.parquet", "--trusted", "trusted.parquet", "-q")
    expected = pq.read_table("points.parquet")

    end = ".npz" if kind == "npz" else "-named.parquet"
    result = audit(f"train{end}", "--trusted", f"trusted{end}", "--overwrite")
    assert "seven" in result.stdout
    points = pq.read_table("points.parquet")
    assert points.drop_columns(["given_name", "suggested_name"]).equals(expected)
    assert points.schema.metadata[b"class_names"].decode().split("\n") == names
    for label in ("given", "suggested"):
        numbers = points[f"{label}_label"].to_pylist()
        assert points[f"{label}_name"].to_pylist() == [names[k] for k in numbers]
    assert points["given_name"].to_pylist() == named(DATA.given).tolist()


def test_csv_has_the_names_too(files: None) -> None:
    pq.write_table(table(DATA.embeddings, named(DATA.given)), "train.parquet")
    pq.write_table(table(DATA.trusted, named(DATA.trusted_labels)), "trusted.parquet")
    audit("train.parquet", "--trusted", "trusted.parquet", "--out", "points.csv")
    assert csv.read_csv("points.csv")["given_name"].to_pylist() == named(DATA.given).tolist()


def test_the_files_of_a_folder_are_one_set(files: None) -> None:
    pq.write_table(both(), "both.parquet")
    audit("both.parquet", "-q")
    expected = pq.read_table("points.parquet")
    Path("parts").mkdir()
    for k, start in enumerate((0, 100, 101)):
        part = both().slice(start, (100, 1, 159)[k])
        pq.write_table(part, f"parts/train-0000{k}-of-00003.parquet")
    assert audit("parts", "-q", "--overwrite").output == ""
    assert pq.read_table("points.parquet").equals(expected)

    for file in Path("parts").iterdir():
        pq.write_table(pq.read_table(file).drop_columns(["path"]), file)
    audit("parts", "-q", "--overwrite")
    numbers = [str(i) for i, row in enumerate(both().to_pylist()) if not row["trusted"]]
    assert pq.read_table("points.parquet")["id"].to_pylist() == numbers


def test_parts_of_several_number_types_keep_their_fractions(files: None) -> None:
    x = DATA.embeddings.copy()
    x[100:] += np.float32(0.25)
    pq.write_table(table(x, DATA.given), "train.parquet")
    audit("train.parquet", "--trusted", "trusted.parquet", "-q")
    expected = pq.read_table("points.parquet")
    Path("parts").mkdir()
    pq.write_table(table(x[:100].astype(np.int8), DATA.given[:100]), "parts/0.parquet")
    pq.write_table(table(x[100:], DATA.given[100:]), "parts/1.parquet")
    audit("parts", "--trusted", "trusted.parquet", "--overwrite", "-q")
    assert pq.read_table("points.parquet").equals(expected)


def test_csv_is_written_on_request(files: None) -> None:
    result = audit("train.parquet", "--trusted", "trusted.parquet", "--out", "points.csv")
    assert result.exit_code == 0, result.output
    assert csv.read_csv("points.csv").num_rows == 200


# Bad input


def test_an_existing_table_is_left_alone(files: None) -> None:
    Path("mine.parquet").write_text("precious")
    line = ["train.parquet", "--trusted", "trusted.parquet", "--out"]
    refused(audit(*line, "mine.parquet"), "'mine.parquet' already exists", "--overwrite")
    assert Path("mine.parquet").read_text() == "precious"
    Path("folder.parquet").mkdir()
    refused(audit(*line, "folder.parquet", "--overwrite"), "it is a folder")
    refused(audit(*line, "nowhere/points.parquet"), "'nowhere' does not exist")
    refused(audit(*line, "points.xlsx"), ".parquet or .csv")


@pytest.mark.parametrize(
    ("line", "out"),
    [
        (["points.parquet"], "points.parquet"),
        (["points.parquet"], "link.parquet"),
        (["train.parquet", "--trusted", "points.parquet"], "points.parquet"),
        (["parts", "--trusted", "trusted.parquet"], "link.parquet"),
    ],
)
def test_what_is_read_is_not_replaced(files: None, line: list[str], out: str) -> None:
    Path("parts").mkdir()
    for file in ("points.parquet", "parts/0.parquet"):
        pq.write_table(both(), file)
    Path("link.parquet").symlink_to("parts/0.parquet" if line[0] == "parts" else "points.parquet")
    result = audit(*line, "--out", out, "--overwrite")
    assert result.exit_code == 2
    assert f"'{out}', a file that is read" in result.stderr
    assert pq.read_table("points.parquet").equals(pq.read_table("parts/0.parquet"))


def test_a_table_among_the_parts_that_are_read_is_refused() -> None:
    Path("parts/train").mkdir(parents=True)
    pq.write_table(both(), "parts/train/0.parquet")
    for folder in ("parts", "parts/train", "parts/../parts"):
        refused(
            audit("parts", "--out", f"{folder}/p.parquet"), "in the folder 'parts'", "a part of"
        )
    assert audit("parts", "--out", "parts/train/p.csv", "-q").exit_code == 0


def test_a_failed_write_leaves_nothing(files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "points.parquet")

    monkeypatch.setattr(pq, "write_table", full)
    before = set(Path().iterdir())
    refused(audit("train.parquet", "--trusted", "trusted.parquet", "-q"), "No space left")
    assert set(Path().iterdir()) == before


def test_missing_and_unknown_files(files: None) -> None:
    refused(audit("nowhere.parquet"), "'nowhere.parquet' does not exist")
    refused(audit("train.parquet", "--trusted", "no.npz"), "'no.npz' does not exist")
    shutil.copy("train.parquet", "train.feather")
    refused(audit("train.feather"), "no file of embeddings", ".parquet and .npz")
    Path("broken.parquet").write_bytes(b"PAR1 not really")
    refused(audit("broken.parquet"), "cannot be read as Parquet")
    Path("broken.npz").write_bytes(b"PK not really")
    refused(audit("broken.npz"), "cannot be read as .npz")
    np.save("one.npy", DATA.embeddings)
    shutil.copy("one.npy", "one.npz")
    refused(audit("one.npz"), "cannot be read as .npz")


def test_folders_that_are_no_set(files: None) -> None:
    Path("images/cat").mkdir(parents=True)
    refused(audit("images"), "'images' holds no .parquet files", "autodo fit")
    Path("two").mkdir()
    for split in ("train", "test"):
        shutil.copy("train.parquet", f"two/{split}.parquet")
    refused(audit("two"), "2 sets of Parquet files", "test.parquet, train.parquet")
    Path("parts").mkdir()
    pq.write_table(both(), "parts/0.parquet")
    pq.write_table(both().rename_columns(["vec", "label", "trusted", "path"]), "parts/1.parquet")
    refused(audit("parts"), "'parts/1.parquet' has no embedding column 'embedding'")
    pq.write_table(table(both()["embedding"].to_numpy(), both()["label"]), "parts/1.parquet")
    refused(audit("parts"), "'parts/1.parquet' has no trusted column 'trusted'")
    for column in ("trusted", "path"):
        pq.write_table(both().drop_columns([column]), "parts/0.parquet")
        pq.write_table(both(), "parts/1.parquet")
        refused(audit("parts"), f"has a column {column}, 'parts/0.parquet' has none")
    pq.write_table(both(), "parts/0.parquet")
    narrow = pa.array([row[:32] for row in both()["embedding"].to_pylist()])
    pq.write_table(both().set_column(0, "embedding", narrow), "parts/1.parquet")
    refused(audit("parts"), "row 0 of 'parts/1.parquet' has 32 numbers", "64")
    Path("parts/1.parquet").write_bytes(b"PAR1 not really")
    refused(audit("parts"), "'parts/1.parquet' cannot be read")


def test_names_beside_numbers(files: None) -> None:
    pq.write_table(table(DATA.trusted, named(DATA.trusted_labels)), "trusted.parquet")
    refused(
        audit("train.parquet", "--trusted", "trusted.parquet"), "names such as", "those of train"
    )
    pq.write_table(table(DATA.trusted, DATA.trusted_labels, kind=["a"] * 60), "trusted.parquet")
    line = ["train.parquet", "--trusted", "trusted.parquet"]
    assert audit(*line).exit_code == 0  # a column of text is not taken for labels by itself


def test_without_trusted_points(files: None) -> None:
    refused(audit("train.parquet"), "no column trusted", "--trusted")
    np.savez("part.npz", embeddings=DATA.embeddings, labels=DATA.given)
    refused(audit("part.npz"), "no arrays trusted_embeddings and trusted_labels", "--trusted")
    for value, word in ((True, "every"), (False, "no")):
        marked = table(DATA.embeddings, DATA.given, trusted=[value] * 200)
        pq.write_table(marked, "marked.parquet")
        refused(audit("marked.parquet"), f"marks {word} row")
    pq.write_table(both(), "both.parquet")
    refused(audit("both.parquet", "--trusted", "trusted.parquet"), "60 rows as trusted")


def test_columns_that_do_not_fit(files: None) -> None:
    line = ["train.parquet", "--trusted", "trusted.parquet"]
    refused(audit(*line, "--label-column", "lable"), "'lable'", "perhaps you mean label")
    refused(audit(*line, "--embedding-column", "label"), "int64", "a list of numbers")
    refused(audit(*line, "--label-column", "embedding"), "class numbers")
    refused(audit(*line, "--id-column", "embedding"), "a text or a number")
    marked = table(DATA.embeddings, DATA.given, trusted=DATA.given)
    pq.write_table(marked, "marked.parquet")
    refused(audit("marked.parquet"), "int64", "true or false")
    for labels in (DATA.given > 4, DATA.given / 1):
        for more in ({}, {"id": np.arange(200)}):
            pq.write_table(table(DATA.embeddings, labels, **more), "odd.parquet")
            kind = str(pa.array(labels).type)
            refused(
                audit("odd.parquet", *line[1:]), f"column label of 'odd.parquet' is of type {kind}"
            )
    deep = pa.array(DATA.embeddings.reshape(200, 8, 8).tolist())
    pq.write_table(pa.table({"embedding": deep, "label": DATA.given}), "deep.parquet")
    refused(audit("deep.parquet", *line[1:]), "column embedding", "list<element: list<")
    pq.write_table(pa.table({"label": DATA.given}), "bare.parquet")
    refused(audit("bare.parquet"), "no embedding column", "label (int64)")


def test_arrays_that_do_not_fit(files: None) -> None:
    def bad(**arrays: object) -> Result:
        held = {"embeddings": DATA.embeddings, "labels": DATA.given, **arrays}
        np.savez("bad.npz", **held)  # type: ignore[arg-type]
        return audit("bad.npz", "--trusted", "trusted.parquet")

    refused(bad(embeddings=DATA.embeddings.reshape(200, 8, 8)), "shape (200, 8, 8)", "reshape")
    refused(bad(labels=DATA.given > 4), "bools such as")
    refused(bad(class_names="cat,dog"), "class_names of 'bad.npz' has the shape ()", "one name per")


def test_rows_that_do_not_fit(files: None) -> None:
    rows = table(DATA.embeddings, DATA.given).to_pylist()
    kinds = pa.schema([("embedding", pa.list_(pa.float32())), ("label", pa.int64())])

    def spoilt(index: int, **row: object) -> Result:
        changed = [{**r, **row} if i == index else r for i, r in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(changed, kinds), "spoilt.parquet")
        return audit("spoilt.parquet", "--trusted", "trusted.parquet")

    refused(spoilt(17, label=None), "row 17", "has no label")
    refused(spoilt(17, embedding=None), "row 17", "has no embedding")
    refused(spoilt(17, embedding=[1.0] * 63), "row 17", "63 numbers", "64")
    refused(spoilt(17, embedding=[None] * 64), "train[17]", "not finite")
    refused(spoilt(17, embedding=[float("nan")] * 64), "train[17]", "not finite")
    refused(spoilt(17, label=-1), "negative")
    refused(spoilt(17, label=10**6), "reach 1,000,000, of 260 examples", "look like ids")
    mixed = both().to_pydict()
    place = next(i for i in range(50, 260) if not mixed["trusted"][i])
    mixed["embedding"][place][0] = float("nan")
    pq.write_table(pa.table(mixed), "mixed.parquet")
    refused(audit("mixed.parquet"), f"('{mixed['path'][place]}')", "not finite")
    pq.write_table(pa.table(mixed).drop_columns(["path"]), "mixed.parquet")
    refused(audit("mixed.parquet"), f"('{place}')", "not finite")
    pq.write_table(table(DATA.embeddings, DATA.given).slice(0, 0), "empty.parquet")
    refused(audit("empty.parquet", "--trusted", "trusted.parquet"), "no rows")


def test_sets_that_do_not_fit(files: None) -> None:
    line = ["train.parquet", "--trusted", "other.parquet"]
    pq.write_table(table(DATA.trusted[:, :32], DATA.trusted_labels), "other.parquet")
    refused(audit(*line), "64 numbers", "32")
    pq.write_table(table(DATA.trusted[:9], DATA.trusted_labels[:9]), "other.parquet")
    refused(audit(*line), "9 examples", "10 classes")
    np.savez("short.npz", embeddings=DATA.embeddings, labels=DATA.given[:5])
    refused(audit("short.npz", "--trusted", "trusted.parquet"), "200 embeddings and 5 labels")
