"""A run that is started again does what is left, and nothing twice."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import launcher
from experiments.launcher import launch
from experiments.measuring import prepare as preparing
from experiments.measuring import worker as working
from experiments.measuring.measure import measure_point
from experiments.measuring.series import Series
from experiments.measuring.timed import Measured
from experiments.record import Measurement
from experiments.recorded import Recorded, Wanted
from experiments.records import RECORDS, load
from tests.experiments.builders import OneBench, PretendedDevice, bench, composed, device, pretend

FOLDER = Path("results/runs/test")


@pytest.fixture(autouse=True)
def pretended_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    on(monkeypatch, device())


def on(monkeypatch: pytest.MonkeyPatch, machine: PretendedDevice | Any) -> None:
    """From now on the run is on this machine."""
    pretend(machine, monkeypatch)
    monkeypatch.setattr(launcher, "Benches", lambda: OneBench(bench(machine)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every (attention, context) that is measured, in order; the second look at the first point is one of them."""
    seen: list[tuple[str, int]] = []

    def noted(entrants: Any, *rest: Any) -> list[Measured]:
        seen.extend((e.where.series.labels.attention, e.where.point.context) for e in entrants)
        return measure_point(entrants, *rest)

    monkeypatch.setattr(launcher, "measure_point", noted)
    return seen


def rows() -> tuple[Measurement, ...]:
    return load(Path("results")).rows


def step(attention: str = "gqa", context: Any = 16, resume: str = "missing", **changes: Any) -> Any:
    return composed(attention, scopes=["step"], context=context, conduct={"resume": resume}, **changes)


def broken(monkeypatch: pytest.MonkeyPatch, attention: str, error: Exception) -> None:
    """From now on this attention fails when it is prepared."""
    real = preparing.prepare

    def prepare(made: Series, *args: Any) -> Any:
        if made.labels.attention == attention:
            raise error
        return real(made, *args)

    monkeypatch.setattr(working, "prepare", prepare)


# missing


