"""Rows of quality: what they refuse, and how they are kept."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.scored import SCORED, Scored, append, perplexity, read
from tests.experiments.scores import scored, study


def test_a_row_comes_back_as_it_was_written() -> None:
    for row in study():
        assert Scored.from_json(row.to_json()) == row
        assert "\n" not in row.to_json()


def test_perplexity_is_exp_of_the_mean() -> None:
    assert perplexity([1.0, 3.0]) == math.exp(2)
    assert scored().tokens == 4 * 511


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"perplexity": 3.0}, "perplexity must be exp of the mean nll, 9.97"),
        ({"divergence": 0.5}, "divergence must be the mean kl, 0.0; got 0.5"),
        ({"kl": (0.0,)}, "nll and kl must have one value per window; got 4 and 1"),
        ({"nll": (), "kl": ()}, "one value per window; got 0 and 0"),
        ({"method": "magic"}, "method must be one of original, repeat, mean_pool, low_rank; got 'magic'"),
        ({"steps": 5}, "a row has losses where it has steps; got steps=5, loss_last=None"),
        ({"loss_last": 0.5}, "got steps=0, loss_last=0.5"),
        ({"layers": "30"}, "layers must be int; got '30'"),
        ({"exact": 1}, "exact must be bool; got 1"),
        ({"bytes_per_token": math.nan}, "bytes_per_token must be finite"),
        ({"nll": (1.0, math.inf, 1.0, 1.0)}, "nll must be finite"),
        ({"nll": [1.0]}, r"nll must be tuple; got \[1.0\]"),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    if changes.get("steps") == 5:
        changes = {**changes, "loss_last": None}
    with pytest.raises(ValueError, match=said):
        scored(**changes)


def test_of_one_key_the_last_row_counts_and_torn_lines_are_warned_of(tmp_path: Path) -> None:
    first, second = scored(seconds=1.0), scored(seconds=2.0)
    for row in (first, scored("mqa", 0.5), second):
        append(tmp_path, row)
    with (tmp_path / SCORED).open("a") as file:
        file.write('{"key": "torn')
    append(tmp_path, scored("mla (8 + 4)", 0.1))
    rows, warnings = read(tmp_path)
    assert [row.label for row in rows.values()] == ["gqa (original)", "mqa", "mla (8 + 4)"]
    assert rows[first.key] == second
    (warning,) = warnings
    assert f"{SCORED}:4: skipped a line" in warning


def test_a_folder_without_rows_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == ({}, [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"schema": 2}, "expected a score of schema 1; got"), ({"colour": "red"}, r"unknown columns \['colour'\]")],
)
def test_rows_of_another_schema_are_no_rows(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scored.from_json(json.dumps({**json.loads(scored().to_json()), **changes}))
    with pytest.raises(ValueError, match="expected a score"):
        Scored.from_json("[]")
