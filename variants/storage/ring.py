"""The last tokens only: slots of a window are reused in a circle."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from variants.contract.checks import check_count
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout
from variants.protocols import Entries
from variants.storage.cache import Cache

UNBOUNDED = 2**31 - 1  # tokens a sequence may see; lengths are int32


@dataclass(frozen=True)
class Ring:
    """``[B, heads, window + queries - 1, W]``: position p lies in slot p modulo the number of slots.

    ``queries`` is the largest step: its first query still needs window - 1 keys older than itself when the step's last
    token has been written. Every stream must keep the same Window.
    """

    queries: int = 1

    kind = "ring"
    order = "hs"
    page_size = None

    def __post_init__(self) -> None:
        check_count("queries", self.queries)

    def refuses(self, layout: CacheLayout, queries: int = 1) -> list[str]:
        """Layouts whose streams do not all keep the same window, and steps that it has no slots for."""
        keeps = {stream.keep for stream in layout.streams}
        one_window = len(keeps) == 1 and isinstance(next(iter(keeps)), Window)
        checks = {
            "ring needs one window for all streams, e.g. attention.window=4096; "
            f"got {', '.join(sorted(map(str, keeps)))}": not one_window,
            f"ring has slots for steps of {self.queries} new tokens; a step brings {queries} "
            f"(storage.queries={queries} makes room)": queries > self.queries,
        }
        return [reason for reason, holds in checks.items() if holds]

    def slots(self, layout: CacheLayout, capacity: int) -> int:
        """window + queries - 1, or ``capacity`` where sequences never fill that; ValueError without one window."""
        window = layout.streams[0].keep
        reasons = self.refuses(layout)
        if reasons or not isinstance(window, Window):
            raise ValueError("; ".join(reasons))
        return min(window.size + self.queries - 1, capacity)

    def bounded(self, layout: CacheLayout, slots: int) -> bool:
        """Whether ``slots`` are fewer than a window needs, so that nothing may ever be overwritten."""
        return slots < self.slots(layout, UNBOUNDED)

    def allocated_bytes(self, layout: CacheLayout, batch: int, capacity: int) -> int:
        """Slab bytes of the slots."""
        return batch * sum(slab.bytes(self.slots(layout, capacity)) for slab in layout.slabs())

    def table_bytes(self, batch: int, capacity: int) -> int:
        """There is no table."""
        return 0

    def allocate(self, layout: CacheLayout, batch: int, capacity: int, device: torch.device) -> "RingCache":
        """An empty ring, every byte poisoned."""
        return RingCache(self, layout, self.slots(layout, capacity), batch, device)


class RingCache(Cache):
    """A cache that overwrites its oldest tokens; ``view.start`` is the oldest position still held."""

    def __init__(self, policy: Ring, layout: CacheLayout, slots: int, batch: int, device: torch.device) -> None:
        start = torch.zeros(batch, dtype=torch.int32, device=device)
        super().__init__(policy, layout, batch, slots, batch, device, start=start)
        self._queries = policy.queries
        self._capacity = slots if policy.bounded(layout, slots) else UNBOUNDED

    @property
    def capacity(self) -> int:
        """Sequences may grow for ever, unless the slots were cut to fewer than the window needs."""
        return self._capacity

    @property
    def most_at_once(self) -> int:
        """Tokens that a write may bring before it would overwrite keys its first query still needs."""
        return self._queries

    def write(self, entries: Entries, position: Int[Tensor, "B Q"]) -> None:
        """Store entries over the oldest ones and move ``start`` on; ValueError for more tokens than it has room for."""
        if position.shape[1] > self._queries:
            raise ValueError(f"a ring of queries={self._queries} takes as many new tokens; got {position.shape[1]}")
        super().write(entries, position)
        start = self.view.start
        assert start is not None
        start.copy_((self.view.lengths - self._slots).clamp(min=0))

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """A ring cannot bring back what it has overwritten; ValueError."""
        raise ValueError("a ring has overwritten older tokens and cannot be truncated; use contiguous or paged")

    def fill_noise(self, length: int, seed: int, start: int = 0) -> None:
        """Noise in every slot that ``length`` tokens would have written."""
        super().fill_noise(min(length, self._slots), seed, start)
        self.view.lengths.fill_(length)
        assert self.view.start is not None
        self.view.start.fill_(max(0, length - self._slots))

    def _place(self, position: Int[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        return self._row, position % self._slots


plugin = Ring
