"""Devices are taken in turns: one run on each, whoever comes later waits and says for whom."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiments import turns
from experiments.turns import Gpu, Turn, lock_folder, turn, visible_gpus, wanted
from tests.builders import ROOT
from tests.experiments.telling.rows import NOT_TIMED, row

TWO = ["GPU-aa", "GPU-bb"]
HOLDER = """
import sys
from experiments.turns import turn
with turn({"cpu"}, True, print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "driver_uuids", lambda: TWO)
    monkeypatch.setattr(turns, "POLL_S", 0.001)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # so that it is as before afterwards


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process that is being timed on the CPU until its input ends."""
    command = [sys.executable, "-c", HOLDER]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def host_series(held: Turn) -> int | None:
    held.begin()
    return held.told([row()])[0].host_series


def refuse_to_wait(line: str) -> None:
    raise AssertionError(line)


def test_a_run_alone_waits_for_nobody_and_counts_itself() -> None:
    with turn({"cpu"}, True, refuse_to_wait) as held:
        assert host_series(held) == 1
    with turn({"cpu"}, True, refuse_to_wait) as held:
        assert host_series(held) == 1


def test_a_second_run_on_the_device_waits_until_the_first_ends(holder: subprocess.Popen[str]) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        holder.kill()  # a lock that outlived its process would lock us out now

    with turn({"cpu"}, True, say) as held:
        assert host_series(held) == 1
    assert said == [f"waiting for cpu: timed by process {holder.pid}; exclusive=false would not wait"]


def test_who_need_not_wait_is_counted_by_both(holder: subprocess.Popen[str]) -> None:
    with turn({"cpu"}, False, refuse_to_wait) as held:
        assert host_series(held) == 2


def test_who_left_during_the_point_is_counted(holder: subprocess.Popen[str]) -> None:
    with turn({"cpu"}, False, refuse_to_wait) as held:
        held.begin()
        holder.kill()
        holder.wait()
        assert held.told([row()])[0].host_series == 2
        assert host_series(held) == 1


def test_each_run_gets_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with turn({"cuda"}, True, refuse_to_wait) as first:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        assert host_series(first) == 1
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # what another process begins with
        with turn({"auto"}, True, refuse_to_wait) as second:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
            assert [host_series(one) for one in (first, second)] == [2, 2]


def test_a_process_keeps_the_gpu_that_it_sees() -> None:
    for _ in range(2):  # jobs that one process of a launcher runs in turn
        with turn({"cuda"}, True, refuse_to_wait):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_third_run_waits_for_whichever_gpu_is_free_first(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(turn({"cuda"}, True, refuse_to_wait))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        second.enter_context(turn({"cuda"}, True, refuse_to_wait))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

        def say(line: str) -> None:
            said.append(line)
            threading.Timer(0.01, second.close).start()

        with turn({"cuda"}, True, say):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert len(said) == 1
    assert said[0].startswith(f"waiting for GPU-aa or GPU-bb: timed by process {os.getpid()}, {os.getpid()};")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, [("GPU-aa", "GPU-aa"), ("GPU-bb", "GPU-bb")]),
        ("1", [("GPU-bb", "1")]),
        ("1, 0", [("GPU-bb", "1"), ("GPU-aa", "0")]),
        ("GPU-bb", [("GPU-bb", "GPU-bb")]),
        ("MIG-cc", [("MIG-cc", "MIG-cc")]),
        ("0,7,1", [("GPU-aa", "0")]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_cuda_would_show(words: str | None, expected: list[tuple[str, str]]) -> None:
    environment = {} if words is None else {"CUDA_VISIBLE_DEVICES": words}
    assert visible_gpus(environment) == [Gpu(*pair) for pair in expected]


def test_what_is_wanted_is_asked_for_in_one_order() -> None:
    gpus, cpu = [Gpu("a", "0"), Gpu("b", "1")], [Gpu("cpu", "")]
    assert wanted({"cpu"}, gpus) == [cpu]
    assert wanted({"auto"}, gpus) == wanted({"h200"}, gpus) == [gpus]
    assert wanted({"auto"}, []) == wanted({"auto", "cpu"}, []) == [cpu]
    assert wanted({"cuda"}, []) == []
    assert wanted({"cuda", "cpu"}, gpus) == [cpu, gpus]


def test_a_run_that_times_nothing_takes_no_turn() -> None:
    with turn((), True, refuse_to_wait) as held:
        assert host_series(held) is None
    assert list(lock_folder().iterdir()) == []


def test_rows_that_were_not_timed_say_nothing_of_the_host() -> None:
    with turn({"cpu"}, True, refuse_to_wait) as held:
        refused = row(**NOT_TIMED, status="refused", reason="why")
        assert held.told([refused]) == (refused,)


def test_a_folder_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVARIANTS_LOCKS", str(tmp_path / "file" / "locks"))
    said: list[str] = []
    with turn({"cpu"}, True, said.append) as held:
        assert host_series(held) is None
    assert len(said) == 1
    assert said[0].startswith("nobody is kept from timing beside this run: ")


def test_locks_are_everybodys() -> None:
    with turn({"cpu"}, True, refuse_to_wait):
        assert {path.stat().st_mode & 0o666 for path in lock_folder().iterdir()} == {0o666}
