"""A comparison in words, and as a sheet."""

import csv
import json
from typing import Any

import pytest

from experiments.telling.comparing import said as saying
from experiments.telling.comparing.said import say, verdict
from experiments.telling.comparing.sheet import COLUMNS, write
from tests.experiments.telling.comparing.runs import held, keep, point
from tests.experiments.telling.rows import failed


def pair(tmp_path, ours, theirs, **given):
    a, b = keep(tmp_path / "a", *ours), keep(tmp_path / "b", *theirs, seed=500)
    return held(a, b, **given)


def all_of(said):
    return "\n".join([*said.above, *map("  ".join, (said.table.header, *said.table.rows)), *said.below])


def test_case_e14_both_directions_say_the_same_factor(tmp_path):
    fast, slow = point(us=80.0), point(us=100.0)
    assert verdict(pair(tmp_path / "1", [slow], [fast]).compared[0], 0.05) == "1.25x faster"
    assert verdict(pair(tmp_path / "2", [fast], [slow]).compared[0], 0.05) == "1.25x slower: regression"


def test_case_e14_an_enormous_gain_is_not_zero(tmp_path):
    result = pair(tmp_path, [point(us=1770.0)], [point(us=0.00344)])
    assert verdict(result.compared[0], 0.05) == "514,535x faster"
    assert "overall: b is 514,535x faster than a" in all_of(say(result))


def test_case_e16_the_mean_says_over_how_many_points_and_both_directions(tmp_path):
    ours = [point(us=100.0), point(us=100.0, context=131072), point(us=100.0, context=4096)]
    text = all_of(say(pair(tmp_path, ours, [point(us=200.0), point(us=50.0, context=131072)])))
    assert "geometric mean 1.000 over the 2 measured points ok on both sides of 3 in all" in text
    assert "b is faster at 1, slower at 1, not significantly different at 0" in text
    assert "only in a (1):\n  4k" in text


def test_case_e17_no_ratio_across_machines_or_threads_without_a_warning(tmp_path):
    ours, theirs = point(device="Xeon", threads=1), point(device="EPYC", threads=8, versions="torch 2.9.0")
    said = say(pair(tmp_path, [ours], [theirs], match="point"))
    above = "\n".join(said.above)
    assert "warning: device differs at 1 point: a has Xeon, b has EPYC; these ratios compare machines" in above
    assert "warning: threads differs at 1 point: a has 1, b has 8" in above
    assert "warning: versions differs at 1 point: a has torch 2.13.0, b has torch 2.9.0" in above
    assert "(warning: some across machines)" in "\n".join(said.below)
    assert "warning" not in all_of(say(pair(tmp_path / "same", [ours], [ours])))


def test_commits_are_what_a_comparison_is_about(tmp_path):
    text = all_of(say(pair(tmp_path, [point(commit="old")], [point(commit="new")])))
    assert "commit: a old, b new (1 point)" in text
    assert "warning" not in text


def test_only_what_differs_names_a_point_and_the_rest_is_said_once(tmp_path):
    rows = [point("gqa"), point("mha"), point("mha", scope="attend"), point("mha", context=8192)]
    said = say(pair(tmp_path, rows, rows))
    assert said.table.header[:3] == ("attention", "scope", "context")
    assert ("mha", "step", "8k") in [row[:3] for row in said.table.rows]
    assert "backend sdpa, model llama-3-8b" in "\n".join(said.above)


def test_rows_that_no_column_tells_apart_show_their_keys(tmp_path):
    rows = [point(key="one", seed=0), point(key="two", seed=1)]
    assert "key" in say(pair(tmp_path, rows, rows)).table.header


def test_across_says_what_the_sides_are_and_leaves_it_out_of_the_names(tmp_path):
    ours, theirs = point(key="x", backend="sdpa", kernel="k"), point(key="y", backend="eager", kernel="l")
    said = say(pair(tmp_path, [ours], [theirs], across=("backend",)))
    assert "backend: a sdpa, b eager (1 point)" in said.above
    assert "backend" not in said.table.header
    assert "warning" not in all_of(said)


