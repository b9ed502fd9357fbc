"""Memory with a name: what was there before a step, and what the step made."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

# what a tensor was computed from; of several their union
FRESH, FROM_CACHE, WEIGHTS = frozenset({"new"}), frozenset({"cached"}), frozenset({"weights"})


@dataclass
class Made:
    """A tensor whose memory a step took. ``letters`` name its axes where the run says them, else are empty."""

    stage: str
    name: str
    letters: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    function: str
    origin: frozenset[str]
    inner: bool  # made within a submodule, on the way to its result
    storage: StorageWeakRef
    value: Tensor | None = None
    named: bool = False
    stored: bool = False  # its numbers are an entry of the cache

    @property
    def of_cache_alone(self) -> bool:
        """Whether nothing of the new tokens is in it."""
        return self.origin >= FROM_CACHE and not self.origin & FRESH

    @property
    def alive(self) -> bool:
        """Whether anything still holds its memory."""
        return not self.storage.expired()


@dataclass(frozen=True)
class Known:
    """Memory with a name: a weight, a stream of the cache, the new tokens, or a tensor that the step made."""

    first_name: str
    kind: str  # "weight", "stream", "input" or "made"
    origin: frozenset[str]
    made: Made | None = None

    @property
    def name(self) -> str:
        """What it is called by now."""
        return self.made.name if self.made else self.first_name


@dataclass(frozen=True)
class Row:
    """How streams share the rows of a slab: each one's first byte within a row of ``bytes`` bytes."""

    bytes: int
    offsets: Mapping[str, int]
    origin: frozenset[str]

    def of(self, tensor: Tensor) -> Known:
        """The stream that a view begins in."""
        at = tensor.storage_offset() * tensor.element_size() % self.bytes
        name = max((start, name) for name, start in self.offsets.items() if start <= at)[1]
        return Known(name, "stream", self.origin)