def test_what_is_there_is_not_measured_again(
    measured: list[tuple[str, int]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch([step(), step("mla")], "") == 0
    before = rows()
    measured.clear()
    capfd.readouterr()
    monkeypatch.setattr(launcher, "Crew", lambda *args: Idle())
    assert launch([step(), step("mla")], "") == 0
    assert measured == []
    assert rows() == before
    said = capfd.readouterr().err
    assert said == "rows: none; in results/runs/test; 2 rows were already there: 2 ok\n"


class Idle:
    """A crew of whom nothing is asked."""

    def of(self, group: object) -> list[Any]:
        raise AssertionError("workers were started")

    def dismiss(self) -> None:
        """Nobody is there."""


@pytest.mark.slow
def test_a_series_sits_out_the_points_that_it_has(measured: list[tuple[str, int]]) -> None:
    launch([step(context=[16, 32]), step("mla", [16])], "")
    measured.clear()
    assert launch([step(context=[16, 32, 64]), step("mla", [16, 32, 64])], "") == 0
    assert measured == [("mla", 32), ("gqa", 64), ("mla", 64), ("mla", 32)]  # the last: a second look at the first
    races = {(r.attention, r.context): r.race for r in rows()}
    assert len(rows()) == 6
    assert races["gqa", 64] == races["mla", 64] != races["mla", 32]


def test_a_point_is_there_if_all_of_its_rows_are(measured: list[tuple[str, int]]) -> None:
    launch([step()], "")
    measured.clear()
    assert launch([composed(scopes=["step", "attend"], context=16)], "") == 0
    assert measured == [("gqa", 16)]
    assert Counter(r.scope for r in rows()) == {"step": 2, "attend": 1}
    measured.clear()
    launch([composed(scopes=["step"], temperature=["cold", "warm"], context=16)], "")
    assert measured == [("gqa", 16)]


@pytest.mark.parametrize("change", [{"versions": "torch 1"}, {"name": "another"}])
def test_rows_of_other_libraries_or_another_device_are_not_fresh(
    change: dict[str, Any], measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch([step()], "")
    on(monkeypatch, moved(device(), **change))
    launch([step()], "")
    assert measured == [("gqa", 16)] * 2
    launch([step()], "")
    assert len(rows()) == len(measured) == 2


def test_another_host_with_the_same_device_goes_on(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch([step()], "")
    on(monkeypatch, moved(device(), host="other"))
    launch([step()], "")
    assert len(measured) == 1


def moved(machine: Any, **changes: Any) -> Any:
    for name, value in changes.items():
        object.__setattr__(machine, name, value)
    return machine


@pytest.mark.slow
def test_cold_rows_that_had_to_say_warm_are_there_and_asked_warm_ones_are_others(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose cache is unknown proves no row cold; one asked for warm is measured otherwise."""
    on(monkeypatch, device(last_level_cache=None))
    launch([step()], "")
    (row,) = rows()
    assert row.temperature == "warm"
    launch([step()], "")
    assert len(measured) == 1
    launch([step(temperature="warm")], "")
    assert len(measured) == 2
    launch([step(temperature="warm")], "")
    launch([step(timer={"rounds": 3}, temperature="warm")], "")
    launch([step(timer={"rounds": 3})], "")  # a warm row alone does not stand for a cold one
    assert len(measured) == 4


def test_a_torn_line_is_measured_again_and_said(
    measured: list[tuple[str, int]], capfd: pytest.CaptureFixture[str]
) -> None:
    launch([step(context=[16, 32])], "")
    (file,) = FOLDER.rglob(RECORDS)
    file.write_bytes(file.read_bytes()[:-50])
    measured.clear()
    assert launch([step(context=[16, 32])], "") == 0
    assert measured == [("gqa", 32)]
    assert "records.jsonl:2: skipped a line" in capfd.readouterr().err
    assert [r.context for r in rows()] == [16, 32]


def test_rows_of_other_parts_of_the_run_count(measured: list[tuple[str, int]]) -> None:
    launch([step()], "")
    (series,) = (p for p in FOLDER.iterdir() if p.is_dir())
    (FOLDER / "shard-0-of-2").mkdir()
    series.rename(FOLDER / "shard-0-of-2" / series.name)
    launch([step()], "")
    assert len(measured) == 1


def test_the_same_point_twice_in_a_sweep_is_measured_once(measured: list[tuple[str, int]]) -> None:
    assert launch([step(context=[16, 32]), step(context=[32, 16]), step(context=[64])], "") == 0
    assert Counter(measured[:-1]) == {("gqa", 16): 1, ("gqa", 32): 1, ("gqa", 64): 1}
    assert len(rows()) == 3


def test_interrupted_points_are_measured_and_their_tries_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: Any) -> list[Measured]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "measure_point", stopped)
        assert [launch([step()], "") for _ in range(2)] == [130, 130]
    assert launch([step()], "") == 0
    assert [(r.status, r.attempts) for r in rows()] == [("interrupted", 1), ("interrupted", 2), ("ok", 3)]


# what failed


def test_failures_are_kept_unless_asked_for(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, "mla", MemoryError("no more"))
    both = [step(), step("mla")]
    assert launch(both, "") == 3
    measured.clear()
    assert launch(both, "") == 3  # nothing was done, but not all rows are clean
    assert measured == []
    assert "2 rows were already there: 1 ok, 1 oom" in capfd.readouterr().err


def test_failed_measures_what_is_not_clean(measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        broken(patch, "mla", RuntimeError("no"))
        launch([step(), step("mla")], "")
    measured.clear()
    assert launch([step(resume="failed"), step("mla", resume="failed")], "") == 0
    assert measured == [("mla", 16)]
    assert [(r.status, r.attempts) for r in rows() if r.attention == "mla"] == [("error", 1), ("ok", 2)]
    launch([step(resume="failed"), step("mla", resume="failed")], "")
    assert len(measured) == 1


def test_all_measures_everything_and_adds_rows(measured: list[tuple[str, int]]) -> None:
    for _ in range(2):
        assert launch([step(resume="all")], "") == 0
    assert len(measured) == 2
    assert [r.attempts for r in rows()] == [1, 2]
    assert len({r.key for r in rows()}) == 1


def test_none_refuses_points_that_are_there(measured: list[tuple[str, int]]) -> None:
    assert launch([step(resume="none")], "") == 0
    assert launch([step(context=32, resume="none")], "") == 0  # another point
    with pytest.raises(ValueError, match="results/runs/test already holds rows of this run, and resume=none"):
        launch([step(context=[32, 64], resume="none")], "")
    assert measured == [("gqa", 16), ("gqa", 32)]


def test_a_config_that_cannot_be_built_has_one_row() -> None:
    wrong = composed(options={"num_kv_heads": 3}, conduct={"resume": "missing"})
    for _ in range(2):
        assert launch([step(), wrong], "") == 3
    assert Counter(r.status for r in rows()) == {"ok": 1, "error": 1}


def test_refusals_are_asked_again_and_written_once(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arithmetic costs nothing, and what did not fit may fit now."""
    on(monkeypatch, device(free=100))
    for _ in range(2):
        assert launch([step()], "") == 0
    assert [(r.status, r.attempts) for r in rows()] == [("too_large", 0)]
    on(monkeypatch, device())
    launch([step()], "")
    assert [(r.status, r.attempts) for r in rows()] == [("too_large", 0), ("ok", 1)]
    assert len(measured) == 1


def test_scopes_that_are_refused_as_a_whole_are_written_once() -> None:
    for _ in range(2):
        assert launch([composed(scopes=["absorb"], context=16)], "") == 0
    assert [r.status for r in rows()] == ["refused"]


# what counts


def append(name: str, *lines: Measurement) -> None:
    path = Path("kept") / name / RECORDS
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(line.to_json() + "\n" for line in lines)


@pytest.fixture
def row() -> Measurement:
    launch([step()], "")
    (one,) = rows()
    return replace(one, key="k")


def failed(row: Measurement, status: str, **changes: Any) -> Measurement:
    clocked = ("latency_", "bandwidth", "tflops", "roofline", "first_call", "warmup", "race", "stop")
    nothing: dict[str, Any] = {name: None for name in row.columns() if name.startswith(clocked)} | {
        "samples": None,
        "rounds": None,
    }
    return replace(row, status=status, reason="x", **nothing, **changes)


def settled(resume: str) -> bool:
    return Recorded.read(Path("kept")).kept([Wanted("k", None, "pretended", "torch 0")], resume) is not None


STATUSES = {
    "ok": "missing failed",
    "refused": "missing failed",
    "too_large": "missing failed",
    "wrong": "missing",
    "oom": "missing",
    "timeout": "missing",
    "crash": "missing",
    "error": "missing",
    "quarantined": "missing",
    "interrupted": "",
}


@pytest.mark.parametrize("status", STATUSES)
def test_which_statuses_settle_a_point(row: Measurement, status: str) -> None:
    if status == "quarantined":
        append("a", replace(row, status=status, reason="x"))
    else:
        append("a", row if status == "ok" else failed(row, status))
    assert [resume for resume in ("missing", "failed", "all") if settled(resume)] == STATUSES[status].split()


def test_a_point_whose_worker_was_lost_before_is_not_settled(row: Measurement) -> None:
    append("a", failed(row, "crash", attempts=0))
    assert not settled("missing")
    append("a", failed(row, "crash", attempts=1))
    assert settled("missing")
    append("a", failed(row, "crash", attempts=1))  # lost before it once more
    assert not settled("missing")


def test_of_one_file_the_last_row_counts_whatever_the_clock_said(row: Measurement) -> None:
    append("a", replace(row, started_at="2031-01-01T00:00:00+00:00"), failed(row, "interrupted"))
    assert not settled("missing")
    append("b", row)
    assert settled("missing")


def test_rows_from_before_tries_were_counted_count_as_one_each(row: Measurement) -> None:
    old = replace(row, attempts=None)
    append("a", old, failed(old, "too_large"), old)
    assert Recorded.read(Path("kept")).continued(replace(row, attempts=1)).attempts == 3


def test_a_clock_that_has_gone_back_does_not_make_the_newest_row_lose(
    row: Measurement,
) -> None:
    (file,) = FOLDER.rglob(RECORDS)
    ahead = "2031-01-01T00:00:00+00:00"
    raw = json.loads(file.read_text()) | {"started_at": ahead}
    file.write_text(json.dumps(raw) + "\n")
    launch([step(resume="all")], "")
    assert [r.started_at for r in rows()] == [ahead, ahead]  # of equally old ones the last one wins everywhere


@pytest.mark.parametrize(
    ("conduct", "message"),
    [
        ({"resume": "some"}, "resume must be one of missing, failed, all, none; got 'some'"),
        ({"resume": None}, "resume must be one of missing, failed, all, none; got None"),
        ({"resume": False}, "resume must be one of missing, failed, all, none; got False"),  # YAML's no
        ({"fail_fast": "yes"}, "fail_fast must be true or false; got 'yes'"),
        ({"plan": 1}, "plan must be true or false; got 1"),
    ],
)
def test_settings_that_cannot_be(conduct: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        launch([composed(conduct=conduct)], "")
    assert list(tmp_path.iterdir()) == []
