"""One rank's part of an attention: its weights cut by heads, its output the sum over ranks."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.contract.dtype import Dtype
from variants.contract.ranks import Cut
from variants.decode import Refused
from variants.modules import adopt
from variants.parallel.ranks import Ranks
from variants.protocols import Attention, Entries, Shardable, Spec
from variants.view import CacheView


@dataclass(frozen=True)
class Sharded:
    """An attention over one rank's heads. ``output`` and ``reference`` return what all tp ranks make together."""

    part: Attention
    ranks: Ranks

    @property
    def spec(self) -> Spec:
        """One rank's."""
        return self.part.spec

    @property
    def dtype(self) -> Dtype:
        """What weights, activations and queries are made of."""
        return self.part.dtype

    def query(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H K"]:
        """Queries of this rank's heads."""
        return self.part.query(x, position)

    def entry(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Entries:
        """What this rank's streams store."""
        return self.part.entry(x, position)

    def unpack(self, packed: CacheView, target: CacheView, length: int) -> None:
        """Decompress this rank's latent into this rank's heads."""
        self.part.unpack(packed, target, length)

    def output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q D"]:
        """This rank's heads projected, then summed with those of the other ranks."""
        return self.ranks.total(self.part.output(o))

    def reference(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The textbook layer over this rank's heads, then summed."""
        return self.ranks.total(self.part.reference(x))

    def as_form(self, spec: Spec) -> "Sharded":
        """The same part in another form."""
        return Sharded(self.part.as_form(spec), self.ranks)


def shard(whole: Attention, ranks: Ranks) -> Sharded:
    """This rank's part of ``whole``: its own copy of the weights it needs, and no view of the others.

    Raises Refused where the heads cannot be divided, or the attention does not say how its weights are.
    """
    if not (isinstance(whole, Shardable) and isinstance(whole, nn.Module)):
        raise Refused(f"{type(whole).__name__} does not say how its weights are cut by heads (see Shardable)")
    try:
        spec = whole.spec.shard(ranks.tp)
    except ValueError as error:
        raise Refused(str(error)) from None
    cuts = whole.cuts()
    weights = {name: _cut(name, weight, cuts, ranks) for name, weight in whole.state_dict().items()}
    return Sharded(adopt(spec, weights), ranks)


def _cut(name: str, weight: Tensor, cuts: Mapping[str, Cut], ranks: Ranks) -> Tensor:
    cut = cuts.get(name.rpartition(".")[0])
    if cut is None:
        return weight.clone()
    if (
        weight.ndim <= cut.axis
    ):  # the bias of a projection out of the heads: one rank adds it, or the sum has it tp times
        return weight.clone() if ranks.tp_rank == 0 else torch.zeros_like(weight)
    size = (weight.shape[cut.axis] - cut.rest) // cut.heads
    first, stop = cut.head(ranks.tp, ranks.tp_rank)
    own = weight.narrow(cut.axis, first * size, (stop - first) * size)
    rest = weight.narrow(cut.axis, weight.shape[cut.axis] - cut.rest, cut.rest)
    return torch.cat([own, rest], dim=cut.axis)
