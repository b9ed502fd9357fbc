"""Which series race, how many at once, and what the end of a worker's process means."""

import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.measuring import crew as module
from experiments.measuring import remote
from experiments.measuring.bench import Benches
from experiments.measuring.crew import Conduct, Crew, Group, Places, grouped
from experiments.measuring.device import Device
from experiments.measuring.measure import Entrant, measure_point
from experiments.measuring.point import points
from experiments.measuring.remote import PROCESS_BYTES, Remote, import_ahead
from experiments.measuring.row import Where
from experiments.measuring.timed import Measured
from tests.builders import ROOT
from tests.experiments.builders import SMALL_CACHE, device, series
from tests.experiments.racing import Ending, Pretender

INSIDE = Conduct("none", None, 8)


class Starts:
    """A process that is started in place of all, and the ends of the pipes that it has been given."""

    def __init__(self) -> None:
        self.killed = 0
        self.pipes: list[Connection] = []

    def process(self, args: tuple[Connection, object], **options: Any) -> "Starts":
        self.pipes.append(Connection(os.dup(args[0].fileno())))
        return self

    def start(self) -> None:
        if len(self.pipes) <= self.killed:
            raise EOFError("unexpected EOF")


def places(attention: str = "gqa", on: Device | None = None, **changes: Any) -> Places:
    made = series(attention, **changes)
    return tuple(Where(made, point, on or device(), 2) for point in points(made))


def sizes(count: int, conduct: Conduct, on: Device | None = None) -> list[int]:
    return [len(group) for group in grouped([places(on=on)] * count, conduct)]


# who races


def test_series_with_the_same_points_race_whatever_else_differs() -> None:
    several = [places("gqa"), places("mla", backend="eager", dtype="bf16"), places("mha", storage="paged")]
    assert grouped(several, INSIDE) == [tuple(several)]


@pytest.mark.parametrize("other", [{"context": [16, 32]}, {"batch": 2}, {"timer": {"rounds": 9}}])
def test_series_of_other_points_or_another_clock_do_not(other: dict[str, Any]) -> None:
    several = [places("gqa"), places("mla", **other), places("mha")]
    assert grouped(several, INSIDE) == [(several[0], several[2]), (several[1],)]


@pytest.mark.parametrize(("count", "groups"), [(8, [8]), (9, [4, 5]), (17, [5, 6, 6]), (1, [1])])
def test_too_many_are_split_evenly(count: int, groups: list[int]) -> None:
    assert sizes(count, INSIDE) == groups


def test_processes_and_the_sweep_take_two_thirds_of_the_memory_at_most() -> None:
    sweep, conduct = 5 * SMALL_CACHE, Conduct("process", None, 8)
    room = [(count * PROCESS_BYTES + sweep) * 3 // 2 + 1 for count in (0, 1, 2, 3, 100)]
    assert [conduct.at_once(device(free=free)) for free in room] == [1, 1, 2, 3, 8]
    assert sizes(4, conduct, on=device(free=room[2])) == [2, 2]
    assert sizes(4, INSIDE, on=device(free=room[2])) == [4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"isolation": "thread"}, "isolation must be one of process, none; got 'thread'"),
        ({"timeout_s": 0}, "timeout_s must be a number > 0; got 0"),
        ({"race_size": 0}, "race_size must be a whole number >= 1; got 0"),
    ],
)
def test_conduct_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(INSIDE, **changes)


def test_there_are_workers_for_one_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(module, "Worker", lambda made, *rest: Pretender(made.labels.attention, log))
    one, other = (places("gqa"),), (places("mla"), places("mha"))
    crew = Crew(INSIDE, Benches())
    assert crew.of(one) is crew.of(one)
    assert log == []
    assert len(crew.of(other)) == 2
    assert log == ["gqa close"]
    crew.dismiss()
    crew.dismiss()
    assert log == ["gqa close", "mla close", "mha close"]


# processes of their own


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """What stands in for processes."""
    starts = Starts()
    context = SimpleNamespace(Process=starts.process, Pipe=multiprocessing.Pipe)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    return starts


