"""A cache view as the flat numpy arrays that the kernels take; nothing is copied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.view import CacheView

Array = NDArray[Any]
PAGE, HEAD, SLOT, WIDTH = range(4)  # columns of a place
WORDS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.int8: torch.uint8}
NOWHERE = (0, 0, 0, 0)
TASKS = 8  # per thread, at the most
IDLE = 1.05  # times the work, that threads may take together


@dataclass(frozen=True)
class Operand:
    """A slab's elements from the first one that is read, flat, so that every cache is one type of array.

    ``place`` says where a row lies in them: strides of page, head (0: one head serves all) and slot, and width (0:
    there is no such operand). bfloat16 comes as uint16, codes as uint8.
    """

    memory: Array
    place: Array

    @property
    def coded(self) -> bool:
        """Whether these are codes."""
        return bool(self.memory.dtype == np.uint8)


@dataclass(frozen=True)
class Operands:
    """Keys are ``key`` beside ``tail``, values ``value``; codes have scales per block of columns.

    ``value_in_key``: the values are the key's first columns and codes like them, so that one decoding serves both.
    ``table`` [B, N], ``lengths`` and ``start`` [B] are the cache's own and change in place. Position p lies in page
    ``table[b, min(p // slots, N - 1)]``, slot p % slots: pages, one run and a ring alike. ``window`` 0: all tokens.
    """

    key: Operand
    tail: Operand
    value: Operand
    key_scale: Operand
    value_scale: Operand
    blocks: tuple[int, int]
    fp8: bool
    value_in_key: bool
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
    """The arrays of a view."""
    runs = [geometry.key] if view.joined(geometry.key) is not None else [(span,) for span in geometry.key]
    first, value = view.layout.stream(geometry.key[0].stream), view.layout.stream(geometry.value[0].stream)
    batch = len(view.lengths)
    table = view.block_table if view.block_table is not None else torch.arange(batch, dtype=torch.int32)[:, None]
    start = view.start if view.start is not None else torch.zeros(batch, dtype=torch.int32)
    return Operands(
        key=_operand(view, runs[0]),
        tail=_operand(view, runs[1]) if len(runs) > 1 else _nothing(first.dtype),
        value=_operand(view, geometry.value),
        key_scale=_scales(view, runs[0][0]),
        value_scale=_scales(view, geometry.value[0]),
        blocks=(first.quant.block if first.quant else 1, value.quant.block if value.quant else 1),
        fp8=first.dtype is Dtype.FP8_E4M3,
        value_in_key=first.quant is not None and _opens(geometry.value[0], runs[0][0]),
        table=table.numpy(),
        lengths=view.lengths.numpy(),
        start=start.numpy(),
        slots=view.slabs[0].shape[2],
        window=first.keep.size if isinstance(first.keep, Window) else 0,
    )


def split_tokens(chunk: int | None, max_length: int, tasks: int, threads: int) -> int:
    """Tokens per split: as few splits as keep all threads busy to the end, but at least 256 tokens each.

    Tasks are dealt out evenly beforehand, so what counts is that threads divide them, nearly; more only cost merging.
    """
    if chunk is not None:
        return chunk
    most = -(-TASKS * threads // tasks)
    even = (n for n in range(1, most) if -(-tasks * n // threads) * threads <= IDLE * tasks * n)
    return max(256, -(-max_length // next(even, most)))


def _opens(inner: Span, outer: Span) -> bool:
    return (inner.stream, inner.start) == (outer.stream, outer.start) and inner.stop <= outer.stop


def _scales(view: CacheView, span: Span) -> Operand:
    """Scales of a span's codes."""
    quant = view.layout.stream(span.stream).quant
    if quant is None:
        return Operand(np.zeros(1, np.float32), np.array(NOWHERE, np.int64))
    first, last = span.start // quant.block, -(-span.stop // quant.block)
    return _operand(view, [Span(quant.scale, first, last)])


def _nothing(dtype: Dtype) -> Operand:
    """No operand, of the type that a rotary key beside such elements has: kernels are compiled per type."""
    words = np.float32 if dtype is Dtype.F32 else np.uint16
    return Operand(np.zeros(1, words), np.array(NOWHERE, np.int64))


def _operand(view: CacheView, spans: Sequence[Span]) -> Operand:
    rows = view.joined(spans)
    assert rows is not None  # one span, or spans that ``operands`` has found joined
    pages, heads, slots, width = rows.shape
    page, head, slot, _ = rows.stride()
    length = (pages - 1) * page + (heads - 1) * head + (slots - 1) * slot + width
    memory = rows.as_strided((length,), (1,))
    place = np.array((page, head if heads > 1 else 0, slot, width), np.int64)
    return Operand(_array(memory), place)


def _array(tensor: Tensor) -> Array:
    """A numpy view of a CPU tensor; what numpy lacks, as unsigned integers."""
    words = WORDS.get(tensor.dtype)
    return tensor.numpy() if words is None else tensor.view(words).numpy()