def test_what_is_not_ok_is_listed_with_status_and_reason(tmp_path):
    wrong = failed("gqa", "step", 1024, "wrong", "relative error 0.5", key=point().key)
    text = all_of(say(pair(tmp_path, [point(), point("mha")], [wrong, point("mha")])))
    assert (
        "on both sides but not ok on one, so not compared (1):\n  gqa cold (a ok, b wrong: relative error 0.5)" in text
    )


def test_of_many_points_every_regression_is_shown_and_the_rest_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(saying, "SHOWN", 3)
    contexts = range(1, 11)
    theirs = [point(context=c, us=200.0 if c <= 5 else 100.0) for c in contexts]
    said = say(pair(tmp_path, [point(context=c) for c in contexts], theirs))
    assert len(said.table.rows) == 5
    assert set(said.table.moods) == {"bad"}
    assert said.below[0].startswith("(5 more points, none a regression")
    assert "regression: b is slower by more than 5 % at 5 of 10 points" in said.below


def test_a_run_whose_machine_changed_is_said(tmp_path):
    """Two of three second looks did not hold; the run was killed while it wrote a fourth."""
    a, b = (keep(tmp_path / side, point()) for side in "ab")
    looks = [("drift", True, "x1.01"), ("drift", False, "x0.84"), ("cold ceiling", False, "x1.11")]
    lines = [json.dumps({"check": name, "holds": holds, "numbers": numbers}) for name, holds, numbers in looks]
    (b / "checks.jsonl").write_text("\n".join([*lines, '{"check": "res']))
    (a / "checks.jsonl").write_text(lines[0] + "\n")
    above = say(held(a, b)).above
    assert [line for line in above if "second look" in line] == [
        "warning: b: at its end 2 of 3 second looks found another machine than at its start (drift: x0.84); "
        "what lies between is less sure than the intervals say"
    ]
    (records,) = b.glob("*/records.jsonl")
    for part in (records.parent, records):
        assert sum("2 of 3 second looks" in line for line in say(held(a, part)).above) == 1


def test_of_several_passes_over_a_run_those_count_that_a_row_is_of(tmp_path):
    """Two passes: the first one's machine changed, the second one's did not."""
    first, second = "2026-01-01T10:00:00+00:00", "2026-01-01T12:00:00+00:00"
    looks = [{"check": "drift", "holds": since is second, "numbers": "x1", "since": since} for since in (first, second)]

    def warned(*started: str) -> list[str]:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        keep(place, *(point(context=number + 1, started_at=at) for number, at in enumerate(started)))
        (place / "checks.jsonl").write_text("\n".join(map(json.dumps, looks)))
        return [line.split(" second looks")[0] for line in say(held(place, place)).above if "second looks" in line]

    early, late = "2026-01-01T10:00:00+00:00", "2026-01-01T12:30:00+00:00"
    assert warned(late) == []
    assert warned(early) == [f"warning: {side}: at its end 1 of 1" for side in "ab"]
    assert warned(early, late) == [f"warning: {side}: at its end 1 of 2" for side in "ab"]


def test_the_share_that_differs_beyond_the_threshold_is_said(tmp_path):
    theirs = [point(context=c, us=50.0 if c == 1 else 100.0) for c in range(1, 5)]
    text = all_of(say(pair(tmp_path, [point(context=c) for c in range(1, 5)], theirs)))
    assert "1 of 4 points (25.0 %) differ significantly by more than 5 %, 1 (25.0 %) by their whole interval" in text
    assert "no regression by more than 5 %" in text


