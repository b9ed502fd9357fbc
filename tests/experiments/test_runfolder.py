"""One run, one folder: its name, its lock, and what is stored where."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from experiments.measuring.row import unbuildable_row
from experiments.measuring.series import parse_labels
from experiments.record import Measurement
from experiments.records import load
from experiments.runfolder import locked, run_folder, store
from tests.builders import ROOT
from tests.experiments.builders import array, composed

HOLD = """
import sys, time
from pathlib import Path
from experiments.runfolder import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A second process that holds the folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as p:
        assert p.stdout is not None
        assert p.stdout.readline() == "held\n"
        try:
            yield p
        finally:
            p.kill()


def test_a_folder_that_another_run_writes_is_refused_with_its_pid(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "x"
    with holder(folder) as other:
        before = (folder / ".lock").read_bytes()
        with pytest.raises(ValueError, match=r"another run \(pid \d+\)") as no, locked(folder):
            pytest.fail("both hold it")
        assert str(no.value).startswith(f"{folder} is being written by another run (pid {other.pid});")
        assert "name=" in str(no.value)
        assert "\n" not in str(no.value)
        assert (folder / ".lock").read_bytes() == before == str(other.pid).encode()
        with locked(tmp_path / "runs" / "y"):  # another folder is free
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with locked(folder):  # the kernel has taken the lock back; the file that stayed locks nobody out
            assert (folder / ".lock").read_text() == str(os.getpid())


def test_the_lock_ends_with_the_run_however_it_ends(tmp_path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), locked(tmp_path):
            raise error
    with locked(tmp_path):
        pass


def test_one_process_cannot_hold_a_folder_twice(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ValueError, match=rf"pid {os.getpid()}"), locked(tmp_path):
        pytest.fail("twice")


def test_a_run_has_its_own_folder_below_results() -> None:
    assert run_folder("results", "quick") == Path("results/runs/quick")
    assert run_folder("/a b/é", "2024-01_x.y") == Path("/a b/é/runs/2024-01_x.y")
    assert run_folder("results", 2024) == Path("results/runs/2024")
    assert run_folder("results", "проба") == Path("results/runs/проба")


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", ".", "..", ".hidden", "-x", "a b", "a=b", "x\n", "a\\b", "a\0b", "/x", "x/", None]
)
def test_names_that_are_not_one_folders(name: object) -> None:
    with pytest.raises(ValueError, match="name must be letters, digits") as refusal:
        run_folder("results", name)
    assert f"got name={name!r}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_results_must_be_somewhere() -> None:
    with pytest.raises(ValueError, match="got name='x', results=None"):
        run_folder(None, "x")


def a_row(reason: str = "x") -> Measurement:
    config = composed()
    return unbuildable_row(parse_labels(config.values, config.choices, ""), config.values, reason)


def test_rows_go_to_their_series_and_samples_beside_them(tmp_path: Path) -> None:
    us = array([[1.5, 2.5], [3.5, 4.5]])
    rows = (a_row("one"), a_row("two"))
    store(tmp_path, rows, {"k1": us, "k2": us + 1})
    series = tmp_path / rows[0].series
    assert load(tmp_path).rows == rows
    assert sorted(p.name for p in series.rglob("*")) == ["k1.npy", "k2.npy", "records.jsonl", "samples"]
    read = np.load(series / "samples" / "k2.npy", allow_pickle=False)
    assert read.dtype == np.float64
    assert read.tolist() == [[2.5, 3.5], [4.5, 5.5]]


def test_without_samples_there_is_no_samples_folder(tmp_path: Path) -> None:
    store(tmp_path, (a_row(),), {})
    store(tmp_path, (), {})
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted([a_row().series, "records.jsonl"])


def test_a_row_is_never_there_without_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"):
        store(tmp_path, (a_row(),), {"k": array([[1.0]])})
    assert not list(tmp_path.rglob("records.jsonl"))
