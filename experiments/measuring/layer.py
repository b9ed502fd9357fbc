"""A decode step held to the textbook layer: that it leaves nothing out, and that the timed one does the same.

Attending is held to the oracle, at full length, on the very cache that is timed. What a step does around it does not
depend on how much is cached, so it is proved on a few tokens: the module's own ``reference`` has no cache and calls
none of what a step calls. Together this costs less than making one replica.
"""

import math

import torch

from experiments.measuring.prepare import Replica
from experiments.measuring.whole import relative
from variants.backend.eager import Eager
from variants.decode import plan_step
from variants.storage.contiguous import Contiguous

TOKENS = 16  # of the small proof: few, for a layer has hundreds of millions of weights, and each is multiplied so often


def layer_error(replica: Replica, known: dict[int, float]) -> float:
    """The larger of two relative errors (norms, worst sequence) of a step with the replica's weights.

    Over a few tokens on the oracle's backend: against ``reference``. Of the timed step: against its own parts one after
    the other, queries laid out anew, with the attend that is proved by itself. Infinite where something is not finite.
    ``known``: by number of tokens, what the former gave before with these weights, which no point changes; added to.
    """
    tokens = min(replica.planned.length, TOKENS + replica.x.shape[1])
    if tokens not in known:
        known[tokens] = _against_reference(replica, tokens)
    errors = known[tokens], _against_parts(replica)
    return max(error if math.isfinite(error) else math.inf for error in errors)


def _against_reference(replica: Replica, tokens: int) -> float:
    attention, queries = replica.planned.attention, replica.x.shape[1]
    drawn = torch.Generator(replica.x.device).manual_seed(tokens)
    shape = 1, tokens, attention.spec.hidden_size
    x = torch.randn(shape, generator=drawn, device=replica.x.device).to(replica.x.dtype)
    position = torch.arange(tokens, device=x.device)[None]
    cache = Contiguous().allocate(attention.spec.layout(attention.dtype), 1, tokens, x.device)
    step, old = plan_step(attention, cache, Eager(), tokens, queries), tokens - queries
    if old:
        cache.write(attention.entry(x[:, :old], position[:, :old]), position[:, :old])
    return relative(step(x[:, old:], position[:, old:]), attention.reference(x)[:, old:])


def _against_parts(replica: Replica) -> float:
    step, attention = replica.planned, replica.planned.attention
    taken = replica.step().clone()  # holds until the next call only
    query = attention.query(replica.x, replica.position).clone(memory_format=torch.contiguous_format)
    return relative(taken, attention.output(step.attend(query)[0]))
