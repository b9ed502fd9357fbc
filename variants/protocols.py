"""What an attention, a storage and a backend must offer; the only names through which they meet.

Shape legend, used in every annotation of this package:

    B batch                 H query heads              P pages in the pool
    Q new tokens per step   G key/value heads          S slots per page
    T tokens                K score width d_qk         N pages per sequence
    D model width           V value width d_v          W stream width
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.contract.cost import Matmul
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.layout import CacheLayout
from variants.contract.ranks import Cut
from variants.view import CacheView

Entries = Mapping[str, Float[Tensor, "B Q _heads _W"]]
Attended = tuple[Float[Tensor, "B Q H V"], Float[Tensor, "B Q H"] | None]


class Spec(Protocol):
    """A variant as numbers, torch-free: what a config becomes. Frozen; raises ValueError when it cannot exist."""

    @property
    def form(self) -> str | None:
        """Which mathematics runs on the weights (MLA: absorbed, materialized, expanded); None if there is only one."""
        ...

    @property
    def hidden_size(self) -> int:
        """Model width D."""
        ...

    @property
    def weight_elements(self) -> int:
        """Parameters of the layer, biases and norms included."""
        ...

    def layout(self, dtype: Dtype) -> CacheLayout:
        """What one token leaves behind per layer."""
        ...

    def geometry(self) -> AttentionGeometry:
        """How that is read as keys and values."""
        ...

    def matmuls(self) -> tuple[Matmul, ...]:
        """Every product with a weight that a step runs, in this form."""
        ...

    def shard(self, tp: int) -> Self:
        """The spec of one rank of ``tp``; ValueError where the heads cannot be split or replicated evenly."""
        ...

    def unpacked(self) -> Self | None:
        """The spec that backends read after ``Attention.unpack``; None where they read the cache as it lies."""
        ...

    def prefilling(self) -> Self:
        """The same weights and the same cache in the form that prefill uses."""
        ...

    def build(self) -> "Attention":
        """The module, with uninitialised weights."""
        ...


@runtime_checkable
class Attention(Protocol):
    """One attention layer, without a cache of its own."""

    @property
    def spec(self) -> Spec:
        """The numbers it was built from."""
        ...

    @property
    def dtype(self) -> Dtype:
        """What weights, activations and queries are made of."""
        ...

    def query(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H K"]:
        """Queries of the new tokens, rotated, in the width that the geometry scores."""
        ...

    def entry(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Entries:
        """What each stream stores for the new tokens; RoPE is already applied and never applied again."""
        ...

    def unpack(self, packed: CacheView, target: CacheView, length: int) -> None:
        """Decompress tokens [0, length) of a latent cache into a cache of ``spec.unpacked()``'s layout."""
        ...

    def output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q D"]:
        """Project attended values back to the model width."""
        ...

    def reference(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The textbook layer over a full sequence: causal, without a cache or any of the decode path's attend."""
        ...

    def as_form(self, spec: Spec) -> "Attention":
        """The same weights under a spec that differs in form only; no copy."""
        ...


@runtime_checkable
class Absorbing(Protocol):
    """An attention that can run its ``Part.ABSORB`` products alone, as ``query`` and ``output`` run them in a step."""

    def absorb_query(self, q: Float[Tensor, "B Q H _K"]) -> Float[Tensor, "B Q H K"]:
        """Queries of the form that prefill uses, in the width that the cache is scored in."""
        ...

    def absorb_output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q H _V"]:
        """Attended values in the width that the form which prefill uses projects."""
        ...


@runtime_checkable
class Shardable(Protocol):
    """An attention that says how tensor parallelism cuts its weights; those that it does not name stay whole."""

    def cuts(self) -> Mapping[str, Cut]:
        """By name of the projection that holds a weight: where its heads lie."""
        ...


@dataclass(frozen=True)
class Request:
    """What a backend is asked to do, without a tensor: enough to refuse."""

    geometry: AttentionGeometry
    layout: CacheLayout
    storage: "StoragePolicy"
    device: str
    dtype: Dtype
    queries: int
    ragged: bool


@dataclass(frozen=True)
class Plan:
    """A planned decode: ``attend(q)`` is all that is timed; ``kernel`` names the code that runs.

    ``attend`` maps q [B, Q, H, K] to o [B, Q, H, V] and the natural log-sum-exp [B, Q, H] (None where a library does
    not return it). Query i of sequence b sees keys 0 .. lengths[b] - Q + i. What it returns holds until the next call,
    which may write to the same tensors.

    ``shows``: what a profile of ``attend`` would show of that kernel: parts of names, one of which must be there, of
    operators (``aten::...``) or, on a GPU, of kernels (``kernel:...``). Empty: nothing, for it is compiled code that
    calls no operator, and then none of torch's own products may be there. None: that is not known.
    """

    attend: Callable[[Tensor], Attended]
    kernel: str
    shows: tuple[str, ...] | None = None


@runtime_checkable
class Backend(Protocol):
    """Who computes. Knows geometry and view, never a variant's name.

    A class may say two things of itself, both False where it does not. ``grows``: a plan serves as it is while lengths
    grow, up to its ``max_length``. ``reads_unused``: slots that hold no token yet must hold finite numbers.
    """

    def refuses(self, request: Request) -> list[str]:
        """All reasons why it cannot; empty = it can. Cheap, no tensors, never raises."""
        ...

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Prepare to attend over up to ``max_length`` cached tokens; untimed (compilation, workspace, views)."""
        ...


@runtime_checkable
class StoragePolicy(Protocol):
    """Where bytes lie. Knows layouts, not attention."""

    @property
    def kind(self) -> str:
        """Name of the plug-in."""
        ...

    @property
    def order(self) -> str:
        """``hs``: head-major rows [P, heads, S, W]; ``sh``: token-major."""
        ...

    @property
    def page_size(self) -> int | None:
        """Slots per page; None where a sequence is one run."""
        ...

    def refuses(self, layout: CacheLayout, queries: int = 1) -> list[str]:
        """All reasons why it cannot hold such a layout through steps of ``queries`` new tokens; empty = it can.

        Cheap, no tensors, never raises; where it refuses a layout the other methods may raise ValueError.
        """
        ...

    def allocated_bytes(self, layout: CacheLayout, batch: int, capacity: int) -> int:
        """Bytes of the slabs for ``batch`` sequences of up to ``capacity`` tokens, padding included; no allocation."""
        ...

    def table_bytes(self, batch: int, capacity: int) -> int:
        """Bytes of block tables."""
        ...

    def allocate(self, layout: CacheLayout, batch: int, capacity: int, device: torch.device) -> "KVCache":
        """An empty cache, every slot poisoned."""
        ...


class KVCache(Protocol):
    """A cache that can be written by position."""

    @property
    def policy(self) -> StoragePolicy:
        """The storage that allocated it."""
        ...

    @property
    def view(self) -> CacheView:
        """What backends read."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens a sequence can hold."""
        ...

    @property
    def allocated_bytes(self) -> int:
        """Bytes the slabs really take."""
        ...

    @property
    def most_at_once(self) -> int:
        """New tokens per sequence that one write may bring."""
        ...

    def write(self, entries: Entries, position: Int[Tensor, "B Q"]) -> None:
        """Store entries at their positions; lengths become last position + 1, in place. Idempotent."""
        ...

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Forget tokens from ``lengths`` on; their slots are poisoned again."""
        ...

    def fill_noise(self, length: int, seed: int, start: int = 0) -> None:
        """Pretend ``length`` tokens were cached: standard normal noise in used slots, poison elsewhere.

        Caches of one ``seed`` and different ``start`` hold different parts of the same noise.
        """
        ...
