"""A model that decodes over caches of ours: one per layer, on one storage, read by one backend."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.seat import Layer, seated
from variants.contract.dtype import Dtype
from variants.decode import Decoder
from variants.protocols import Attention, Backend, KVCache, StoragePolicy
from variants.storage.cache import POISON


class Run:
    """Text of one model, as far as it has come: every call appends.

    ``capacity``: tokens that each cache has room for. Raises ValueError if the storage cannot hold such a cache; a
    backend that cannot read it raises ``Refused`` at the first call.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        attentions: Sequence[Attention],
        policy: StoragePolicy,
        backend: Backend,
        capacity: int,
        kv_dtype: Dtype | None = None,
        batch: int = 1,
    ) -> None:
        self.caches = [_cache(a, policy, batch, capacity, kv_dtype, checkpoint.model.device) for a in attentions]
        self.tokens = 0
        self._blank = POISON
        if getattr(backend, "reads_unused", False):  # 0 times what lies there must be 0, and 0 times NaN is NaN
            self._blank = 0
            for slab in (slab for cache in self.caches for slab in cache.view.slabs):
                slab.fill_(self._blank)
        self._checkpoint = checkpoint
        self.decoders = [Decoder(a, c, backend) for a, c in zip(attentions, self.caches, strict=True)]

    def __call__(self, ids: Int[Tensor, "B Q"], keep: int = 1) -> Float[Tensor, "B keep V"]:
        """Append tokens; logits of the last ``keep`` of them, all if 0."""
        with seated(self._checkpoint.model, [_over(decoder) for decoder in self.decoders]):
            logits = logits_of(self._checkpoint.model, ids, keep, start=self.tokens)
        self.tokens += ids.shape[1]
        return logits

    @property
    def bytes_in_use(self) -> int:
        """Bytes that hold something, counted in the tensors: of all rows those that are blank no more."""
        return sum(_written(cache, self._blank) for cache in self.caches)

    @property
    def bytes_predicted(self) -> int:
        """Bytes that the layouts say so many tokens leave."""
        return sum(len(c.view.lengths) * c.view.layout.bytes(self.tokens) for c in self.caches)

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all slabs, room for tokens to come included."""
        return sum(cache.allocated_bytes for cache in self.caches)


def logits_of(model: Any, ids: Int[Tensor, "B Q"], keep: int, start: int = 0) -> Float[Tensor, "B keep V"]:
    """One pass of a model without a cache of its own over tokens that stand at ``start`` and after."""
    position = torch.arange(start, start + ids.shape[1], device=ids.device).expand(len(ids), -1)
    out = model(input_ids=ids, position_ids=position, use_cache=False, logits_to_keep=keep)
    logits: Tensor = out.logits
    return logits


@contextlib.contextmanager
def uncached(checkpoint: Checkpoint, attentions: Sequence[Attention]) -> Iterator[Any]:
    """The model with our textbook layers, which see a whole text and keep nothing of it."""
    with seated(checkpoint.model, [attention.reference for attention in attentions]):
        yield checkpoint.model


def _over(decoder: Decoder) -> Layer:
    return lambda x: decoder.prefill(x) if x.shape[1] > 1 else decoder.decode(x)


def _cache(
    attention: Attention, policy: StoragePolicy, batch: int, capacity: int, dtype: Dtype | None, device: torch.device
) -> KVCache:
    layout = attention.spec.layout(dtype or attention.dtype)
    if reasons := policy.refuses(layout):
        raise ValueError("; ".join(reasons))
    return policy.allocate(layout, batch, capacity, device)


def _written(cache: KVCache, blank: int) -> int:
    """Bytes of a cache's rows that are not blank."""
    view = cache.view
    streams = (view.stream(stream.name).view(torch.uint8) for stream in view.layout.streams)
    return sum(int((rows != blank).any(dim=-1).sum()) * rows.shape[-1] for rows in streams)
