"""Real disks and folders that are full, limited, read-only or wanted twice, and a clock that goes back."""

import datetime as standard
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments import launcher, record, rescue
from experiments.launcher import launch
from experiments.measuring import prepare as preparing
from experiments.measuring import worker as working
from experiments.measuring.timed import Measured
from experiments.records import load
from experiments.run import main
from experiments.telling.frame import tidy
from tests.experiments.builders import Street, composed
from tests.experiments.killing import SMALL_MACHINE, Command
from tests.experiments.wholeness import Kept, complete, measured_once, rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pretended_machine", "temporary")]

FOLDER = Path("results/runs/test")
SMALL = ("model=smollm2_135m", "device=cpu", "timer.rounds=2", "timer.max_rounds=2", "isolation=none")


def several(resume: str = "missing") -> list[Any]:
    """Two series that race at six points, a row each."""
    contexts = [16, 24, 32, 40, 48, 56]
    return [composed(a, context=contexts, scopes=["step"], conduct={"resume": resume}) for a in ("gqa", "mla")]


@contextmanager
def mounted(place: Path, *how: str) -> Iterator[None]:
    """A file system of its own at ``place``; skips the test where the system does not let us mount one."""
    place.mkdir(exist_ok=True)
    try:
        done = subprocess.run(["mount", *how, str(place)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


# no room


def test_a_full_file_system(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two pages of rows, one of the lock and one per sample: 9 of 36 kB are too few for 12 rows."""
    with mounted(tmp_path / "results", "-t", "tmpfs", "-o", "size=36k", "tmpfs"):
        _ends_and_is_completed(capfd, "No space left on device", lambda: remount(tmp_path / "results", "size=1m"))


def test_a_limit_on_the_size_of_files(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """4 kB hold two rows of a series and not three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    real = rescue.store_or_rescue

    def limited(*args: Any) -> Iterator[Measured]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            yield from real(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "store_or_rescue", limited)
        _ends_and_is_completed(capfd, "File too large", patch.undo)


def _ends_and_is_completed(capfd: pytest.CaptureFixture[str], why: str, mend: Any) -> None:
    assert launch(several(), "") == 3
    said = capfd.readouterr().err
    assert "stopped: results/runs/test cannot be written: " in said
    assert why in said
    assert "points are left" in said
    before = load(FOLDER)
    assert before.warnings == ()  # not one torn line
    assert 0 < len(before.rows) < 12
    kept = Kept(FOLDER)
    kept.look()
    (rescued,) = Path("temporary").glob("kvariants-rescued-*")
    assert {r.status for r in load(rescued).rows} == {"ok"}
    assert not {r.key for r in load(rescued).rows} & {r.key for r in before.rows}
    mend()
    assert launch(several(), "") == 0
    kept.look()
    complete(FOLDER, {row.key for row in rows(FOLDER)})
    measured_once(FOLDER)
    assert len(rows(FOLDER)) == 12


# no writing


def test_a_read_only_folder_is_refused_in_one_line_and_can_still_be_planned_and_read(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    street = Street(tmp_path, monkeypatch, capfd)
    small = (*SMALL, "workload.context=16", "workload.scopes=step")
    with mounted(tmp_path / "results", "-t", "tmpfs", "tmpfs"):
        assert street.knock(main, *small).code == 0
        before = load(Path("results"))
        remount(tmp_path / "results", "ro")
        files = street.files()
        for asked in ((), ("name=other",), ("resume=all",)):
            said = street.knock(main, *small, *asked).refusal
            assert said.startswith("[Errno 30] Read-only file system: 'results/runs/"), said
        plan = street.knock(main, *small, "plan=true")
        assert plan.code == 0, plan
        assert street.files() == files
        assert load(Path("results")) == before


# twice at once

AT_ONCE = SMALL_MACHINE.replace("main()", "import sys, experiments.launcher; sys.stdin.readline(); main()")


def test_of_two_runs_of_one_study_started_at_once_one_is_refused_and_another_name_is_free(tmp_path: Path) -> None:
    asked = ("timer.rounds=30", "timer.max_rounds=30", "workload.context=[16,32]", "attention=gqa,mla")
    with (
        Command.started(folder(tmp_path, "a"), *asked, f"results={tmp_path}", "name=same", script=AT_ONCE) as one,
        Command.started(folder(tmp_path, "b"), *asked, f"results={tmp_path}", "name=same", script=AT_ONCE) as two,
        Command.started(folder(tmp_path, "c"), *asked, f"results={tmp_path}", "name=other", script=AT_ONCE) as three,
    ):
        for run in (one, two, three):
            assert run.process.stdin is not None
            run.process.stdin.write(b"go\n")
            run.process.stdin.flush()
        codes = [run.ended() for run in (one, two, three)]
        assert sorted(code == 2 for code in codes[:2]) == [False, True], (one.words(), two.words())
        assert {code for code in codes if code != 2} <= {0, 3}
        (refused,) = (run for run in (one, two) if run.process.returncode == 2)
        assert refused.words().startswith(f"error: {tmp_path}/runs/same is being written by another run (pid ")
        assert refused.words().count("\n") == 1
        assert all(run.gone() for run in (one, two, three))
    for name in ("same", "other"):
        found = rows(tmp_path / "runs" / name)
        assert Counter(Counter(row.key for row in found).values()) == {1: 8}
        assert {row.latency_us_p50 is None for row in found} == {False}


def folder(place: Path, name: str) -> Path:
    (place / name).mkdir()
    return place / name


# a clock that goes back


class _Clock(standard.datetime):
    """One that stands at ``year``."""

    year_said = 2031

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls(cls.year_said, 1, 1, tzinfo=tz)


def test_a_clock_that_has_gone_back_is_said_and_the_row_measured_last_counts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in (record, launcher):
        monkeypatch.setattr(module, "datetime", _Clock)
    with monkeypatch.context() as patch:
        patch.setattr(working, "prepare", _out_of_memory_for_mla)
        assert launch(several(), "") == 3
    assert "clock" not in capfd.readouterr().err
    monkeypatch.setattr(_Clock, "year_said", 2026)
    assert launch(several("failed"), "") == 0
    said = capfd.readouterr().err
    assert "this machine's clock says 2026-01-01 00:00:00, and rows are there that began 2031-01-01T00:00:00" in said
    table = tidy(load(FOLDER), FOLDER).table
    assert len(table) == 12
    assert set(table["status"]) == {"ok"}
    measured_once(FOLDER)


def _out_of_memory_for_mla(made: Any, *args: Any) -> Any:
    if made.labels.attention == "mla":
        raise MemoryError("no more")
    return preparing.prepare(made, *args)
