"""decisions.jsonl: append-only, whole after a kill, and what it makes of the labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from autodo.errors import InputError
from autodo.export.decisions import FILE, Decision, final_labels, read, standing
from autodo.review.log import Log

POINTS = pa.table(
    {
        "given_label": [0, 0, 1, 2, 2],
        "suggested_label": [1, 1, 1, 0, 2],
        "is_label_issue": [True, True, False, True, False],
    }
)


def decided(*made: tuple[int, str] | tuple[int, str, int]) -> dict[int, Decision]:
    return standing(
        Decision(index=d[0], action=d[1], label=d[2] if len(d) > 2 else None) for d in made
    )


def test_what_is_appended_is_read_in_order(tmp_path: Path) -> None:
    made = [
        Decision(index=3, action="accept"),
        Decision(index=1, action="label", label=2),
        Decision(index=3, action="undo"),
    ]
    with Log(tmp_path, count=5, num_classes=3) as log:
        for decision in made:
            log.add(decision)
    assert read(tmp_path, count=5, num_classes=3) == made
    assert standing(made) == {1: made[1]}


def test_a_line_cut_off_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    with Log(tmp_path, count=5, num_classes=3) as log:
        log.add(Decision(index=0, action="keep"))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"index": 1, "acti')
    assert [d.index for d in read(tmp_path, count=5, num_classes=3)] == [0]


def test_no_file_is_no_decision(tmp_path: Path) -> None:
    assert read(tmp_path, count=5, num_classes=3) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "is no decision"),
        ("[1]", "is no decision"),
        ('{"action": "keep"}', "is no decision"),
        ('{"index": 9, "action": "keep"}', "the index is 9"),
        ('{"index": true, "action": "keep"}', "the index is True"),
        ('{"index": 1, "action": "burn"}', "the action is 'burn'"),
        ('{"index": 1, "action": "label"}', "the label is None"),
        ('{"index": 1, "action": "label", "label": 3}', "the label is 3"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / FILE).write_text(f'{{"index": 0, "action": "keep"}}\n{line}\n')
    with pytest.raises(InputError, match="line 2") as caught:
        read(tmp_path, count=5, num_classes=3)
    assert words in str(caught.value)


def test_decisions_go_before_suggestions_before_given_labels() -> None:
    final = final_labels(
        POINTS, decided((0, "keep"), (2, "label", 2), (3, "accept"), (4, "unusable"))
    )
    assert final.labels.tolist() == [0, 1, 2, 0, 2]
    assert final.reviewed.tolist() == [True, False, True, True, False]
    assert final.usable.tolist() == [True] * 4 + [False]


def test_without_suggestions_only_decisions_change_a_label() -> None:
    final = final_labels(POINTS, decided((3, "accept")), suggestions=False)
    assert final.labels.tolist() == [0, 0, 1, 0, 2]


def test_a_label_beside_accept_is_the_one_that_was_accepted() -> None:
    """A later run may suggest another one; what the person saw counts."""
    assert final_labels(POINTS, decided((0, "accept", 2))).labels[0] == 2


def test_undo_takes_back_one_decision_at_a_time() -> None:
    made = [(0, "keep"), (0, "label", 2), (0, "undo"), (0, "undo"), (0, "undo")]
    assert decided(*made[:3])[0].action == "keep"
    assert decided(*made) == {}
    assert np.array_equal(final_labels(POINTS, {}).labels, [1, 1, 1, 0, 2])
