"""The cells: as many as the paper's tables have, with the numbers that it prints."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from shared_files import shared_path

from autodo.errors import InputError
from autodo.experiment.paper.cells import CELLS, METHODS, ON_TEST, find, of_table

TABLES = {
    "1": "tab:svhn_results",
    "2": "tab:cifar10_results",
    "3": "tab:cifar100_results",
    "4": "tab:imagenet_results",
    "5": "tab:test_overfit",
    "6": "tab:test_oversplit",
}


def test_every_table_has_as_many_cells_as_in_the_paper() -> None:
    counts = Counter(cell.table for cell in CELLS)
    assert counts == {"1": 32, "2": 32, "3": 32, "4": 10, "5": 6, "6": 9, "E": 4}
    assert set(METHODS) == {cell.method for cell in CELLS}


def test_places_that_share_a_folder_are_the_same_run() -> None:
    """Table 5 repeats three runs of Tables 1 to 3, the study of E one of Table 1."""
    runs: dict[str, set[tuple[object, ...]]] = {}
    for cell in CELLS:
        run = (cell.dataset, cell.distortion, cell.method, cell.lambda_from, cell.start_epoch)
        runs.setdefault(cell.folder, set()).add(run)
    assert all(len(same) == 1 for same in runs.values())
    assert len(CELLS) - len(runs) == 4


@pytest.mark.parametrize("table", TABLES)
def test_numbers_are_those_that_the_paper_prints(table: str) -> None:
    source = shared_path("paper.tex").read_text()
    label = source.index(rf"\label{{{TABLES[table]}}}")
    body = source[source.index(r"\midrule", label) : source.index(r"\bottomrule", label)]
    rows = [line for line in body.splitlines() if "&" in line]
    # Numbers follow the first "&": algorithm names have digits and citations of their own.
    printed = Counter(
        number.replace(r"\textbf{", "").replace("}", "").replace(r"\tiny$\pm$", "±")
        for row in rows
        for number in re.findall(
            r"(?:\\textbf\{)?\d+\.\d+\}?(?:\\tiny\$\\pm\$\d\.\d+)?", row.partition("&")[2]
        )
    )
    assert printed == Counter(str(cell.paper) for cell in of_table(table))


def test_rows_and_columns_are_not_swapped() -> None:
    """One number of each table, read in the paper by row and column."""
    assert str(find("svhn", "100-0.0", "aw").paper) == "6.1±0.22"
    assert str(find("cifar10", "1-0.1", "dada").paper) == "10.6±0.08"
    assert str(find("cifar100", "10-0.1", "aws").paper) == "39.6±0.06"
    assert str(find("imagenet", "10-0.1", "faa").paper) == "44.7"
    assert str(find("cifar10", "1-0.0", "aws-on-test").paper) == "5.11±0.12"
    assert str(find("cifar100", "1-0.0", "faa-on-all").paper) == "20.42±0.21"


def test_only_the_runs_of_table_5_estimate_on_test_and_all_say_so() -> None:
    on_test = [cell for cell in CELLS if cell.lambda_from == "test"]
    assert {cell.table for cell in on_test} == {"5"}
    assert len(on_test) == 3
    for cell in on_test:
        assert cell.note == ON_TEST
        assert cell.name.endswith("-on-test")
        assert cell.folder.endswith("-on-test")


def test_the_study_of_e_has_its_four_starts() -> None:
    assert [cell.start_epoch for cell in of_table("e")] == [10, None, 150, 190]
    assert find("svhn", "100-0.1", "aws-E190").start_epoch == 190


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (("svnh", "1-0.0", "aws"), ["data set 'svnh'", "nearest is svhn"]),
        (("SVHN", "1-0.0", "aws"), ["nearest is svhn"]),
        (("mnist", "1-0.0", "aws"), ["there are svhn, cifar10, cifar100, imagenet"]),
        (("svhn", "100-0.2", "aws"), ["distortion '100-0.2' of svhn", "100-0.1"]),
        (("svhn", "10-0.1", "aws"), ["there are 1-0.0, 100-0.0, 1-0.1, 100-0.1"]),
        (("svhn", "100-0.1", "asw"), ["method 'asw' of svhn 100-0.1", "nearest is aw or aws"]),
        (("imagenet", "10-0.0", "sha"), ["there are baseline, raa, faa, dada, aws"]),
        (("svhn", "", ""), ["no distortion of svhn is named", "there are 1-0.0"]),
        (("svhn", "1-0.0", ""), ["no method of svhn 1-0.0 is named", "aws-on-test"]),
    ],
)
def test_cells_that_do_not_exist(cell: tuple[str, str, str], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        find(*cell)
    for word in words:
        assert word in str(caught.value)
    assert "autodo paper --list" in caught.value.cure


def test_tables_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="no table '7'"):
        of_table("7")
