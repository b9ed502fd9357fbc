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


class Decoder:
    """Prefill and decode one layer over a cache, keeping track of positions."""

    def __init__(self, attention: Attention, cache: KVCache, backend: Backend) -> None:
        self.attention = attention
        self.cache = cache
        self.backend = backend

    def prefill(self, x: Float[Tensor, "B T D"], chunk: int = PREFILL_CHUNK) -> Float[Tensor, "B T D"]:
        """Append T tokens, up to ``chunk`` at a time, causally; a latent cache is read by materialized mathematics."""
        attention = self.attention.as_form(self.attention.spec.prefilling())
        parts = [self._run(attention, part) for part in x.split(min(chunk, self.cache.most_at_once), dim=1)]
        return torch.cat(parts, dim=1)

    def decode(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """Append Q tokens to every sequence and return their outputs; ValueError if the cache is full."""
        return self._run(self.attention, x)

    def _run(self, attention: Attention, x: Tensor) -> Tensor:
        before = self.cache.view.lengths.clone()  # by value: lengths change in place when the step writes
        queries = x.shape[1]
        longest, shortest = int(before.max()) + queries, int(before.min()) + queries
        if queries == 0:
            raise ValueError("a step needs at least one new token; got none")
        if longest > self.cache.capacity:
            raise ValueError(f"cache holds {self.cache.capacity} tokens per sequence; this step needs {longest}")
        if queries > self.cache.most_at_once:
            raise ValueError(f"this cache takes {self.cache.most_at_once} new tokens at once; got {queries}")
        position = before.long()[:, None] + torch.arange(queries, device=x.device)
        step = plan_step(attention, self.cache, self.backend, longest, queries, ragged=longest != shortest)
        return step(x, position)


def _scratch(attention: Attention, unpacked: Spec, cache: KVCache, policy: StoragePolicy, length: int) -> CacheView:
    """Room for decompressed keys and values, as the weights make them; lengths are the cache's own."""
    batch = len(cache.view.lengths)
    room = policy.allocate(unpacked.layout(attention.dtype), batch, length, cache.view.lengths.device).view
    return CacheView(room.layout, room.slabs, cache.view.lengths)


def _unpacker(attention: Attention, packed: CacheView, target: CacheView, length: int) -> Callable[[], None]:
    return lambda: attention.unpack(packed, target, length)
