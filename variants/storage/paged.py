"""Pages of a shared pool, as serving engines keep a cache: allocated and freed by page, in no order."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from variants.contract.checks import check_count
from variants.contract.keep import Keep
from variants.contract.layout import CacheLayout
from variants.noise import APART, RUN
from variants.protocols import Entries
from variants.storage.cache import POISON, Cache

LARGEST_PAGE = 256
NO_PAGE = -1


@dataclass(frozen=True)
class Paged:
    """``[P, heads, S, W]`` with a block table per sequence; pages are handed out in a seeded random order.

    Raises ValueError unless 1 <= page_size <= 256.
    """

    page_size: int = 16
    seed: int = 0

    kind = "paged"
    order = "hs"

    def __post_init__(self) -> None:
        check_count("page_size", self.page_size)
        if self.page_size > LARGEST_PAGE:
            raise ValueError(f"page_size must be between 1 and {LARGEST_PAGE}; got {self.page_size}")

    def pages(self, capacity: int) -> int:
        """Pages of a sequence of ``capacity`` tokens; the last may be part empty."""
        return -(-capacity // self.page_size)

    def refuses(self, layout: CacheLayout, queries: int = 1) -> list[str]:
        """It holds every layout."""
        return []

    def allocated_bytes(self, layout: CacheLayout, batch: int, capacity: int) -> int:
        """Slab bytes of whole pages."""
        return batch * self.pages(capacity) * sum(slab.bytes(self.page_size) for slab in layout.slabs())

    def table_bytes(self, batch: int, capacity: int) -> int:
        """One int32 per page."""
        return 4 * batch * self.pages(capacity)

    def allocate(self, layout: CacheLayout, batch: int, capacity: int, device: torch.device) -> "PagedCache":
        """An empty cache whose sequences own distinct pages, every byte poisoned."""
        return PagedCache(self, layout, batch, self.pages(capacity), device)


class PagedCache(Cache):
    """A cache over a pool. Rows own pages, or read the first pages of another row (a shared prefix)."""

    def __init__(self, policy: Paged, layout: CacheLayout, batch: int, pages_each: int, device: torch.device) -> None:
        shuffled = torch.randperm(batch * pages_each, generator=torch.Generator().manual_seed(policy.seed))
        table = shuffled.to(torch.int32).view(batch, pages_each).to(device)
        super().__init__(policy, layout, batch * pages_each, policy.page_size, batch, device, table)
        self._free: list[int] = []
        self._readers = [1] * (batch * pages_each)
        self._incomplete: set[int] = set()  # rows that miss pages; on the host, so that no write stops the device

    def write(self, entries: Entries, position: Int[Tensor, "B Q"]) -> None:
        """Store entries at their positions; ValueError while a released row has not claimed pages again."""
        if self._incomplete:
            raise ValueError(f"rows {sorted(self._incomplete)} have no pages to write to; claim some first")
        super().write(entries, position)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first ``lengths`` tokens of each sequence and poison what follows.

        Raises ValueError if a row would keep tokens it has no pages for, or next write into pages another row reads.
        """
        for row, (length, pages) in enumerate(zip(lengths.tolist(), self._table.tolist(), strict=True)):
            if NO_PAGE in pages[: -(-length // self._slots)]:
                raise ValueError(f"row {row} has no pages for {length} tokens; claim some first")
            if any(page != NO_PAGE and self._readers[page] > 1 for page in pages[length // self._slots :]):
                raise ValueError(f"row {row} cannot keep {length} tokens only: another row reads the pages behind them")
        super().truncate(lengths)

    def fill_noise(self, length: int, seed: int, start: int = 0) -> None:
        """Noise in the pages of ``length`` tokens per sequence, no two the same; slots behind them stay poisoned."""
        parts = ((s, part) for s in self.view.layout.entries for part in _page_runs(self.view.stream(s.name)))
        for index, (stream, pages) in enumerate(parts):
            self._noise(stream, pages, seed, start + index * APART)
        for slab in self.view.slabs:
            slab[self._free] = POISON
        self.truncate(torch.full_like(self.view.lengths, length))

    @property
    def _table(self) -> Int[Tensor, "B N"]:
        table = self.view.block_table
        assert table is not None
        return table

    def release(self, row: int) -> None:
        """Give a row's pages back, poisoned unless another row still reads them; the row is empty after."""
        for page in self._table[row].tolist():
            if page != NO_PAGE:
                self._drop(page)
        self._table[row] = NO_PAGE
        self.view.lengths[row] = 0
        self._incomplete.add(row)

    def claim(self, row: int) -> None:
        """Give an empty row pages from the pool, the last freed first; ValueError if the pool has too few."""
        missing = (self._table[row] == NO_PAGE).nonzero().flatten()
        if len(missing) > len(self._free):
            raise ValueError(f"row {row} needs {len(missing)} pages; the pool has {len(self._free)} free")
        for column in missing.tolist():
            page = self._free.pop()
            self._readers[page] = 1
            self._table[row, column] = page
        self._incomplete.discard(row)

    def share_prefix(self, row: int, source: int, tokens: int) -> None:
        """Let an empty row read the first ``tokens`` tokens of ``source`` instead of holding its own.

        Only whole pages can be shared, since the row writes its own tokens from there on. The pages it had in their
        place go back to the pool.
        Raises ValueError if tokens is no multiple of the page size, not cached by ``source``, or the row is not empty.
        """
        pages, rest = divmod(tokens, self._slots)
        held = int(self.view.lengths[source])
        if rest or not 0 < tokens <= held:
            raise ValueError(
                f"tokens must be a positive multiple of page_size={self._slots} and at most {held}; got {tokens}"
            )
        if int(self.view.lengths[row]):
            raise ValueError(f"row {row} must be empty; it holds {int(self.view.lengths[row])} tokens")
        for column, page in enumerate(self._table[source, :pages].tolist()):
            self._drop(int(self._table[row, column]))
            self._table[row, column] = page
            self._readers[page] += 1
        self.view.lengths[row] = tokens
        if NO_PAGE not in self._table[row].tolist():
            self._incomplete.discard(row)

    @property
    def unique_bytes(self) -> int:
        """Bytes of the cached tokens with shared pages counted once; logical bytes count them per reader."""
        position = torch.arange(self.capacity, device=self._table.device).expand(len(self._table), -1)
        page, slot = self._place(position)
        place = page * self._slots + slot
        return sum(s.entry_bytes * len(place[self._kept(s.keep, position)].unique()) for s in self.view.layout.streams)

    def _kept(self, keep: Keep, position: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Which tokens of each row a stream keeps: the last ones, as many as the layout counts."""
        entries = [keep.entries(length) for length in self.view.lengths.tolist()]
        end = self.view.lengths[:, None]
        return (position < end) & (position >= end - torch.tensor(entries, device=position.device)[:, None])

    def _drop(self, page: int) -> None:
        if page == NO_PAGE:
            return
        self._readers[page] -= 1
        if self._readers[page] == 0:
            for slab in self.view.slabs:
                slab[page] = POISON  # a stale read is a NaN, not yesterday's token
            self._free.append(page)


def _page_runs(stream: Shaped[Tensor, "P heads S W"]) -> list[slice]:
    """Pages in runs of as much noise as is copied at once: codes are made of float32, and not of a whole pool's."""
    each = max(1, RUN // stream[0].numel())
    return [slice(first, first + each) for first in range(0, len(stream), each)]


plugin = Paged
