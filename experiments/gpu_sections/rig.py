"""What every section is given: a device, its clocks and ceilings, and how large things are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from experiments.benching.sizes import Sizes
from experiments.measuring.bench import Bench
from experiments.measuring.ceilings import Ceilings, measure_ceilings
from experiments.measuring.device import Device
from experiments.measuring.sweep import Sweep
from experiments.measuring.timing import Call, EventTimer, GraphTimer, Timer, capture
from variants.contract.plugin import find
from variants.decode import Refused
from variants.protocols import Backend

Row = dict[str, Any]  # "case", "status" and what was seen; where there is a target, "target" and "met"
READ_CEILING = 80  # times the last-level cache: of so much next to nothing is still in it


@dataclass(frozen=True)
class Scale:
    """How large things are; the second batch and the second context are where the targets are set."""

    head_dim: int = 128
    few_heads: int = 32
    many_heads: int = 128
    batches: tuple[int, ...] = (1, 16, 32, 128)
    contexts: tuple[int, ...] = (1024, 8192, 32768)
    lengths: tuple[int, ...] = (1, 0, 63, 64, 65, 1000, 2011)  # of a ragged batch
    rounds: int = 10
    replicas: int = 8  # most copies of a cache to go round over
    workers: int = 12  # processes that compile and check side by side; 0: none but this one

    def layer(self, heads: int) -> Sizes:
        """A layer of that many query heads."""
        return Sizes(hidden_size=heads * self.head_dim, num_q_heads=heads, head_dim=self.head_dim)

    @property
    def middle(self) -> tuple[int, int]:
        """Batch and context of the targets."""
        return self.batches[1], self.contexts[1]


@dataclass
class Rig:
    """``ours`` names the backend under test. ``captured`` turns a call into one that replays its graph."""

    device: Device
    ours: str = "triton_split_kv"
    scale: Scale = field(default_factory=Scale)
    events: Timer = field(default_factory=EventTimer)
    graph: Timer = field(default_factory=GraphTimer)
    captured: Callable[[Call], Call] = lambda call: capture(call).replay

    @cached_property
    def bench(self) -> Bench:
        """The sweep that evicts caches, and matmul ceilings."""
        return Bench(self.device, self.events)

    @cached_property
    def ceilings(self) -> Ceilings:
        """Read ceilings over a buffer much larger than the caches."""
        return measure_ceilings(Sweep(self.device, READ_CEILING), self.events)

    def backend(self, kind: str, options: Mapping[str, Any] | None = None) -> Backend:
        """A backend by name; raises Refused for a name or an option that this checkout has not."""
        try:
            backend: Backend = find("backend", kind)(**(options or {}))
        except (TypeError, ValueError) as error:
            raise Refused(f"backend {kind}: {error}") from None
        return backend


@dataclass(frozen=True)
class Section:
    """Rows one by one, so that none is lost, within ``seconds``."""

    rows: Callable[[Rig], Iterator[Row]]
    seconds: float


def one_line(error: BaseException) -> str:
    """An error as the reason in a row."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
