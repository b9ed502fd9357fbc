"""Rows of trainings: strict, whole, the last of each key."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.learned import LEARNED, Training, append, read
from tests.experiments.lessons import training


def test_a_row_comes_back_as_it_was() -> None:
    for row in (training(), training(task="text", pairs=None, chance=None), training(status="error", reason="lost")):
        assert Training.from_json(row.to_json()) == row


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "chess"}, "task must be one of"),
        ({"accuracy": 1.5, "curve": ((10, 0.97, 1.5),)}, "accuracy must be from 0 to 1; got 1.5"),
        ({"loss": float("nan")}, "loss must be finite"),
        ({"steps": True}, "steps must be int; got True"),
        ({"parameters": 0}, "parameters must be >= 1"),
        ({"reason": "why"}, "status ok has no reason"),
        ({"status": "error"}, "status error needs a reason"),
        ({"loss": None}, "status ok has all of"),
        ({"curve": ((9, 0.97, 0.97),)}, "curve must be [step, loss, accuracy] with rising steps"),
        ({"curve": ((10, 4.0, 0.1), (10, 0.97, 0.97))}, "curve must be [step, loss, accuracy] with rising steps"),
        ({"schema": 2}, "schema must be one of (1,)"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the message is looked at below
        training(**changes)
    assert said in str(error.value)


def test_a_line_that_is_no_row_is_a_warning_and_the_last_row_of_a_key_counts(tmp_path: Path) -> None:
    lost = training(seed=1, status="error", reason="lost")
    for row in (training(), lost):
        append(tmp_path, row)
    with (tmp_path / LEARNED).open("a") as file:
        file.write('{"schema":1,"key":"torn')
    append(tmp_path, replace(training(seed=1), seconds=9.0))
    rows, warnings = read(tmp_path)
    assert [(row.seed, row.status, row.seconds) for row in rows.values()] == [(0, "ok", 1.0), (1, "ok", 9.0)]
    assert len(warnings) == 1
    assert f"{LEARNED}:3: skipped a line" in warnings[0]


def test_a_folder_without_rows_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == ({}, [])


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"schema":1}', '{"schema":1,"colour":2}', training().to_json().replace("0.97", "NaN")]
)
def test_lines_of_others_are_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"training|JSON"):
        Training.from_json(line)