def test_what_all_series_of_a_race_share_is_told_from_what_one_of_them_changed_by(tmp_path):
    """The machine is 1.3 times as slow at 1k and 1.1 times at 2k; there, MQA takes another 1.2 times that."""
    names, contexts = ("mha", "gqa", "mqa", "mla"), {1024: 1.3, 2048: 1.1}
    ours = [point(name, context=c, race=f"a{c}") for c in contexts for name in names]
    theirs = [
        point(name, context=c, race=f"b{c}", us=100.0 * slow * (1.2 if (name, c) == ("mqa", 2048) else 1.0))
        for c, slow in contexts.items()
        for name in names
    ]
    result = pair(tmp_path, ours, theirs)
    moved = [one for one in result.shared.beside if one.ratio > 1.1]
    assert [(one.b.attention, one.b.context) for one in moved] == [("mqa", 2048)]
    assert moved[0].ratio == pytest.approx(1.2, rel=0.02)
    assert result.shared.races == pytest.approx((1.3, 1.1))
    text = all_of(say(result))
    assert "8 of 8 points (100.0 %) differ significantly by more than 5 %" in text
    write(result, tmp_path / "sheet.csv")
    with (tmp_path / "sheet.csv").open() as file:
        beside = {(line["attention"], line["context"]): line["beside_race"] for line in csv.DictReader(file)}
    assert float(beside["mqa", "2048"]) == moved[0].ratio
    assert float(beside["mqa", "1024"]) == pytest.approx(1.0, rel=0.02)
    assert "1.100 to 1.300 of a's time; beside that 1 of 8 points (12.5 %) differ significantly" in text
    assert "against the others of its race (1):\n  mqa 2k 1.2" in text


@pytest.mark.parametrize("raw", [False, True])
def test_a_series_by_itself_and_rows_without_samples_share_nothing(tmp_path, raw):
    rows = [point("gqa", race="1"), point("mha", race="1" if not raw else "2"), point("mla", race=None)]
    result = held(keep(tmp_path / "a", *rows, raw=raw), keep(tmp_path / "b", *rows, raw=raw, seed=9))
    assert (result.shared.races, result.shared.beside) == ((), ())
    assert "share" not in all_of(say(result))


def test_two_series_of_one_race_share_what_the_machine_did_already(tmp_path):
    rows = [point(name, context=c, race="1", backend=b) for name in ("gqa", "mha") for c in (1, 2) for b in "ab"]
    ours, theirs = ([row for row in rows if row.backend == backend] for backend in "ab")
    assert pair(tmp_path, ours, theirs, across=("backend",)).shared.races == ()


def test_predicted_points_have_a_mean_of_their_own(tmp_path):
    def rows(us):
        nothing: dict[str, Any] = {"latency_us_ci_low": None, "latency_us_ci_high": None, "rounds": None}
        return [point(us=us), point("mla", us=4 * us, origin="predicted", **nothing)]

    text = all_of(say(pair(tmp_path, rows(100.0), rows(100.0))))
    assert "over the 1 measured points ok on both sides of 1 in all" in text
    assert "over the 1 predicted points" in text


def test_a_hint_where_matching_by_point_would_find_more(tmp_path):
    ours = [point(key="shared"), point("mha", key="x", threads=1)]
    theirs = [point(key="shared"), point("mha", key="y", threads=2)]
    assert "hint: match=point would match 2 points" in all_of(say(pair(tmp_path, ours, theirs)))


def test_the_sheet_has_a_line_for_every_point_of_either_side(tmp_path):
    crashed = failed("mha", "step", 1024, "crash", "killed", key=point("mha").key)
    result = pair(tmp_path, [point(), point("mha"), point("mla")], [point(us=125.0), crashed, point("mqa")])
    write(result, tmp_path / "deep" / "out.csv")
    with (tmp_path / "deep" / "out.csv").open(newline="", encoding="utf-8") as file:
        lines = {line["attention"]: line for line in csv.DictReader(file)}
    assert tuple(lines["gqa"]) == COLUMNS
    found = {name: line["found_in"] for name, line in lines.items()}
    assert found == {"gqa": "both", "mha": "both", "mla": "a", "mqa": "b"}
    assert float(lines["gqa"]["ratio"]) == pytest.approx(1.25)
    assert float(lines["gqa"]["ci_low"]) < 1.25 < float(lines["gqa"]["ci_high"])
    assert (lines["gqa"]["verdict"], lines["gqa"]["regression"]) == ("slower", "True")
    assert (lines["mha"]["ratio"], lines["mha"]["b_status"], lines["mha"]["b_us"]) == ("", "crash", "")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out.csv"]
