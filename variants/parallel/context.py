"""Context parallelism: each rank attends to the tokens it caches, and partial outputs become whole ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.contract.keep import All
from variants.contract.layout import CacheLayout
from variants.contract.ranks import Turns
from variants.decode import Refused, Step, plan_step
from variants.parallel.ranks import Ranks
from variants.protocols import Attention, Backend, KVCache

Whole = tuple[Float[Tensor, "B Q H V"], Float[Tensor, "B Q H"]]


@dataclass(frozen=True)
class ContextStep:
    """One new token for every sequence, after which ``length`` tokens are cached by all cp ranks together.

    ``local`` is planned on this rank's cache; ``tokens`` of them are in it then, perhaps none.
    """

    attention: Attention
    local: Step
    ranks: Ranks
    turns: Turns
    length: int
    tokens: int

    @property
    def owns(self) -> bool:
        """Whether this rank caches the new token."""
        return bool(self.turns.owner(self.length - 1) == self.ranks.cp_rank)

    def attend(self, q: Float[Tensor, "B Q H K"]) -> Whole:
        """Attend to what this rank caches, and merge with what the others made of theirs."""
        o, lse = self.local.attend(q)  # even over nothing: a rank that may not merge must say so like the others
        if lse is None:
            raise Refused(f"{self.local.plan.kernel} returns no log-sum-exp, without which parts cannot be merged")
        if not self.tokens:
            o, lse = torch.zeros_like(o), torch.full_like(lse, -torch.inf)
        wide = torch.promote_types(q.dtype, torch.float32)
        both = torch.cat([o.to(wide), lse[..., None].to(wide)], dim=-1)  # in one message: small ones cost their latency
        o, lse = merge(*self.ranks.gathered(both).split([o.shape[-1], 1], dim=-1))
        return o.to(q.dtype), lse

    def __call__(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q D"]:
        """Append the new token where it belongs and return the layer's output. Running it again changes nothing."""
        if self.owns:
            place = torch.full_like(position, self.turns.place(self.length - 1))
            self.local.cache.write(self.attention.entry(x, position), place)
        return self.attention.output(self.attend(self.attention.query(x, position))[0])


def merge(o: Float[Tensor, "R B Q H V"], lse: Float[Tensor, "R B Q H 1"]) -> Whole:
    """Attention over R disjoint sets of keys from that over each: weights are shares of the softmax's denominator."""
    whole = lse.logsumexp(dim=0)
    return ((lse - whole).exp() * o).sum(dim=0), whole.squeeze(-1)


def plan_context(
    attention: Attention, cache: KVCache, backend: Backend, length: int, ranks: Ranks, turns: Turns
) -> ContextStep:
    """Plan the step after which sequences hold ``length`` tokens; ``cache`` is this rank's part.

    Raises Refused with all reasons, on every rank alike.
    """
    if reasons := context_reasons(cache.view.layout, ranks, turns):
        raise Refused("; ".join(reasons))
    tokens = turns.held(length, ranks.cp_rank)
    if tokens > cache.capacity:
        raise ValueError(f"this rank's cache holds {cache.capacity} tokens per sequence; this step needs {tokens}")
    return ContextStep(attention, plan_step(attention, cache, backend, max(1, tokens)), ranks, turns, length, tokens)


def context_reasons(layout: CacheLayout, ranks: Ranks, turns: Turns) -> list[str]:
    """Why a cache cannot be divided by position; empty = it can."""
    partial = [s.name for s in layout.streams if not isinstance(s.keep, All)]
    checks = {
        f"context parallelism divides whole histories; streams {partial} keep a part": ranks.cp > 1 and partial,
        f"turns must be for cp={ranks.cp} ranks; got {turns.ranks}": turns.ranks != ranks.cp,
    }
    return [reason for reason, holds in checks.items() if holds]


class ContextDecoder:
    """Decode one layer over caches that cp ranks hold together, keeping track of positions."""

    def __init__(self, attention: Attention, cache: KVCache, backend: Backend, ranks: Ranks, turns: Turns) -> None:
        self.attention, self.cache, self.backend = attention, cache, backend
        self.ranks, self.turns = ranks, turns
        self.length = 0  # of every sequence, over all ranks

    def fill(self, x: Float[Tensor, "B T D"]) -> None:
        """Cache T tokens, of which this rank makes the entries of its own only; their outputs are not computed."""
        position = torch.arange(self.length, self.length + x.shape[1], device=x.device)
        own = self.turns.owner(position) == self.ranks.cp_rank
        if own.any():
            at = position[own].expand(len(x), -1)
            self.cache.write(self.attention.entry(x[:, own], at), self.turns.place(at))
        self.length += x.shape[1]

    def decode(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """Append one token to every sequence and return its output; Refused for more than one."""
        if x.shape[1] != 1:
            raise Refused(f"context parallelism takes one new token per step; got {x.shape[1]}")
        position = torch.full((len(x), 1), self.length, device=x.device)
        step = plan_context(self.attention, self.cache, self.backend, self.length + 1, self.ranks, self.turns)
        self.length += 1
        return step(x, position)