@pytest.mark.parametrize("killed", [0, 1])
def test_a_server_that_is_killed_while_it_starts_a_worker_is_replaced_once(killed: int, tried: Starts) -> None:
    tried.killed = killed
    ours, process = remote._started(cast(Any, None))
    assert len(tried.pipes) == killed + 1
    assert process is cast(Any, tried)
    tried.pipes[-1].send("right")
    assert ours.recv() == "right"
    for orphans in tried.pipes[:-1]:  # a worker may have been forked from the dead server all the same
        with pytest.raises(EOFError):
            orphans.recv()


def test_a_server_that_is_killed_again_and_again_is_an_error(tried: Starts) -> None:
    tried.killed = 2
    with pytest.raises(OSError, match="no worker can be started: the server that forks them is killed"):
        remote._started(cast(Any, None))
    assert len(tried.pipes) == 2


def test_a_folder_whose_name_is_too_long_for_a_socket_says_what_to_do(tmp_path: Path) -> None:
    """The system's own error, in a process that has no server of workers yet."""
    place = tmp_path / ("t" * 100)
    place.mkdir()
    script = "from experiments.measuring.remote import _started; _started(None)"
    environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "OSError: no worker can be started: the folder for temporary files has too long a name for a socket; "
        f"set TMPDIR to a shorter one or isolation=none; got {place}"
    )


@pytest.mark.slow
def test_a_process_that_ends_or_never_answers_leaves_the_others_rows() -> None:
    """Four real processes at two points: one is right, one exits, one is killed, one hangs."""
    ends = {"exit": "crash", "kill": "crash", "hang": "timeout"}
    small = [places("gqa", device(last_level_cache=2**20), backend="eager", scopes=["attend"])]
    for how in ends:
        ending = replace(small[0][0].series, backend=Ending(how))
        small.append(tuple(replace(where, series=ending) for where in small[0]))
    benches, group = Benches(), tuple(small)
    crew = Crew(Conduct("process", None, 8), benches)
    import_ahead(run[0].series for run in group)
    try:
        hangs = crew.of(group)[3]
        assert isinstance(hangs, Remote)
        hangs.timeout_s = 6
        told = [_measure(crew, benches, group, index) for index in range(2)]
    finally:
        crew.dismiss()
    for at in told:
        assert [row.status for one in at for row in one.rows] == ["ok", *ends.values()], at
    (_, exited, killed, hung), later = ([str(one.rows[0].reason) for one in at] for at in told)
    assert exited == "the worker process ended: exit status 7: the kernel says goodbye"
    assert killed == "the worker process ended: killed by SIGKILL"
    assert hung == "no answer within 6 s; killed"
    assert later[1] == f"not tried, for at an earlier point: {exited}"
    assert [(one.rows[0].stderr, one.rows[0].attempts) for one in told[0][1:]] == [
        ("the kernel says goodbye", 1),
        (None, 1),
        ("I think\nand think", 1),
    ]
    assert [(one.rows[0].stderr, one.rows[0].attempts) for one in told[1][1:]] == [(None, 0)] * 3


@pytest.mark.slow
def test_an_error_in_a_process_leaves_its_last_words_and_the_process_goes_on() -> None:
    """Once as an error of one point, of which the last 2 kB are kept, and then the next point is measured."""
    (first, *rest) = places("gqa", device(last_level_cache=2**20), backend="eager", scopes=["attend"])
    ending = replace(first.series, backend=Ending("error", calls=0))
    benches, group = Benches(), (tuple(replace(where, series=ending) for where in (first, *rest)),)
    crew = Crew(Conduct("process", None, 8), benches)
    try:
        told = [_measure(crew, benches, group, index)[0].rows[0] for index in range(2)]
    finally:
        crew.dismiss()
    assert [(row.status, row.attempts) for row in told] == [("error", 1), ("ok", 1)]
    assert told[0].reason == "RuntimeError: no such kernel"
    lines = str(told[0].stderr).splitlines()
    assert lines[-1] == "RuntimeError: no such kernel"
    assert "Traceback" not in lines[0]  # the beginning is far above
    assert len(str(told[0].stderr).encode()) <= 2048 + 2 * len(lines[0])


def _measure(crew: Crew, benches: Benches, group: Group, index: int) -> list[Measured]:
    entrants = [Entrant(run[index], hand) for run, hand in zip(group, crew.of(group), strict=True)]
    return measure_point(entrants, group[0][0].series.timer, benches)
