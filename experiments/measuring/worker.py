"""The one who prepares and times a series: asked point by point, in the run's process or in one of its own."""

import time
from collections.abc import Callable, Sequence

import torch

from experiments.measuring import audit, clocks
from experiments.measuring.coding import coding_error
from experiments.measuring.cold import opened, repeat, touch
from experiments.measuring.compilations import compilations
from experiments.measuring.device import Device
from experiments.measuring.failure import failure
from experiments.measuring.inspect import counted_bytes, inspect
from experiments.measuring.messages import (
    Begin,
    Done,
    Failed,
    Kept,
    Prepare,
    Ready,
    Release,
    Reply,
    Request,
    Sample,
    Scoped,
    Taken,
    Touch,
    Touched,
)
from experiments.measuring.prepare import Replica, error_budget, openers, prepare, prove, weight_bytes, weights
from experiments.measuring.scopes import Proved, Timeable, ready
from experiments.measuring.series import Series
from experiments.measuring.textbook import Textbook
from experiments.measuring.timing import Call, Timer, fixed_threads
from experiments.measuring.workload import Cell
from variants.contract.cost import Point
from variants.pages import contact_s
from variants.protocols import Attention
from variants.view import TORCH_DTYPES


class Worker:
    """Holds the replicas of one point at a time. Any exception is an answer, Ctrl-C apart; ``tell`` hears of it."""

    def __init__(
        self,
        series: Series,
        threads: int,
        device: Device,
        timer: Timer,
        tell: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.series = series
        self.threads = threads
        self.device = device
        self.timer = timer
        self.tell = tell
        self.weights: list[Attention] = []  # of the replicas: the same at every point, so they stay
        self.layers: dict[int, float] = {}  # and what was proved of the first ones,
        self.textbook = Textbook()  # and is known of them
        self.replicas: list[Replica] = []
        self.made: dict[str, Timeable] = {}

    @property
    def kept_bytes(self) -> int:
        """Bytes of the weights that are there."""
        return len(self.weights) * weight_bytes(self.series)

    def begun(self) -> None:
        """Nobody starts beside it: what a point needs is made when it is needed."""

    def ask(self, request: Request) -> Reply:
        """Do what is asked, on the series' number of threads."""
        try:
            with fixed_threads(self.threads), torch.no_grad():
                return self._answer(request)
        except Exception as error:  # whatever one point does wrong is that point's row, and the next one runs
            return self._failure(error)

    def close(self) -> None:
        """Give up what is held."""
        self._release(keeping=False)

    def _answer(self, request: Request) -> Reply:
        match request:
            case Begin():
                return Done()
            case Prepare():
                return self._prepare(request)
            case Touch(cell):
                return self._touch(cell)
            case Sample(cell):
                return self._sample(cell)
            case Release(keeping):
                return self._release(keeping)

    def _prepare(self, request: Prepare) -> Ready | Failed:
        device, start, contact = self.device, time.perf_counter(), contact_s()
        del self.weights[request.replicas :]
        self.weights += [weights(self.series, device, i) for i in range(len(self.weights), request.replicas)]
        self.replicas = prepare(self.series, request.point, device, self.weights)
        contact_us = (contact_s() - contact) * 1e6
        filled_us = (time.perf_counter() - start) * 1e6 - contact_us
        first = self.replicas[0]
        found = prove(first, device.synchronize)
        budget = error_budget(TORCH_DTYPES[request.point.dtype])
        oracle = audit.matches_oracle(found.relative_error, budget)
        if not oracle.holds:
            return Failed("wrong", oracle.numbers)
        kv_error = coding_error(self.series, first.planned.attention, request.point.context, device)
        proved = Proved(oracle, found.first_call_us, kv_error, self.layers, self.textbook)
        return Ready(
            replicas=len(self.replicas),
            allocated_bytes=first.planned.cache.allocated_bytes,
            counted_bytes=counted_bytes(first.planned.cache.view),
            checks=inspect(self.replicas, budget, device.synchronize),
            kv_error=kv_error,
            scopes={scope: self._ready(request.point, scope, proved) for scope in request.scopes},
            reserved_bytes=device.reserved_memory(),
            contact_us=contact_us,
            filled_us=filled_us,
        )

    def _ready(self, point: Point, scope: str, proved: Proved) -> Scoped | Failed:
        """Prove a scope, then run every call once: compilation, allocation and page faults are in no sample."""
        try:
            made = ready(self.series, point, scope, self.replicas, proved, self.device)
            wrong = [proof for proof in made.proofs if not proof.holds]
            if wrong:
                return Failed("wrong", "; ".join(map(str, wrong)))
            self.made[scope] = made
            hardest = min(self.series.workload.temperatures)  # cold, if asked for, calls every replica
            us = [self.timer.time(call) for call in self._calls(Cell(scope, hardest))]
        except Exception as error:  # what one scope does wrong is its row, and the next one runs
            return self._failure(error)
        first = us.pop(0) if made.first_call_us is None else made.first_call_us
        checks = (*made.proofs, *made.checks)
        return Scoped(made.kernel, checks, made.plan_us, first, sum(us), made.transient_bytes)

    def _failure(self, error: Exception) -> Failed:
        self.tell(error)
        return failure(error)

    def _touch(self, cell: Cell) -> Touched:
        start = time.perf_counter()
        touch(self._calls(cell))
        self.device.synchronize()
        return Touched((time.perf_counter() - start) * 1e6)

    def _sample(self, cell: Cell) -> Taken:
        calls, kind = self._calls(cell), self.device.kind
        clocks_before, opening = clocks.look(kind), time.perf_counter()
        if cell.temperature == "cold":
            calls = opened(calls)
        else:
            repeat(calls[0])  # what was read since the last round has pushed this cell's bytes out
        before, start = compilations(), time.perf_counter()
        us = tuple(self.timer.time(call) for call in calls)
        self.device.synchronize()
        wall_us = (time.perf_counter() - start) * 1e6
        compiled, after = compilations() - before, clocks.look(kind)
        opening_us = (start - opening) * 1e6
        return Taken(us, wall_us, torch.get_num_threads(), compiled, (clocks_before, after), opening_us)

    def _calls(self, cell: Cell) -> Sequence[Call]:
        """One call per replica, the first of which opens a cold round; a warm cell repeats it as often as is timed."""
        calls = self.made[cell.scope].calls
        if cell.temperature == "cold":
            return calls
        return calls[:1] * max(1, len(calls) - openers(self.series))

    def _release(self, keeping: bool) -> Kept:
        self.replicas, self.made = [], {}
        if not keeping:
            self.weights, self.layers, self.textbook = [], {}, Textbook()
        self.device.release()
        return Kept(self.kept_bytes)
