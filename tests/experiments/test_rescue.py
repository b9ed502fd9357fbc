"""A folder that cannot take rows: one clear line, nothing corrupt, nothing lost in silence."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import launcher
from experiments.launcher import launch
from experiments.measuring.measure import measure_point
from experiments.measuring.timed import Measured
from experiments.records import RECORDS, append_lines, load
from experiments.runfolder import note, store_samples
from tests.experiments.builders import array, composed

FULL = OSError(errno.ENOSPC, "No space left on device")


pytestmark = pytest.mark.usefixtures("pretended_machine", "temporary")


def three_points(attention: str = "gqa", **changes: Any) -> Any:
    return composed(attention, context=[16, 32, 64], scopes=["step"], **changes)


def after(points: int, monkeypatch: pytest.MonkeyPatch, what: Any) -> None:
    """Something happens while the point after so many others is measured."""
    done = iter(range(100))

    def measured(*args: Any) -> list[Measured]:
        if next(done) == points:
            what()
        return measure_point(*args)

    monkeypatch.setattr(launcher, "measure_point", measured)


def fill_disk(monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    """From now on nothing can be synced to a file whose path has this in it."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if below in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise FULL
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_ends_the_run_and_rows_are_put_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    after(1, monkeypatch, lambda: fill_disk(monkeypatch, "/results/"))
    assert launch([three_points(), three_points("mla")], "") == 3
    said = capfd.readouterr().err
    assert "stopped: results/runs/test cannot be written: [Errno 28] No space left on device; 2 rows are in " in said
    assert "2 of 6 points are left" not in said
    assert "4 of 6 points are left" in said  # those of the second point are in no folder of the run
    kept = load(Path("results"))
    assert [(r.attention, r.context) for r in kept.rows] == [("gqa", 16), ("mla", 16)]
    assert kept.warnings == ()
    assert not list(Path("results").rglob("*.part"))
    (place,) = (tmp_path / "temporary").glob("kvariants-rescued-*")
    assert [(r.attention, r.context, r.status) for r in load(place).rows] == [("gqa", 32, "ok"), ("mla", 32, "ok")]
    assert len(list(place.rglob("*.npy"))) == 2


def test_rescued_rows_are_found_where_the_message_says_to_put_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        after(0, patch, lambda: fill_disk(patch, "/results/"))
        launch([three_points()], "")
    (place,) = (tmp_path / "temporary").glob("kvariants-rescued-*")
    shutil.move(place, "results/runs/test/rescued")
    assert launch([three_points()], "") == 0
    assert [r.context for r in load(Path("results")).rows] == [32, 64, 16]


def test_where_nothing_can_be_written_the_points_that_are_lost_are_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    after(1, monkeypatch, lambda: fill_disk(monkeypatch, "/"))
    assert launch([three_points()], "") == 3
    assert "1 rows are lost, for temporary files cannot be written either" in capfd.readouterr().err
    assert [r.context for r in load(Path("results")).rows] == [16]


def test_a_folder_that_is_deleted_meanwhile_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    after(1, monkeypatch, lambda: shutil.rmtree("results"))
    assert launch([three_points()], "") == 3
    assert "the folder of this run is gone: 'results/runs/test'; 1 rows are in " in capfd.readouterr().err
    assert not Path("results").exists()
    assert [r.context for r in load(tmp_path / "temporary").rows] == [32]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(OSError, match="results"):  # the door makes it one line and exit code 2
        launch([three_points()], "")


# files


def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / RECORDS
    append_lines(file, "one")
    with monkeypatch.context() as patch:
        fill_disk(patch, RECORDS)
        with pytest.raises(OSError, match="No space"):
            append_lines(file, "two", "three")
    assert file.read_text() == "one\n"
    append_lines(file, "four")
    assert file.read_text() == "one\nfour\n"


def test_samples_are_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_samples(tmp_path, {"k": array([[1.0]])})
    with monkeypatch.context() as patch:
        fill_disk(patch, "samples")
        with pytest.raises(OSError, match="No space"):
            store_samples(tmp_path, {"k": array([[2.0]])})
    assert [p.name for p in (tmp_path / "samples").iterdir()] == ["k.npy"]
    assert np.load(tmp_path / "samples" / "k.npy").tolist() == [[1.0]]


def test_a_torn_line_of_checks_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "checks.jsonl").write_text('{"check": "dri')
    note(tmp_path, {"check": "drift"})
    assert (tmp_path / "checks.jsonl").read_text() == '{"check": "dri\n{"check": "drift"}\n'
