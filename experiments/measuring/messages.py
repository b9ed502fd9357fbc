"""What the run asks of the worker of a series, and what it hears back. Plain data: it crosses between processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from experiments.measuring.audit import Check
from experiments.measuring.clocks import UNREADABLE, Clocks
from experiments.measuring.workload import Cell
from variants.contract.cost import Point


@dataclass(frozen=True)
class Begin:
    """Say that the worker is there. Answer: Done."""


@dataclass(frozen=True)
class Prepare:
    """Make ``replicas`` of a point, prove the answers of some scopes, warm everything up. Answer: Ready."""

    point: Point
    replicas: int
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class Touch:
    """Run every replica once, so that a cold cell's bytes are in memory, ready to be read. Answer: Touched."""

    cell: Cell


@dataclass(frozen=True)
class Sample:
    """Time every replica once; a cold cell, touched and evicted before, is opened by the first. Answer: Taken."""

    cell: Cell


@dataclass(frozen=True)
class Release:
    """Give up the point's memory. Answer: Kept.

    ``keeping``: except what the next point needs as well, the weights.
    """

    keeping: bool = True


@dataclass(frozen=True)
class Failed:
    """The status and reason of rows that will have no latency, and the last words of the process that failed.

    ``tried``: whether anything was, at this point; not where a refusal, or the worker's end before it, came first.
    """

    status: str
    reason: str
    stderr: str | None = None
    tried: bool = True


@dataclass(frozen=True)
class Scoped:
    """What is known of a scope that is ready to be sampled; microseconds. A call allocates ``transient_bytes``."""

    kernel: str
    checks: tuple[Check, ...]
    plan_us: float
    first_call_us: float
    warmup_us: float
    transient_bytes: int | None = None


@dataclass(frozen=True)
class Ready:
    """What is known of a prepared point, samples apart. A scope that failed leaves the others as they are.

    ``counted_bytes``: what the tokens take in the tensors, where that can be told. ``reserved_bytes``: the allocator
    holds them; None where there is none. ``contact_us``: for touching the memory of weights and caches first;
    ``filled_us``: for making and filling them otherwise.
    """

    replicas: int
    allocated_bytes: int
    counted_bytes: int | None
    checks: tuple[Check, ...]
    kv_error: float | None
    scopes: Mapping[str, Scoped | Failed]
    reserved_bytes: int | None = None
    contact_us: float = 0.0
    filled_us: float = 0.0


@dataclass(frozen=True)
class Taken:
    """One round: microseconds [timed replicas], and those from before the first call until the device was idle.

    ``threads``: CPU threads in force; ``compiled``: compilations meanwhile; ``clocks`` before and after;
    ``opening_us``: microseconds that went into calls before the first timed one.
    """

    us: tuple[float, ...]
    wall_us: float
    threads: int
    compiled: int
    clocks: tuple[Clocks, Clocks] = (UNREADABLE, UNREADABLE)
    opening_us: float = 0.0


@dataclass(frozen=True)
class Touched:
    """Microseconds that it took."""

    wall_us: float


@dataclass(frozen=True)
class Kept:
    """Bytes that are still held, for the next point."""

    bytes: int


@dataclass(frozen=True)
class Done:
    """Nothing to tell."""


Request = Begin | Prepare | Touch | Sample | Release
Reply = Ready | Taken | Touched | Kept | Done | Failed


class Hand(Protocol):
    """A worker as the run sees it, in this process or in one of its own."""

    @property
    def kept_bytes(self) -> int:
        """What it holds between two points."""
        ...

    def begun(self) -> None:
        """Wait until it can be asked."""
        ...

    def ask(self, request: Request) -> Reply:
        """Wait for the answer; whatever goes wrong is ``Failed``."""
        ...

    def close(self) -> None:
        """End it."""
        ...
