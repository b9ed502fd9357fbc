"""The one place where attention, storage and backend meet: prefill and the decode step.

A step is three sentences: write the entry for this position into the cache; attend with the query; project the output.
Writing is by position, so running the same step again (a replayed CUDA graph) changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.contract.geometry import AttentionGeometry
from variants.protocols import Attended, Attention, Backend, KVCache, Plan, Request, Spec, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.view import CacheView

PREFILL_CHUNK = 256  # new tokens attended at once; bounds the mask at group * 256 * context
AHEAD = 64  # tokens that a decode step is planned for, where the backend's plans serve while lengths grow


class Refused(ValueError):
    """The backend cannot do this; the message holds all its reasons."""


@dataclass(frozen=True)
class Step:
    """A planned decode step: fixed backend, cache and maximum length; ``attend`` alone is the attention itself.

    ``geometry``, ``view`` and ``length`` are what the backend was planned on, for an oracle to read the same.
    """

    attention: Attention
    cache: KVCache
    geometry: AttentionGeometry
    view: CacheView
    length: int
    plan: Plan
    unpack: Callable[[], None] | None = None

    def attend(self, q: Float[Tensor, "B Q H K"]) -> Attended:
        """Read the cache as keys and values (materialized MLA: decompress it first, for that is part of reading)."""
        if self.unpack is not None:
            self.unpack()
        return self.plan.attend(q)

    def __call__(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q D"]:
        """Append the new tokens at ``position`` and return the layer's output for them."""
        self.cache.write(self.attention.entry(x, position), position)
        o, _ = self.attend(self.attention.query(x, position))
        return self.attention.output(o)


def plan_step(
    attention: Attention, cache: KVCache, backend: Backend, length: int, queries: int = 1, ragged: bool = False
) -> Step:
    """Plan a step after which the longest sequence holds ``length`` tokens; raises Refused with all reasons."""
    unpacked = attention.spec.unpacked()
    view, policy = cache.view, cache.policy
    unpack = None
    if unpacked is not None:
        policy = Contiguous()
        view = _scratch(attention, unpacked, cache, policy, length)
        unpack = _unpacker(attention, cache.view, view, length)
    geometry = (unpacked or attention.spec).geometry()
    request = Request(geometry, view.layout, policy, view.lengths.device.type, attention.dtype, queries, ragged)
    reasons = backend.refuses(request)
    if reasons:
        raise Refused("; ".join(reasons))
    return Step(attention, cache, geometry, view, length, backend.plan(geometry, view, length, queries), unpack)


@dataclass(frozen=True)
class _Kept:
    """A step that serves while sequences grow from ``least`` tokens each, up to what it was planned for."""

    step: Step
    queries: int
    least: list[int]

    def serves(self, held: list[int], queries: int) -> bool:
        """Whether it can append ``queries`` tokens to sequences that hold so many."""
        grown = all(now >= then for now, then in zip(held, self.least, strict=True))
        alike = queries == self.queries and _ragged(held) == _ragged(self.least)
        return grown and alike and max(held) + queries <= self.step.length


class Decoder:
    """Prefill and decode one layer over a cache, keeping track of positions."""

    def __init__(self, attention: Attention, cache: KVCache, backend: Backend) -> None:
        self.attention = attention
        self.cache = cache
        self.backend = backend
        self._kept: _Kept | None = None

    def prefill(self, x: Float[Tensor, "B T D"], chunk: int = PREFILL_CHUNK) -> Float[Tensor, "B T D"]:
        """Append T tokens, up to ``chunk`` at a time, causally; a latent cache is read by materialized mathematics."""
        attention = self.attention.as_form(self.attention.spec.prefilling())
        parts = x.split(min(chunk, self.cache.most_at_once), dim=1)
        return torch.cat([self._run(attention, part) for part in parts], dim=1)

    def decode(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """Append Q tokens to every sequence and return their outputs; ValueError if the cache is full."""
        step, position = self.next_step(x.shape[1])
        return step(x, position)

    def next_step(self, queries: int = 1) -> tuple[Step, Int[Tensor, "B Q"]]:
        """The planned step that ``decode`` would take now, and the positions of its tokens; ValueError as there.

        Planned some tokens ahead, so that few steps plan, where that is the same to the backend.
        """
        held, position = self._next(queries)
        if self._kept is not None and self._kept.serves(held, queries):
            return self._kept.step, position
        if not getattr(self.backend, "grows", False) or self.attention.spec.unpacked() is not None:
            return self._planned(self.attention, held, queries), position
        step = self._planned(self.attention, held, queries, AHEAD)
        self._kept = _Kept(step, queries, held)
        return step, position

    def _run(self, attention: Attention, x: Tensor) -> Tensor:
        held, position = self._next(x.shape[1])
        return self._planned(attention, held, x.shape[1])(x, position)

    def _planned(self, attention: Attention, held: list[int], queries: int, ahead: int = 0) -> Step:
        length = min(max(held) + queries + ahead, self.cache.capacity)
        return plan_step(attention, self.cache, self.backend, length, queries, _ragged(held))

    def _next(self, queries: int) -> tuple[list[int], Tensor]:
        """Tokens that each sequence holds, and where the next ones stand, [B, Q]."""
        lengths = self.cache.view.lengths
        held: list[int] = lengths.tolist()
        if queries == 0:
            raise ValueError("a step needs at least one new token; got none")
        if max(held) + queries > self.cache.capacity:
            needed = f"this step needs {max(held) + queries}"
            raise ValueError(f"cache holds {self.cache.capacity} tokens per sequence; {needed}")
        if queries > self.cache.most_at_once:
            raise ValueError(f"this cache takes {self.cache.most_at_once} new tokens at once; got {queries}")
        return held, lengths.long()[:, None] + torch.arange(queries, device=lengths.device)


def _ragged(held: list[int]) -> bool:
    return len(set(held)) > 1


def _scratch(attention: Attention, unpacked: Spec, cache: KVCache, policy: StoragePolicy, length: int) -> CacheView:
    """Room for decompressed keys and values, as the weights make them; lengths are the cache's own."""
    batch = len(cache.view.lengths)
    room = policy.allocate(unpacked.layout(attention.dtype), batch, length, cache.view.lengths.device).view
    return CacheView(room.layout, room.slabs, cache.view.lengths)


def _unpacker(attention: Attention, packed: CacheView, target: CacheView, length: int) -> Callable[[], None]:
    return lambda: attention.unpack(packed, target, length)
