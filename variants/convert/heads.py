"""Other kv heads: fewer by averaging (GQA, arXiv 2305.13245, section 2.1), more by repeating."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from variants.attention.grouped.module import GroupedAttention


def regrouped(source: GroupedAttention, num_kv_heads: int) -> dict[str, Tensor]:
    """The state of the same layer with ``num_kv_heads`` kv heads; one count divides the other.

    Query head h goes on reading the head that its old one went into, or came from.
    """
    state, old = dict(source.state_dict()), source.spec.num_kv_heads
    for name in (n for n in state if n.startswith(("k_proj", "v_proj"))):
        heads = rearrange(state[name], "(g w) ... -> g w ...", g=old)
        state[name] = _regroup(heads, num_kv_heads).flatten(0, 1)
    return {name: weight.clone() for name, weight in state.items()}


def _regroup(heads: Float[Tensor, "G *rest"], wanted: int) -> Float[Tensor, "wanted *rest"]:
    if wanted >= len(heads):
        return heads.repeat_interleave(wanted // len(heads), dim=0)
    mean: Tensor = rearrange(heads.to(torch.float64), "(g n) ... -> g n ...", g=wanted).mean(dim=1)
    return mean.to(heads.dtype)
