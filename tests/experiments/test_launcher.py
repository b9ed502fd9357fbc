"""All series of a run: what lands where, what a failure leaves behind, and the exit code."""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import launcher
from experiments.launcher import launch
from experiments.measuring import prepare as preparing
from experiments.measuring import worker as working
from experiments.measuring.measure import measure_point
from experiments.measuring.messages import Taken
from experiments.measuring.series import Series
from experiments.measuring.timed import Measured
from experiments.measuring.workload import Cell
from experiments.plain import INTERRUPTED
from experiments.record import STATUSES
from experiments.records import CHECKS, load
from experiments.runfolder import locked
from tests.experiments.builders import (
    OneBench,
    Scripted,
    bench,
    ceilings,
    composed,
    device,
    pretend,
    rows_of,
    series,
)


@pytest.fixture(autouse=True)
def pretended_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(device(), monkeypatch)
    monkeypatch.setattr(launcher, "Benches", OneBench)


def test_a_run_stores_rows_and_samples_by_series(tmp_path: Path) -> None:
    code = launch([composed("gqa"), composed("mla", batch=2)], "the command")
    assert code == 0
    run = tmp_path / "results" / "runs" / "test"
    folders = sorted(p.name for p in run.iterdir() if p.is_dir())
    assert [name.rsplit("-", 1)[0] for name in folders] == [
        "gqa-contiguous-sdpa-tiny-fp32-tp1",
        "mla-contiguous-sdpa-tiny-fp32-tp1",
    ]
    rows = load(run).rows
    assert Counter(r.attention for r in rows) == {"gqa": 4, "mla": 4}
    for row in rows:
        assert (row.status, row.command) == ("ok", "the command")
        assert row.series in folders
        us = np.load(run / row.series / "samples" / f"{row.key}.npy", allow_pickle=False)
        assert us.shape == (row.rounds, 2)
        assert np.median(us) == row.latency_us_p50
    assert len([path for path in run.rglob("*.npy") if not path.stem.endswith(".again")]) == 8
    assert load(run).warnings == ()


def test_if_nothing_can_be_built_nothing_is_written(tmp_path: Path) -> None:
    configs = [composed("gqa", options={"num_kv_heads": 3}), composed("gqa", context="12q")]
    with pytest.raises(ValueError, match="got num_q_heads=4, num_kv_heads=3"):
        launch(configs, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [{"name": "../x"}, {"name": None}, {"results": None}, {"tp": "x"}, {"context": 0}])
