"""The one who prepares and times a series: asked point by point, in the run's process or in one of its own."""

import time

import torch

from experiments.measuring import audit
from experiments.measuring.bench import Bench
from experiments.measuring.ceilings import Ceilings
from experiments.measuring.coding import coding_error
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
    Taken,
)
from experiments.measuring.prepare import Proof, Replica, error_budget, prepare, prove
from experiments.measuring.series import Series
from experiments.measuring.timing import Call, fixed_threads
from experiments.measuring.workload import Cell
from variants.view import TORCH_DTYPES

SETTLE_S = 0.02  # OpenMP threads of whoever ran before spin for some milliseconds after their last parallel region


class Worker:
    """Holds the replicas of one point at a time. Any exception is an answer, Ctrl-C apart."""

    def __init__(self, series: Series, threads: int, bench: Bench) -> None:
        self.series = series
        self.threads = threads
        self.bench = bench
        self.replicas: list[Replica] = []

    def begun(self) -> None:
        """Nobody starts beside it: what a point needs is made when it is needed."""

    def ask(self, request: Request) -> Reply:
        """Do what is asked, on the series' number of threads."""
        try:
            with fixed_threads(self.threads), torch.no_grad():
                return self._answer(request)
        except (MemoryError, torch.OutOfMemoryError) as error:
            return Failed("oom", f"out of memory: {error}")
        except Exception as error:  # whatever one point does wrong is that point's row, and the next one runs
            status = "oom" if "can't allocate memory" in str(error) else "error"  # torch's CPU allocator
            return Failed(status, f"{type(error).__name__}: {error}")

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
        proof = audit.matches_oracle(found.relative_error, error_budget(TORCH_DTYPES[request.point.dtype]))
        if not proof.holds:
            return Failed("wrong", proof.numbers)
        kv_error = coding_error(self.series, first.planned.attention, request.point.context, device)
        warm = {scope: self._warm_up(scope) for scope in self.series.workload.scopes}
        return Ready(
            replicas=len(self.replicas),
            swept_bytes=self.bench.sweep.bytes if self._sweeps else 0,
            allocated_bytes=first.planned.cache.allocated_bytes,
            kernel=first.planned.plan.kernel,
            proof=proof,
            kv_error=kv_error,
            plan_us=first.plan_us,
            first_call_us={scope: _first(scope, us, found) for scope, us in warm.items()},
            warmup_us={scope: sum(us[1:]) for scope, us in warm.items()},
        )

    def _warm_up(self, scope: str) -> list[float]:
        """Run every call once, so that compilation, allocation and page faults are in no sample; microseconds."""
        hardest = min(self.series.workload.temperatures)  # cold, if asked for, calls every replica
        return [self.bench.timer.time(call) for call in self._calls(Cell(scope, hardest))]

    def _sample(self, cell: Cell) -> Taken:
        calls = self._calls(cell)
        if cell.temperature == "cold":
            self.bench.sweep()
        else:
            _repeat(calls[0], SETTLE_S)  # what was read since the last round has pushed this cell's bytes out
        return Taken(tuple(self.bench.timer.time(call) for call in calls))

    def _calls(self, cell: Cell) -> list[Call]:
        """One call per replica; a warm cell repeats the first replica's."""
        calls = [replica.attend if cell.scope == "attend" else replica.step for replica in self.replicas]
        return calls if cell.temperature == "cold" else calls[:1] * len(calls)

    def _release(self) -> Done:
        self.replicas = []
        self.bench.device.release()
        return Done()


def _first(scope: str, us: list[float], found: Proof) -> float:
    """The very first call of a scope; for ``attend`` that was the one which was held against the oracle."""
    return found.first_call_us if scope == "attend" else us[0]


def _repeat(call: Call, seconds: float) -> None:
    end = time.perf_counter() + seconds
    call()
    while time.perf_counter() < end:
        call()
