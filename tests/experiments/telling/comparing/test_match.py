"""Which row is held against which, and what is said of those that are not."""

import pytest

from experiments.records import RECORDS
from experiments.telling.comparing.match import ACROSS, POINT, match
from experiments.telling.comparing.side import load_side
from tests.experiments.telling.comparing.runs import held, keep, point
from tests.experiments.telling.rows import failed


def test_points_are_matched_by_key_and_the_rest_is_listed(tmp_path):
    a = keep(tmp_path / "a", point("mha"), point("gqa"))
    b = keep(tmp_path / "b", point("gqa"), point("mla"))
    matched = held(a, b).matched
    assert [(x.row.attention, y.row.attention) for x, y in matched.pairs] == [("gqa", "gqa")]
    assert [entry.row.attention for entry in matched.only_a] == ["mha"]
    assert [entry.row.attention for entry in matched.only_b] == ["mla"]


def test_the_newest_row_of_a_key_wins_and_older_ones_are_counted(tmp_path):
    old, new = "2025-01-01T00:00:00+00:00", "2025-06-01T00:00:00+00:00"
    a = keep(tmp_path / "a", point(us=100.0, started_at=new), point(us=300.0, started_at=old), point("mha"))
    side = load_side("a", a)
    assert [entry.row.latency_us_p50 for entry in side.entries if entry.row.attention == "gqa"] == [100.0]
    assert side.superseded == 1


def test_samples_are_looked_for_beside_the_row_that_won(tmp_path):
    """Two runs below one folder hold the same key: the row of one must not meet the samples of the other."""
    old, new = "2025-01-01T00:00:00+00:00", "2025-06-01T00:00:00+00:00"
    keep(tmp_path / "a" / "first", point(us=300.0, started_at=old))
    keep(tmp_path / "a" / "second", point(us=100.0, started_at=new))
    (entry,) = load_side("a", tmp_path / "a").entries
    assert entry.file.parts[-3] == "second"
    assert entry.samples() is not None


@pytest.mark.parametrize("place", ["run", "run/gqa", f"run/gqa/{RECORDS}"])
def test_a_side_is_a_run_a_series_or_a_file(tmp_path, place):
    keep(tmp_path / "run", point())
    (entry,) = load_side("a", tmp_path / place).entries
    assert entry.samples() is not None


def test_rows_of_one_machine_are_paired_before_rows_of_two(tmp_path):
    a = keep(tmp_path / "a", point(device="Xeon"), point(device="EPYC", us=50.0))
    b = keep(tmp_path / "b", point(device="EPYC", us=51.0), point(device="Xeon", us=101.0))
    pairs = held(a, b).matched.pairs
    assert {(x.row.device, y.row.device) for x, y in pairs} == {("Xeon", "Xeon"), ("EPYC", "EPYC")}


def test_one_row_on_each_of_two_machines_is_paired_but_not_where_it_is_ambiguous(tmp_path):
    a = load_side("a", keep(tmp_path / "a", point(device="Xeon")))
    b = load_side("b", keep(tmp_path / "b", point(device="EPYC")))
    two = load_side("b", keep(tmp_path / "two", point(device="EPYC"), point(device="Arm")))
    assert len(match(a, b).pairs) == 1
    ambiguous = match(a, two)
    assert (ambiguous.pairs, len(ambiguous.only_a), len(ambiguous.only_b)) == ((), 1, 2)


def test_measured_and_predicted_rows_never_meet(tmp_path):
    a = load_side("a", keep(tmp_path / "a", point()))
    b = load_side("b", keep(tmp_path / "b", point(origin="predicted")))
    assert match(a, b).pairs == ()
    assert match(a, b, "point").pairs == ()


def test_by_point_threads_seed_and_key_may_differ_but_nothing_of_the_point(tmp_path):
    a = load_side("a", keep(tmp_path / "a", point(key="one", threads=1, seed=0)))
    same = load_side("b", keep(tmp_path / "same", point(key="two", threads=8, seed=1)))
    assert match(a, same).pairs == ()
    assert len(match(a, same, "point").pairs) == 1
    others = (point(key="two", backend="eager"), point(key="two", page_size=16), point(key="two", kv_dtype="int8"))
    for number, other in enumerate(others):
        assert match(a, load_side("b", keep(tmp_path / str(number), other)), "point").pairs == ()


def test_across_lets_one_group_differ(tmp_path):
    a = load_side("a", keep(tmp_path / "a", point(key="one", backend="sdpa")))
    b = load_side("b", keep(tmp_path / "b", point(key="two", backend="eager")))
    c = load_side("b", keep(tmp_path / "c", point(key="two", backend="eager", storage="paged", page_size=16)))
    assert len(match(a, b, across=("backend",)).pairs) == 1
    assert match(a, c, across=("backend",)).pairs == ()
    assert len(match(a, c, across=("backend", "storage")).pairs) == 1


def test_across_names_only_columns_of_a_point():
    assert {column for group in ACROSS.values() for column in group} <= set(POINT)


def test_case_e04_two_rows_of_a_side_for_one_point_are_refused_not_averaged(tmp_path):
    a = keep(tmp_path / "a", point(key="one", seed=0), point(key="two", seed=1))
    with pytest.raises(ValueError, match=r"a must hold one row per point; .* \(keys one, two\)"):
        held(a, a, match="point")


def test_a_point_that_is_not_ok_on_a_side_has_no_ratio(tmp_path):
    crashed = failed("gqa", "step", 1024, "crash", "killed", key=point().key)
    a, b = keep(tmp_path / "a", point(), point("mha")), keep(tmp_path / "b", crashed, point("mha"))
    result = held(a, b)
    assert [one.a.attention for one in result.compared] == ["mha"]
    assert [(x.row.status, y.row.status) for x, y in result.not_ok] == [("ok", "crash")]


def test_a_quarantined_time_is_not_compared(tmp_path):
    doubtful = point(status="quarantined", reason="ceiling=FAILED")
    a, b = keep(tmp_path / "a", point(), point("mha")), keep(tmp_path / "b", doubtful, point("mha"))
    assert [one.a.attention for one in held(a, b).compared] == ["mha"]


def test_torn_lines_are_said_with_their_side(tmp_path):
    a = keep(tmp_path / "a", point())
    with (a / "gqa" / RECORDS).open("a") as file:
        file.write('{"key": "torn')
    assert any(w.startswith("a: ") and "skipped a line" in w for w in held(a, a).a.warnings)
