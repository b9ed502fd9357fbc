"""Workers that only pretend, and a backend that ends its process: what tests of rounds and crews need."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from experiments.measuring.audit import Check
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
from variants.backend.eager import Eager
from variants.contract.geometry import AttentionGeometry
from variants.protocols import Plan
from variants.protocols import Request as Wanted
from variants.view import CacheView

STEADY = 100.0


@dataclass
class Pretender:
    """Says ``us(round, scope)`` for every replica, fails where ``fails`` says so, and logs what it is asked."""

    name: str
    log: list[str] = field(default_factory=list)
    us: Callable[[int, str], float] = lambda number, scope: STEADY
    fails: dict[str, Failed] = field(default_factory=dict)  # by what is noted
    held: int = 0
    sampled: dict[str, int] = field(default_factory=dict)
    kept_bytes: int = 0

    def begun(self) -> None:
        """It has."""

    def close(self) -> None:
        """Noted too."""
        self.log.append(f"{self.name} close")

    def ask(self, request: Request) -> Reply:
        """Note and answer."""
        what = type(request).__name__.lower()
        if isinstance(request, Touch | Sample):
            what = request.cell.scope if isinstance(request, Sample) else f"touch {request.cell.scope}"
        self.log.append(f"{self.name} {what}")
        return self.fails.get(what) or self._answer(request)

    def _answer(self, request: Request) -> Reply:
        match request:
            case Prepare(replicas=replicas):
                self.held = replicas
                return ready(replicas)
            case Sample(cell):
                self.sampled[cell.scope] = self.sampled.get(cell.scope, 0) + 1
                us = (self.us(self.sampled[cell.scope], cell.scope),) * max(
                    1, self.held - 1
                )  # the first opens the round
                return Taken(us, sum(us), threads=2, compiled=0)
            case Release():
                self.held = 0
                return Kept(0)
            case Begin():
                return Done()
            case Touch():
                return Touched(10.0)


def ready(replicas: int) -> Ready:
    """What a worker says of a point that it has prepared."""
    right = Check("oracle", True, "by heart")
    times = {"attend": 900.0, "step": 950.0}
    scopes = {scope: Scoped("pretended", (right,), 5.0, us, us) for scope, us in times.items()}
    return Ready(replicas, 4096, None, (), None, scopes)


@dataclass(frozen=True)
class Ending:
    """A backend that is right for ``calls`` calls, and then ends its process, or never comes back."""

    how: str
    calls: int = 3
    made: list[int] = field(default_factory=list)

    def refuses(self, request: Wanted) -> list[str]:
        """Nothing."""
        return []

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Eager's plan, with an end."""
        right = Eager().plan(geometry, view, max_length, queries)

        def attend(q):
            self.made.append(1)
            if len(self.made) > self.calls:
                self._end()
            return right.attend(q)

        return Plan(attend, "ending")

    def _end(self) -> None:
        if self.how == "exit":
            os.write(2, b"the kernel says goodbye\n")
            os._exit(7)
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "memory":
            raise MemoryError("no such row")
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "error" and len(self.made) == 1:
            os.write(2, b"words " * 1000 + b"\n" + b"\xff a line that is no text\n" * 20)
            raise RuntimeError("no such kernel")
        if self.how == "hang":
            os.write(2, b"I think\nand think\n")
            time.sleep(1000)
