"""A preallocated cache written by position; policies differ only in how positions map to slots."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from variants.codes import encode
from variants.contract.layout import CacheLayout, Stream
from variants.noise import APART, noise_
from variants.pages import reserve
from variants.protocols import Entries, StoragePolicy
from variants.view import CacheView

POISON = 0xFF  # all bits set: NaN in every float format (fp64, fp32, fp16, bf16, e4m3)


class Cache:
    """Slabs of ``pages`` pages of ``slots`` slots; ``block_table`` None means that page b is sequence b.

    Lengths live in ``view.lengths`` and change in place: a plan made on the view sees them. A length that is needed
    after a write must be read before it by value (``lengths.clone()``).
    """

    def __init__(
        self,
        policy: StoragePolicy,
        layout: CacheLayout,
        pages: int,
        slots: int,
        batch: int,
        device: torch.device,
        block_table: Int[Tensor, "B N"] | None = None,
        start: Int[Tensor, "B"] | None = None,
    ) -> None:
        self.policy = policy
        shapes = [(pages, slab.heads, slots, slab.row_bytes) for slab in layout.slabs()]
        slabs = tuple(reserve(shape, device).fill_(POISON) for shape in shapes)
        lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.view = CacheView(layout, slabs, lengths, block_table, start)
        self._slots = slots
        self._row = torch.arange(batch, device=device)[:, None]

    @property
    def capacity(self) -> int:
        """Tokens a sequence can hold."""
        pages = 1 if self.view.block_table is None else self.view.block_table.shape[1]
        return pages * self._slots

    @property
    def most_at_once(self) -> int:
        """A write may fill the whole cache."""
        return self.capacity

    @property
    def allocated_bytes(self) -> int:
        """Bytes the slabs take."""
        return sum(slab.nbytes for slab in self.view.slabs)

    def write(self, entries: Entries, position: Int[Tensor, "B Q"]) -> None:
        """Store entries at their positions; lengths become last position + 1. Writing twice changes nothing.

        Positions are trusted to be below ``capacity`` (checking would stop the device); the decoder checks on the host.
        """
        page, slot = self._place(position)
        for name, entry in entries.items():
            for part, rows in encode(entry, self.view.layout.stream(name)).items():
                stream = self.view.stream(part)
                stream[page, :, slot] = rows.to(stream.dtype)
        self.view.lengths.copy_(position[:, -1] + 1)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first ``lengths`` tokens of each sequence and poison what follows."""
        position = torch.arange(self.capacity, device=lengths.device).expand(len(lengths), -1)
        row, column = (position >= lengths[:, None]).nonzero(as_tuple=True)
        page, slot = (index[row, column] for index in torch.broadcast_tensors(*self._place(position)))
        page, slot = page[page >= 0], slot[page >= 0]  # a missing page is -1, which would index the pool's last one
        for slab in self.view.slabs:
            slab[page, :, slot] = POISON
        self.view.lengths.copy_(lengths)

    def fill_noise(self, length: int, seed: int, start: int = 0) -> None:
        """Standard normal noise in slots [0, length) of every sequence, touching each byte that will be read.

        No two sequences, heads or streams hold the same, and no two tokens of one of them: a backend that mixes them
        up, or stops half way, must not look right. Of many, some hold a part of the same tokens at other positions.
        ``start`` shifts all of it.
        """
        for slab in self.view.slabs:
            slab[:, :, length:] = POISON
        pages = range(len(self.view.slabs[0]))
        runs = (
            (s, (p, head, slice(length))) for s in self.view.layout.entries for p in pages for head in range(s.heads)
        )
        for index, (stream, where) in enumerate(runs):
            self._noise(stream, where, seed, start + index * APART)
        self.view.lengths.fill_(length)

    def _noise(self, stream: Stream, where: Any, seed: int, start: int) -> None:
        """Noise in the slots that ``where`` selects of a stream, encoded where it holds codes."""
        slots = self.view.stream(stream.name)[where]
        if stream.quant is None:
            noise_(slots, seed, start)
            return
        drawn = noise_(torch.empty(slots.shape, device=slots.device), seed, start)
        for part, rows in encode(drawn, stream).items():
            self.view.stream(part)[where].copy_(rows)

    def _place(self, position: Int[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        if self.view.block_table is None:
            return self._row, position
        return self.view.block_table[self._row, position // self._slots].long(), position % self._slots
