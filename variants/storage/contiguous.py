"""One run of slots per sequence, preallocated for its full length, head-major."""

from dataclasses import dataclass

import torch

from variants.contract.layout import CacheLayout
from variants.storage.cache import Cache


@dataclass(frozen=True)
class Contiguous:
    """``[B, heads, T, W]``: simple, no table; a window is reserved in full because old slots are not reused."""

    kind = "contiguous"
    order = "hs"
    page_size = None

    def refuses(self, layout: CacheLayout, queries: int = 1) -> list[str]:
        """It holds every layout."""
        return []

    def allocated_bytes(self, layout: CacheLayout, batch: int, capacity: int) -> int:
        """Slab bytes for ``batch`` sequences of ``capacity`` tokens."""
        return batch * sum(slab.bytes(capacity) for slab in layout.slabs())

    def table_bytes(self, batch: int, capacity: int) -> int:
        """There is no table."""
        return 0

    def allocate(self, layout: CacheLayout, batch: int, capacity: int, device: torch.device) -> Cache:
        """An empty cache, every byte poisoned."""
        return Cache(self, layout, pages=batch, slots=capacity, batch=batch, device=device)


plugin = Contiguous
