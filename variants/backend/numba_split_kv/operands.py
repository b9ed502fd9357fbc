"""A cache view as the flat numpy arrays that the kernel takes; nothing is copied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.layout import Window
from variants.view import CacheView

Array = NDArray[Any]
PAGE, HEAD, SLOT, WIDTH = range(4)  # columns of ``Operands.places``


@dataclass(frozen=True)
class Operands:
    """Keys are ``key`` beside ``tail``, values ``value``: a slab's elements, flat, so that every cache is one type.

    ``places`` [3, 4] says where a row of key, tail and value lies: strides of page, head (0: one head serves all) and
    slot, and width (0: no tail). ``table`` [B, N], ``lengths`` and ``start`` [B] are the cache's own and
    change in place. Position p lies in page ``table[b, min(p // slots, N - 1)]``, slot p % slots: pages, one run and a
    ring alike. ``window`` 0 means all tokens.
    """

    key: Array
    tail: Array
    value: Array
    places: Array
    table: Array
    lengths: Array
    start: Array
    slots: int
    window: int

    def held(self, max_length: int, queries: int) -> int:
        """Most tokens that a step reads of one sequence."""
        room = self.table.shape[1] * self.slots
        return min(max_length, int(room), self.window + queries - 1 if self.window else max_length)


def operands(geometry: AttentionGeometry, view: CacheView) -> Operands:
    """The arrays of a view; bfloat16 as uint16."""
    runs = [geometry.key] if view.joined(geometry.key) is not None else [(span,) for span in geometry.key]
    parts = [_flat(view, run) for run in (runs[0], runs[-1], geometry.value)]
    places = np.array([place for _, place in parts], dtype=np.int64)
    if len(runs) == 1:
        places[1, WIDTH] = 0
    batch = len(view.lengths)
    table = view.block_table if view.block_table is not None else torch.arange(batch, dtype=torch.int32)[:, None]
    start = view.start if view.start is not None else torch.zeros(batch, dtype=torch.int32)
    keep = view.layout.stream(geometry.key[0].stream).keep
    key, tail, value = (memory for memory, _ in parts)
    return Operands(
        key=key,
        tail=tail,
        value=value,
        places=places,
        table=table.numpy(),
        lengths=view.lengths.numpy(),
        start=start.numpy(),
        slots=view.slabs[0].shape[2],
        window=keep.size if isinstance(keep, Window) else 0,
    )


def split_tokens(chunk: int | None, max_length: int, tasks: int, threads: int) -> int:
    """Tokens per split: about eight tasks per thread, so that uneven ones even out, but at least 256 tokens each."""
    if chunk is not None:
        return chunk
    splits = max(1, -(-8 * threads // tasks))
    return max(256, -(-max_length // splits))


def _flat(view: CacheView, spans: Sequence[Span]) -> tuple[Array, tuple[int, ...]]:
    """The elements from the first of ``spans`` on, and where its rows lie in them."""
    rows = view.joined(spans)
    assert rows is not None  # one span, or spans that ``operands`` has found joined
    pages, heads, slots, width = rows.shape
    page, head, slot, _ = rows.stride()
    length = (pages - 1) * page + (heads - 1) * head + (slots - 1) * slot + width
    memory = rows.as_strided((length,), (1,))
    return _array(memory), (page, head if heads > 1 else 0, slot, width)


def _array(tensor: Tensor) -> Array:
    """A numpy view of a CPU tensor; bfloat16, which numpy lacks, as uint16."""
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
