"""Clocks behind one protocol, and the rounds in which they are read."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

Call = Callable[[], object]


class Timer(Protocol):
    """Times one call at a time. Nothing of a call may run outside its own window."""

    @property
    def name(self) -> str:
        """wall, events or graph."""
        ...

    def time(self, call: Call) -> float:
        """Microseconds of one call, from before its first kernel to after its last."""
        ...


@dataclass(frozen=True)
class WallTimer:
    """Host clock; the device is synchronised before it starts and before it stops."""

    synchronize: Call
    clock: Callable[[], int] = time.perf_counter_ns
    name: str = field(default="wall", init=False)

    def time(self, call: Call) -> float:
        """Microseconds between the two readings."""
        self.synchronize()
        start = self.clock()
        call()
        self.synchronize()
        return (self.clock() - start) / 1e3


@dataclass(frozen=True)
class EventTimer:
    """CUDA events around the call, read after the device has finished; launch gaps inside the call count."""

    name: str = field(default="events", init=False)

    def time(self, call: Call) -> float:
        """Microseconds between the two events."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3


@dataclass(frozen=True)
class GraphTimer:
    """CUDA events around the replay of the call's captured graph: kernels back to back, no launch overhead.

    A call is captured the first time it is seen, outside any window, on a side stream after one plain run. Its graph
    lives as long as the call does: the caches of a measured point must not outlive it.
    """

    events: EventTimer = field(default_factory=EventTimer)
    graphs: WeakKeyDictionary[Call, torch.cuda.CUDAGraph] = field(default_factory=WeakKeyDictionary)
    name: str = field(default="graph", init=False)

    def time(self, call: Call) -> float:
        """Microseconds of one replay."""
        if call not in self.graphs:
            self.graphs[call] = capture(call)
        return self.events.time(self.graphs[call].replay)


def capture(call: Call) -> torch.cuda.CUDAGraph:
    """What a call launches, as a graph, after one plain run on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def timer_reasons(kind: str, device_kind: str) -> list[str]:
    """Why a clock cannot read a device; empty = it can."""
    if kind in ("events", "graph") and device_kind != "cuda":
        return [f"timer {kind} needs a CUDA device; got {device_kind} (use timer=wall)"]
    return []


def make_timer(kind: str, device_kind: str, synchronize: Call) -> Timer:
    """The timer that a config names; ``auto`` is wall on a CPU and events on a GPU. ValueError if it needs a GPU."""
    if kind == "auto":
        kind = "events" if device_kind == "cuda" else "wall"
    reasons = timer_reasons(kind, device_kind)
    if reasons:
        raise ValueError("; ".join(reasons))
    if kind == "wall":
        return WallTimer(synchronize)
    return GraphTimer() if kind == "graph" else EventTimer()


@dataclass(frozen=True)
class Samples:
    """Latencies in microseconds, [rounds, calls]; the very first call apart, since it may compile."""

    us: NDArray[np.float64]
    first_call_us: float


def collect(calls: Sequence[Call], timer: Timer, rounds: int, evict: Call) -> Samples:
    """Time every call once per round; ``evict`` runs before each round and is never timed.

    Every call runs once before the first round, so that compilation, allocation and page faults are in no sample.
    """
    first = timer.time(calls[0])
    for call in calls[1:]:
        timer.time(call)
    us = np.empty((rounds, len(calls)))
    for round_ in range(rounds):
        evict()
        for index, call in enumerate(calls):
            us[round_, index] = timer.time(call)
    return Samples(us, first)


@contextmanager
def fixed_threads(count: int | None) -> Iterator[int]:
    """Run with ``count`` CPU threads (None: as they are), yield the number in force, restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
