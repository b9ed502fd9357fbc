"""Shards: every point in exactly one of them, series of a race together, each shard in a folder of its own."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.door import Composed
from experiments.launcher import launch
from experiments.measuring.point import places
from experiments.plain import UNCLEAN
from experiments.record import Measurement
from experiments.records import CHECKS, load
from experiments.shard import Shard, part_folder, race_identity
from tests.experiments.builders import composed, series

MANY = [16, 24, 32, 40, 48, 56, 64, 72]


pytestmark = pytest.mark.usefixtures("pretended_machine")


def study(shard: str | None, name: str = "test") -> list[Composed]:
    conduct = {"shard": shard}
    return [
        composed(attention, name=name, conduct=conduct, context=MANY, scopes=["step"]) for attention in ("mha", "mqa")
    ]


def rows_of_shard(shard: str | None, name: str = "test") -> tuple[Measurement, ...]:
    assert launch(study(shard, name), "the command") == 0
    part = Shard.parse(shard)
    return load(Path("results", "runs", name, part_folder(part, None))).rows


@pytest.mark.parametrize(("text", "expected"), [("0/1", Shard(0, 1)), ("7/8", Shard(7, 8)), ("03/8", Shard(3, 8))])
def test_a_shard_is_i_of_n(text: str, expected: Shard) -> None:
    assert Shard.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["8/8", "0/0", "-1/4", "1", 1, "/8", "1/", "a/b", "1/2/3", "1.0/2", "", "../x/2", "१/२"]
)
def test_anything_else_is_refused_in_one_line(text: object) -> None:
    with pytest.raises(ValueError, match=r"^shard must be i/n with 0 <= i < n, .*; got .*$"):
        Shard.parse(text)


@given(identity=st.text(max_size=40), of=st.integers(1, 50))
def test_whatever_it_is_called_a_point_has_exactly_one_owner(identity: str, of: int) -> None:
    assert sum(Shard(index, of).owns(identity) for index in range(of)) == 1


def test_shards_are_of_about_one_size() -> None:
    owners = Counter(next(i for i in range(8) if Shard(i, 8).owns(str(n))) for n in range(8000))
    assert all(900 < owners[index] < 1100 for index in range(8)), owners


@pytest.mark.slow
def test_all_shards_together_are_the_run() -> None:
    whole = rows_of_shard(None, "whole")
    parts = [rows_of_shard(f"{index}/3") for index in range(3)]
    assert all(parts)
    assert Counter(row.key for part in parts for row in part) == Counter(row.key for row in whole)
    assert {row.key for row in load(Path("results/runs/test")).rows} == {row.key for row in whole}


@pytest.mark.slow
def test_attentions_at_a_point_race_in_one_shard() -> None:
    for index in range(3):
        races = {(row.context, row.race) for row in rows_of_shard(f"{index}/3")}
        assert len(races) == len({context for context, _ in races})
        rows = load(Path("results/runs/test", f"shard-{index}-of-3")).rows
        assert set(Counter(row.context for row in rows).values()) == {2}
        assert {row.interleave for row in rows} == {"resident"}


def test_a_points_shard_depends_on_nothing_but_itself() -> None:
    few, more = (places(series(context=contexts)) for contexts in ([16, 32], [16, 24, 32, 64]))
    assert {race_identity(where) for where in few} < {race_identity(where) for where in more}
    assert race_identity(places(series("mla", context=[16]))[0]) == race_identity(few[0])
    for other in (series(dtype="bf16"), series(backend="eager"), series(batch=2), series(timer={"rounds": 3})):
        assert race_identity(places(other)[0]) != race_identity(few[0])


def test_a_shard_writes_below_a_folder_of_its_own() -> None:
    rows_of_shard("1/3")
    run = Path("results/runs/test")
    assert [path.name for path in run.iterdir()] == ["shard-1-of-3"]
    assert (run / "shard-1-of-3" / ".lock").exists()
    assert {path.parent.name for path in run.rglob(CHECKS)} == {"shard-1-of-3"}
    assert len({str(part_folder(s, j)) for s in (None, Shard(0, 2), Shard(1, 2)) for j in (None, 0, 1)}) == 9


def test_a_shard_without_points_is_clean() -> None:
    empty = next(i for i in range(1000) if not any(Shard(i, 1000).owns(race_identity(w)) for w in places(series())))
    assert launch([composed(conduct={"shard": f"{empty}/1000"})], "the command") == 0
    with pytest.raises(FileNotFoundError):
        load(Path("results"))


def test_a_config_that_cannot_be_built_is_one_shards_row() -> None:
    for index in range(3):
        conduct = {"shard": f"{index}/3"}
        configs = [composed(conduct=conduct), composed("gqa", options={"num_kv_heads": 3}, conduct=conduct)]
        assert launch(configs, "the command") in (0, UNCLEAN)
    assert Counter(row.status for row in load(Path("results")).rows)["error"] == 1
