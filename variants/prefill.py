"""A whole prompt at once, planned beforehand so that its time is its own: fill a cache, or do without one.

Rows are projected in one go, then attended to chunk by chunk: the scores of all rows against all keys would take
32 GiB at 16k tokens and 32 heads. Every chunk is a plan of the backend, which sees the keys up to its chunk's end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.contract.layout import CacheLayout
from variants.contract.scopes import uncached
from variants.decode import PREFILL_CHUNK, Refused
from variants.protocols import Attention, Backend, Entries, KVCache, Plan, Request, Spec, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.view import CacheView

SCORE_BYTES = 2**28  # float32 scores of one chunk against all keys, whole batch


@dataclass(frozen=True)
class Chunk:
    """Rows [start, stop) of every sequence and the plan that attends for them."""

    start: int
    stop: int
    plan: Plan

    @property
    def rows(self) -> slice:
        """The chunk's tokens."""
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Prefill:
    """A planned pass over ``length`` tokens of every sequence into ``cache``, whatever it held before.

    ``scratch`` holds keys and values decompressed from a packed cache; None where backends read the cache as it lies.
    """

    attention: Attention
    cache: KVCache
    chunks: tuple[Chunk, ...]
    position: Int[Tensor, "B T"]
    scratch: CacheView | None
    d_v: int

    @property
    def kernel(self) -> str:
        """The code that attends; a packed cache says that it was read decompressed."""
        return self.chunks[-1].plan.kernel + (" on decompressed keys and values" if self.scratch else "")

    def __call__(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The layer's output for every row; the cache then holds their entries. Running it again changes nothing."""
        q, entries = self.attention.query(x, self.position), self.attention.entry(x, self.position)
        if self.scratch is not None:
            self._unpack(entries, self.scratch)
        o = q.new_empty(*q.shape[:-1], self.d_v)
        for chunk in self.chunks:
            if self.scratch is None:
                self._write(entries, chunk.rows)
            else:
                self.scratch.lengths.fill_(chunk.stop)
            o[:, chunk.rows] = chunk.plan.attend(q[:, chunk.rows])[0]  # holds until the next call only
        return self.attention.output(o)

    def _unpack(self, entries: Entries, scratch: CacheView) -> None:
        """Store all rows, then decompress each once."""
        length = self.position.shape[1]
        for start, stop in _spans(length, min(length, self.cache.most_at_once)):
            self._write(entries, slice(start, stop))
        self.attention.unpack(self.cache.view, scratch, length)

    def _write(self, entries: Entries, rows: slice) -> None:
        self.cache.write({name: entry[:, rows] for name, entry in entries.items()}, self.position[:, rows])


def plan_prefill(
    attention: Attention,
    cache: KVCache,
    backend: Backend,
    length: int,
    scratch: CacheView | None = None,
    chunk: int | None = None,
) -> Prefill:
    """Plan to fill ``cache`` with the first ``length`` tokens of every sequence, in the form that prefill uses.

    ``scratch`` is what ``room_for`` gave (plans that never run at once may share it). ``chunk`` rows are attended to at
    once; None: as many as ``chunk_rows`` allows, and the cache takes. Backends plan on a cache that holds what it will
    hold then: what it held before is lost. Raises Refused with all reasons.
    """
    form = attention.as_form(attention.spec.prefilling())
    batch, device = len(cache.view.lengths), cache.view.lengths.device
    unpacked = form.spec.unpacked()
    if scratch is None:
        scratch = room_for(attention, batch, length, device)
    most = chunk or chunk_rows(form.spec, batch, length)
    spans = list(_spans(length, most if scratch is not None else min(most, cache.most_at_once)))
    view = cache.view if scratch is None else scratch
    sizes = {stop - start for start, stop in spans}
    reasons = prefill_reasons(backend, form.spec, cache.view.layout, cache.policy, device.type, form.dtype, sizes)
    if reasons:
        raise Refused("; ".join(reasons))
    geometry = (unpacked or form.spec).geometry()
    position = torch.arange(length, device=device).expand(batch, -1)
    chunks = []
    for start, stop in spans:
        if scratch is None:
            cache.write(_nothing(cache.view, stop - start), position[:, start:stop])
        else:
            scratch.lengths.fill_(stop)
        chunks.append(Chunk(start, stop, backend.plan(geometry, view, stop, stop - start)))
    return Prefill(form, cache, tuple(chunks), position, scratch, geometry.d_v)


def plan_recompute(
    attention: Attention, cache: KVCache, backend: Backend, length: int, chunk: int | None = None
) -> Prefill:
    """Plan a step without a cache: all rows again. ``cache`` is room for keys and values that nobody keeps.

    It has the layout of the form ``uncached`` gives. Raises Refused with all reasons.
    """
    return plan_prefill(attention.as_form(uncached(attention.spec)), cache, backend, length, chunk=chunk)


def room_for(attention: Attention, batch: int, length: int, device: torch.device) -> CacheView | None:
    """Where prefill decompresses keys and values; None where backends read the cache as it lies."""
    unpacked = attention.spec.prefilling().unpacked()
    if unpacked is None:
        return None
    return Contiguous().allocate(unpacked.layout(attention.dtype), batch, length, device).view


def chunk_rows(spec: Spec, batch: int, length: int) -> int:
    """New tokens attended to at once: their scores against ``length`` keys stay within ``SCORE_BYTES``, if one's do."""
    a_row = 4 * batch * spec.geometry().num_q_heads * length
    return max(1, min(PREFILL_CHUNK, SCORE_BYTES // a_row, length))


def prefill_reasons(
    backend: Backend,
    spec: Spec,
    layout: CacheLayout,
    policy: StoragePolicy,
    device: str,
    dtype: Dtype,
    queries: Iterable[int],
) -> list[str]:
    """Why a backend cannot prefill a cache of ``layout`` in chunks of so many ``queries``; empty = it can."""
    form = spec.prefilling()
    unpacked = form.unpacked()
    if unpacked is not None:
        layout, policy = unpacked.layout(dtype), Contiguous()
    geometry = (unpacked or form).geometry()
    asked = (Request(geometry, layout, policy, device, dtype, rows, ragged=False) for rows in sorted(queries))
    return list(dict.fromkeys(reason for request in asked for reason in backend.refuses(request)))


def _spans(length: int, most: int) -> Iterator[tuple[int, int]]:
    """[start, stop) of consecutive runs of at most ``most`` tokens."""
    return ((start, min(start + most, length)) for start in range(0, length, most))


def _nothing(view: CacheView, rows: int) -> Entries:
    """Zeros as entries: they move the cache's lengths, and nobody reads them."""
    shape, device = (len(view.lengths), rows), view.lengths.device
    return {s.name: torch.zeros(*shape, s.heads, s.width, device=device) for s in view.layout.entries}
