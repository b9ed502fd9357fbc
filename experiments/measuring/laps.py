"""How long the ranks of a step spend in talking to each other."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from variants.parallel.ranks import Ranks


@dataclass(frozen=True)
class ClockedRanks(Ranks):
    """Ranks that note when each collective began and ended: host time, or events on a GPU's stream."""

    laps: list[tuple[Any, Any]] = field(default_factory=list)

    def total(self, y: Tensor) -> Tensor:
        """The sum over tp ranks, in place."""
        with self._lap(y.is_cuda):
            return super().total(y)

    def gathered(self, part: Tensor) -> Tensor:
        """The parts of all cp ranks, in their order."""
        with self._lap(part.is_cuda):
            return super().gathered(part)

    def spent_us(self) -> float:
        """Microseconds in the collectives noted, which are forgotten; call it when the device is idle."""
        spent = sum(a.elapsed_time(b) * 1e3 if hasattr(a, "elapsed_time") else (b - a) / 1e3 for a, b in self.laps)
        self.laps.clear()
        return float(spent)

    @contextmanager
    def _lap(self, on_gpu: bool) -> Iterator[None]:
        before = _mark(on_gpu)
        yield
        self.laps.append((before, _mark(on_gpu)))


def _mark(on_gpu: bool) -> Any:
    if not on_gpu:
        return time.perf_counter_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