def test_a_single_bad_config_writes_nothing(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        launch([composed(**bad)], "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["name", "results"])
def test_one_run_writes_one_folder(tmp_path: Path, what: str) -> None:
    swept: list[dict[str, Any]] = [{what: "a"}, {what: "b"}]
    with pytest.raises(
        ValueError, match=f"one run writes one folder, in one way: {what} cannot be swept; got 'a', 'b'"
    ):
        launch([composed(**s) for s in swept], "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "runs" / "test"
    with locked(folder):
        with pytest.raises(ValueError, match=r"another run \(pid \d+\); wait for it or choose a folder with name="):
            launch([composed()], "")
        assert [p.name for p in folder.iterdir()] == [".lock"]
    assert launch([composed(scopes=["attend"], context=16)], "") == 0


# exit codes


@pytest.mark.parametrize("status", STATUSES)
def test_the_exit_code_says_whether_all_rows_are_clean(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (ok,) = rows_of(series(context=16, scopes=["attend"]), monkeypatch)
    changed = {**ok.columns(), "status": status, "reason": None if status == "ok" else "x"}
    if status not in ("ok", "quarantined"):
        clocked = ("latency_", "bandwidth", "tflops", "roofline", "first_call", "warmup", "race", "stop")
        changed |= {name: None for name in changed if name.startswith(clocked)} | {"samples": None, "rounds": None}
    monkeypatch.setattr(launcher, "measure_point", lambda *args: [Measured((type(ok)(**changed), ok), {})])
    assert launch([composed(context=16)], "") == (0 if status in ("ok", "refused", "too_large") else 3)
    assert [r.status for r in load(Path("results")).rows] == [status, "ok"]


def test_refused_and_too_large_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(device(free=100), monkeypatch)
    assert launch([composed(device="cuda"), composed()], "") == 0
    assert Counter(r.status for r in load(Path("results")).rows) == {"refused": 4, "too_large": 4}
    assert not list(Path("results").rglob("*.npy"))


# races


def test_all_series_of_a_sweep_race_at_each_point_and_say_so() -> None:
    assert launch([composed("gqa"), composed("mla"), composed("mha", context=16)], "") == 0
    rows = load(Path("results")).rows
    races = {r.race: {(x.attention, x.context) for x in rows if x.race == r.race} for r in rows}
    assert sorted(map(sorted, races.values())) == [
        [("gqa", 16), ("mla", 16)],
        [("gqa", 64), ("mla", 64)],
        [("mha", 16)],
    ]
    assert {(r.attention, r.interleave) for r in rows} == {("gqa", "resident"), ("mla", "resident"), ("mha", "none")}


def test_the_first_point_is_measured_again_after_the_last_and_its_row_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("experiments.measuring.bench.measure_ceilings", lambda *of: ceilings())
    launch([composed("gqa", timer={"rounds": 5})], "")
    folder = Path("results/runs/test")
    rows = load(folder).rows
    assert len(rows) == 4
    checks = [json.loads(line) for line in (folder / CHECKS).read_text().splitlines()]
    firsts = [r for r in rows if r.context == 16]
    assert [(c["check"], c.get("key")) for c in checks] == [
        *(("drift", row.key) for row in firsts),
        ("cold ceiling", None),
        ("resident ceiling", None),
    ]
    assert all(c["since"] <= min(str(r.started_at) for r in rows) for c in checks)
    for row in firsts:
        samples = folder / row.series / "samples"
        assert np.load(samples / f"{row.key}.again.npy").shape == (3, 2)  # as many rounds as an interval needs
        assert np.load(samples / f"{row.key}.npy").shape == (5, 2)


def test_a_single_point_is_not_measured_twice() -> None:
    launch([composed("gqa", context=16)], "")
    assert not Path("results/runs/test", CHECKS).exists()


def test_a_machine_that_has_changed_is_said_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.measuring.bench.measure_ceilings", lambda *of: ceilings())
    slower = iter([*[100.0] * 12, *[200.0] * 100])  # two replicas, warmed up, two rounds; then all that follows
    monkeypatch.setattr(launcher, "Benches", lambda: OneBench(bench(timer=Scripted(slower))))
    assert launch([composed("gqa", context=[16, 32], scopes=["attend"])], "") == 0
    assert "drift=note (100 us at the start, 200 at the end, x2.000) gqa-" in capfd.readouterr().err


# interrupted


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the point after ``count`` others of the run is measured."""
    done = iter(range(100))

    def stopped(*args: Any) -> list[Measured]:
        if next(done) == count:
            raise KeyboardInterrupt
        return measure_point(*args)

    monkeypatch.setattr(launcher, "measure_point", stopped)


@pytest.mark.parametrize("count", [0, 1])
def test_an_interrupted_run_keeps_what_it_has(
    count: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stop_after(count, monkeypatch)
    assert launch([composed("gqa"), composed("mla")], "") == INTERRUPTED == 130
    rows = [(r.attention, r.context, r.scope, r.status) for r in load(Path("results")).rows]
    assert sorted(rows) == sorted(
        (attention, context, scope, status)
        for context, status in ([(16, "ok"), (64, "interrupted")] if count else [(16, "interrupted")])
        for attention in ("gqa", "mla")
        for scope in ("attend", "step")
    )
    assert "4 interrupted" in capfd.readouterr().err
    with locked(Path("results/runs/test")):  # free again
        pass


def test_stopped_after_the_last_point_no_point_is_called_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(2, monkeypatch)  # while the first point is looked at again
    assert launch([composed("gqa")], "") == 130
    assert Counter(r.status for r in load(Path("results")).rows) == {"ok": 4}


def test_ctrl_c_in_the_middle_of_a_round_loses_no_other_point(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = working.Worker._sample, iter(range(100))

    def stopped(worker: working.Worker, cell: Cell) -> Taken:
        if next(asked) == 4 * 2 + 3:  # two series of two scopes: in the second point's first round
            raise KeyboardInterrupt
        return real(worker, cell)

    monkeypatch.setattr(working.Worker, "_sample", stopped)
    assert launch([composed("gqa"), composed("mla")], "") == 130
    assert Counter((r.context, r.status) for r in load(Path("results")).rows) == {
        (16, "ok"): 4,
        (64, "interrupted"): 4,
    }


def test_threads_are_as_before_after_a_run() -> None:
    before = torch.get_num_threads()
    launch([composed(timer={"threads": 1}, context=16)], "")
    assert torch.get_num_threads() == before


# fail_fast


def test_fail_fast_ends_after_the_first_point_that_is_not_clean(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = preparing.prepare

    def prepare(made: Series, point: Any, *args: Any) -> Any:
        if made.labels.attention == "mla" and point.context == 32:
            raise RuntimeError("no")
        return real(made, point, *args)

    monkeypatch.setattr(working, "prepare", prepare)
    both = [composed(a, scopes=["step"], context=[16, 32, 64], conduct={"fail_fast": True}) for a in ("gqa", "mla")]
    assert launch(both, "") == 3
    rows = load(Path("results")).rows
    assert Counter((r.context, r.status) for r in rows) == {(16, "ok"): 2, (32, "ok"): 1, (32, "error"): 1}
    said = capfd.readouterr().err
    assert "stopped at the first row that is not clean (fail_fast=true)" in said
    assert "2 of 6 points are left" in said
    monkeypatch.setattr(working, "prepare", real)
    assert launch(both, "") == 3  # what is there does not stop it
    assert Counter(r.context for r in load(Path("results")).rows) == {16: 2, 32: 2, 64: 2}


def test_fail_fast_ends_before_anything_runs_if_a_config_cannot_be_built() -> None:
    fast = {"fail_fast": True}
    assert launch([composed(conduct=fast), composed(options={"num_kv_heads": 3}, conduct=fast)], "") == 3
    assert [r.status for r in load(Path("results")).rows] == ["error"]


# progress


def test_the_slowest_points_are_named_where_there_are_several(capfd: pytest.CaptureFixture[str]) -> None:
    launch([composed(a, scopes=["step"], context=[16, 32, 48, 64, 80]) for a in ("gqa", "mla")], "")
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("slowest points: "))
    points = line.removeprefix("slowest points: ").split("; ")
    assert len(points) == 3
    assert all(re.fullmatch(r"[\d.]+ s gqa, mla (16|32|48|64|80), batch 1", point) for point in points)
    seconds = [float(point.split()[0]) for point in points]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("colours", [True, False])
def test_on_a_terminal_there_is_a_line_per_series_and_one_for_all(
    colours: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich's way to be told that this is a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    launch([composed(a, scopes=["step"], context=[16, 32]) for a in ("gqa", "mla")], "")
    said = capfd.readouterr().err
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert re.search(r"all points +\S* +4/4", frames)
    assert re.search(r"gqa-contiguous-sdpa-tiny-fp32-tp1-\w+ +\S* +2/2.*gqa step 32: \d+ us", frames)
    assert re.search(r"mla-contiguous-sdpa-tiny-fp32-tp1-\w+ +\S* +2/2.*mla step 32: \d+ us", frames)
    assert bool(re.search(r"\x1b\[[\d;]*3[0-9]", said)) == colours


def test_without_a_terminal_there_are_plain_lines_and_no_control_codes(capfd: pytest.CaptureFixture[str]) -> None:
    reason = "sdpa cannot do a cache dtype other than the queries' fp32"
    configs = [composed(a, scopes=["step"], context=16) for a in ("gqa", "mha")]
    launch([*configs, composed("mla", scopes=["step"], kv_dtype="fp16")], "")
    said = capfd.readouterr()
    assert said.out == ""
    assert "\x1b" not in said.err
    lines = said.err.splitlines()
    assert len(lines) == 9
    assert lines[0].startswith("mla-contiguous-sdpa-tiny-fp32-tp1-")
    assert lines[1:3] == [f"  mla step {n}: refused: {reason}" for n in (16, 64)]  # not folded at 80 columns
    assert [line.split("-")[0] for line in lines[3:5]] == ["gqa", "mha"]  # they run together
    assert [line.split(": ")[0] for line in lines[5:7]] == ["  gqa step 16", "  mha step 16"]
    assert lines[5].endswith(" us")
    assert lines[7] == "rows: 2 refused, 2 ok; in results/runs/test"
    assert re.fullmatch(r"\d+ s: samples .*, warm-up .*, all else .*", lines[8])


def test_markup_in_a_reason_is_text(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("[bold]shape [2, 3][/bold] :smile:")

    monkeypatch.setattr(working, "prepare", fail)
    assert launch([composed(context=16)], "") == 3
    assert "error: RuntimeError: [bold]shape [2, 3][/bold] :smile:" in capfd.readouterr().err


def test_composed_configs_are_not_changed() -> None:
    config = composed(context=16)
    before = copy.deepcopy(config)
    launch([config], "")
    assert config == before
