"""The one who prepares and times a series: asked point by point, in the run's process or in one of its own."""

import time

import torch

from experiments.measuring import audit
from experiments.measuring.bench import Bench
from experiments.measuring.ceilings import Ceilings
from experiments.measuring.coding import coding_error
from experiments.measuring.cold import make_cold
from experiments.measuring.compilations import compilations
from experiments.measuring.inspect import counted_bytes, inspect
from experiments.measuring.messages import (
    Begin,
    Done,
    Failed,
    MeasureMatmul,
    MeasureRead,
    Prepare,
    Rate,
    Ready,
    Release,
    Reply,
    Request,
    Sample,
    Scoped,
    Taken,
)
from experiments.measuring.prepare import Replica, error_budget, prepare, prove
from experiments.measuring.scopes import Proved, Timeable, ready
from experiments.measuring.series import Series
from experiments.measuring.timing import Call, fixed_threads
from experiments.measuring.workload import Cell
from variants.contract.cost import Point
from variants.view import TORCH_DTYPES

WARM_S = 0.02  # until OpenMP threads of whoever ran before have stopped spinning


class Worker:
    """Holds the replicas of one point at a time. Any exception is an answer, Ctrl-C apart."""

    def __init__(self, series: Series, threads: int, bench: Bench) -> None:
        self.series = series
        self.threads = threads
        self.bench = bench
        self.replicas: list[Replica] = []
        self.made: dict[str, Timeable] = {}

    def begun(self) -> None:
        """Nobody starts beside it: what a point needs is made when it is needed."""

    def ask(self, request: Request) -> Reply:
        """Do what is asked, on the series' number of threads."""
        try:
            with fixed_threads(self.threads), torch.no_grad():
                return self._answer(request)
        except Exception as error:  # whatever one point does wrong is that point's row, and the next one runs
            return _failure(error)

    def close(self) -> None:
        """Give up what is held."""
        self._release()

    @property
    def _sweeps(self) -> bool:
        return "cold" in self.series.workload.temperatures

    def _answer(self, request: Request) -> Reply:
        match request:
            case Begin():
                return self._begin()
            case Prepare():
                return self._prepare(request)
            case Sample(cell):
                return self._sample(cell)
            case Release():
                return self._release()
            case MeasureRead(again):
                return self._read(again)
            case MeasureMatmul(dtype):
                return Rate(self.bench.matmul_tflops(dtype))

    def _begin(self) -> Done:
        if self._sweeps:
            self.bench.sweep()
        return Done()

    def _read(self, again: bool) -> Ceilings:
        return self.bench.fresh_ceilings() if again else self.bench.ceilings

    def _prepare(self, request: Prepare) -> Ready | Failed:
        device = self.bench.device
        self.replicas = prepare(self.series, request.point, device, request.replicas)
        first = self.replicas[0]
        found = prove(first, device.synchronize)
        budget = error_budget(TORCH_DTYPES[request.point.dtype])
        oracle = audit.matches_oracle(found.relative_error, budget)
        if not oracle.holds:
            return Failed("wrong", oracle.numbers)
        kv_error = coding_error(self.series, first.planned.attention, request.point.context, device)
        proved = Proved(oracle, found.first_call_us, kv_error)
        return Ready(
            replicas=len(self.replicas),
            swept_bytes=self.bench.sweep.bytes if self._sweeps else 0,
            allocated_bytes=first.planned.cache.allocated_bytes,
            counted_bytes=counted_bytes(first.planned.cache.view),
            checks=inspect(self.replicas, budget, device.synchronize),
            kv_error=kv_error,
            scopes={scope: self._ready(request.point, scope, proved) for scope in request.scopes},
        )

    def _ready(self, point: Point, scope: str, proved: Proved) -> Scoped | Failed:
        """Prove a scope, then run every call once: compilation, allocation and page faults are in no sample."""
        try:
            made = ready(self.series, point, scope, self.replicas, proved, self.bench.device.synchronize)
            if not made.proof.holds:
                return Failed("wrong", made.proof.numbers)
            self.made[scope] = made
            hardest = min(self.series.workload.temperatures)  # cold, if asked for, calls every replica
            us = [self.bench.timer.time(call) for call in self._calls(Cell(scope, hardest))]
        except Exception as error:  # what one scope does wrong is its row, and the next one runs
            return _failure(error)
        first = us[0] if made.first_call_us is None else made.first_call_us
        return Scoped(made.kernel, made.proof, made.plan_us, first, sum(us[1:]))

    def _sample(self, cell: Cell) -> Taken:
        calls = self._calls(cell)
        if cell.temperature == "cold":
            make_cold(calls, self.bench.sweep)
        else:
            _repeat(calls[0], WARM_S)  # what was read since the last round has pushed this cell's bytes out
        before, start = compilations(), time.perf_counter()
        us = tuple(self.bench.timer.time(call) for call in calls)
        self.bench.device.synchronize()
        wall_us = (time.perf_counter() - start) * 1e6
        return Taken(us, wall_us, torch.get_num_threads(), compilations() - before)

    def _calls(self, cell: Cell) -> list[Call]:
        """One call per replica; a warm cell repeats the first replica's."""
        calls = list(self.made[cell.scope].calls)
        return calls if cell.temperature == "cold" else calls[:1] * len(calls)

    def _release(self) -> Done:
        self.replicas, self.made = [], {}
        self.bench.device.release()
        return Done()


def _failure(error: Exception) -> Failed:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return Failed("oom", f"out of memory: {error}")
    status = "oom" if "can't allocate memory" in str(error) else "error"  # torch's CPU allocator
    return Failed(status, f"{type(error).__name__}: {error}")


def _repeat(call: Call, seconds: float) -> None:
    end = time.perf_counter() + seconds
    call()
    while time.perf_counter() < end:
        call()
