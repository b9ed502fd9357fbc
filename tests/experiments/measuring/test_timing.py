"""Clocks are read around the whole of a call and nothing else; rounds visit every call; threads are put back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from experiments.measuring.audit import no_outliers
from experiments.measuring.statistics import summarise
from experiments.measuring.timing import (
    EventTimer,
    GraphTimer,
    WallTimer,
    collect,
    fixed_threads,
    make_timer,
)
from tests.experiments.builders import Clock, Scripted


@dataclass
class Lazy:
    """C01: a device whose launch returns at once and whose work is done only when somebody waits for it."""

    clock: Clock = field(default_factory=Clock)
    events: list[str] = field(default_factory=list)
    pending_ms: float = 0.0

    def launch(self) -> None:
        self.events.append("launch")
        self.pending_ms += 20

    def synchronize(self) -> None:
        self.events.append("sync")
        self.clock.sleep(self.pending_ms)
        self.pending_ms = 0

    def read(self) -> int:
        self.events.append("clock")
        return self.clock()


def test_c01_the_device_is_waited_for_before_start_and_before_stop() -> None:
    lazy = Lazy()
    timer = WallTimer(lazy.synchronize, lazy.read)
    us = collect([lazy.launch], timer, rounds=5, evict=lambda: None).us
    assert np.median(us) >= 20_000
    assert us.tolist() == [[20_000.0]] * 5
    assert lazy.events == ["sync", "clock", "launch", "sync", "clock"] * 6


def test_c01_work_launched_before_a_window_is_not_in_it() -> None:
    lazy = Lazy()
    us = collect([lazy.launch], WallTimer(lazy.synchronize, lazy.read), rounds=3, evict=lazy.launch).us
    assert us.tolist() == [[20_000.0]] * 3  # 40 000 if the sweep's own kernels were counted


def test_the_wall_clock_counts_in_microseconds() -> None:
    clock = Clock()
    assert WallTimer(lambda: None, clock).time(lambda: clock.sleep(0.0125)) == 12.5
    assert WallTimer(lambda: None).time(lambda: None) < 1e6  # nanoseconds of the host, by default


def slow_calls(clock: Clock, ms: dict[int, float]) -> Callable[[], None]:
    """5 ms, but for the calls (counted from 1) that ``ms`` names."""
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        clock.sleep(ms.get(count, 5.0))

    return call


def test_c12_the_first_call_has_a_field_of_its_own() -> None:
    clock = Clock()
    taken = collect([slow_calls(clock, {1: 500.0})], WallTimer(lambda: None, clock), rounds=10, evict=lambda: None)
    assert taken.first_call_us == 500_000.0
    assert taken.us.shape == (10, 1)
    assert np.median(taken.us) == 5_000.0
    assert taken.us.max() == 5_000.0
    assert no_outliers(summarise(taken.us)).holds


def test_c12_a_recompilation_at_call_eight_is_flagged() -> None:
    clock = Clock()
    call = slow_calls(clock, {1: 500.0, 8: 500.0})
    taken = collect([call], WallTimer(lambda: None, clock), rounds=10, evict=lambda: None)
    told = summarise(taken.us)
    assert taken.us[:, 0].tolist() == [5_000.0] * 6 + [500_000.0] + [5_000.0] * 3  # kept, where it happened
    assert (told.p50, told.largest, told.outliers) == (5_000.0, 500_000.0, 1)
    assert "outliers=note (1 of 10 above" in str(no_outliers(told))


def test_every_call_is_visited_once_per_round_after_one_eviction() -> None:
    events: list[str] = []
    calls = [lambda name=name: events.append(name) for name in "abc"]
    timer = Scripted(range(1, 100))
    taken = collect(calls, timer, rounds=2, evict=lambda: events.append("evict"))
    assert events == ["a", "b", "c", *["evict", "a", "b", "c"] * 2]  # once untimed, so that nothing is first in a round
    assert taken.first_call_us == 1
    assert taken.us.tolist() == [[4, 5, 6], [7, 8, 9]]
    assert timer.calls == [*calls] * 3  # the eviction is in no window


def test_the_first_call_is_the_very_first_even_if_others_are_slower() -> None:
    taken = collect([lambda: None] * 2, Scripted([7, 900, 1, 2]), rounds=1, evict=lambda: None)
    assert taken.first_call_us == 7
    assert taken.us.tolist() == [[1, 2]]


# which timer


@pytest.mark.parametrize(
    ("kind", "device", "name"),
    [
        ("auto", "cpu", "wall"),
        ("auto", "cuda", "events"),
        ("wall", "cpu", "wall"),
        ("wall", "cuda", "wall"),
        ("events", "cuda", "events"),
        ("graph", "cuda", "graph"),
    ],
)
def test_the_timer_that_a_config_names(kind: str, device: str, name: str) -> None:
    waited: list[int] = []
    timer = make_timer(kind, device, lambda: waited.append(1))
    assert timer.name == name
    if name == "wall":
        timer.time(lambda: None)
        assert len(waited) == 2


@pytest.mark.parametrize("kind", ["events", "graph"])
def test_a_timer_that_needs_another_device_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"timer {kind} needs a CUDA device; got cpu \(use timer=wall\)"):
        make_timer(kind, "cpu", lambda: None)


# a pretended GPU


class Gpu:
    """torch.cuda as far as timers use it; everything that happens is in ``log``, and each kernel takes 3 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.capturing: list[Callable[[], None]] | None = None
        gpu = self

        class Event:
            made = 0

            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                Event.made += 1
                self.name = "start" if Event.made % 2 else "stop"

            def record(self) -> None:
                gpu.log.append(f"{self.name}.record")
                self.at = gpu.now

            def synchronize(self) -> None:
                gpu.log.append(f"{self.name}.synchronize")

            def elapsed_time(self, end: "Event") -> float:
                gpu.log.append(f"{self.name}.elapsed({end.name})")
                return end.at - self.at

        class Stream:
            def __init__(self, name: str = "side") -> None:
                self.name = name

            def wait_stream(self, other: "Stream") -> None:
                gpu.log.append(f"{self.name} waits for {other.name}")

        class CUDAGraph:
            def __init__(self) -> None:
                self.kernels: list[Callable[[], None]] = []

            def replay(self) -> None:
                gpu.log.append("replay")
                for kernel in self.kernels:
                    kernel()

        @contextmanager
        def stream(chosen: Stream) -> Iterator[None]:
            gpu.log.append(f"on {chosen.name} {{")
            yield
            gpu.log.append("}")

        @contextmanager
        def graph(into: CUDAGraph) -> Iterator[None]:
            gpu.log.append("capture {")
            gpu.capturing = into.kernels
            yield
            gpu.capturing = None
            gpu.log.append("}")

        fakes: dict[str, Any] = {
            "Event": Event,
            "Stream": Stream,
            "CUDAGraph": CUDAGraph,
            "stream": stream,
            "graph": graph,
            "current_stream": lambda: Stream("main"),
            "synchronize": lambda: gpu.log.append("device.synchronize"),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def kernel(self) -> None:
        """What a call launches."""
        if self.capturing is not None:
            self.capturing.append(self.kernel)
            self.log.append("captured")
            return
        self.log.append("kernel")
        self.now += 3.0


def test_events_stand_around_the_call_on_an_idle_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    assert EventTimer().time(gpu.kernel) == 3000.0  # elapsed_time is in milliseconds
    assert gpu.log == [
        "device.synchronize",
        "start.record",
        "kernel",
        "stop.record",
        "stop.synchronize",
        "start.elapsed(stop)",
    ]


WINDOW = ["device.synchronize", "start.record", "replay", "kernel", "stop.record", "stop.synchronize"]
WINDOW += ["start.elapsed(stop)"]


def test_a_graph_is_captured_once_outside_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    timer = GraphTimer()
    call = gpu.kernel
    assert timer.time(call) == 3000.0
    assert gpu.log == [
        "side waits for main",
        "on side {",
        "kernel",  # one plain run: compilation and workspaces
        "}",
        "main waits for side",
        "capture {",
        "captured",
        "}",
        *WINDOW,
    ]
    gpu.log.clear()
    assert timer.time(call) == 3000.0
    assert gpu.log == WINDOW


def test_every_call_has_a_graph_of_its_own_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    timer = GraphTimer()

    def once() -> None:
        gpu.kernel()

    def twice() -> None:
        gpu.kernel()
        gpu.kernel()

    assert [timer.time(c) for c in (once, twice, once)] == [3000.0, 6000.0, 3000.0]
    assert len(timer.graphs) == 2
    del once, twice
    assert len(timer.graphs) == 0  # a graph that stayed would keep its point's caches in memory for the whole run


# threads


def test_c15_threads_are_as_asked_recorded_and_put_back() -> None:
    before = torch.get_num_threads()
    with fixed_threads(1) as threads:
        assert threads == torch.get_num_threads() == 1
        with fixed_threads(2) as inner:
            assert inner == torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_c15_threads_are_put_back_after_an_error() -> None:
    before = torch.get_num_threads()
    other = 1 if before > 1 else 2
    held = fixed_threads(other)
    held.__enter__()
    assert torch.get_num_threads() == other
    error = KeyboardInterrupt()
    assert not held.__exit__(type(error), error, None)  # it is not swallowed
    assert torch.get_num_threads() == before


def test_threads_nobody_asked_for_stay_and_are_recorded() -> None:
    before = torch.get_num_threads()
    with fixed_threads(None) as threads:
        assert threads == torch.get_num_threads() == before
    assert torch.get_num_threads() == before
