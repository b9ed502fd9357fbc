"""A grouped layer as MLA: the parts of ``rotation`` and ``factor`` put together as DeepSeek's projections."""

import torch
from torch import Tensor

from variants.attention.grouped.module import GroupedAttention
from variants.attention.latent.spec import LatentSpec
from variants.convert.factor import Factors, balanced, factorise
from variants.convert.moments import Moments
from variants.convert.rotation import rotate_heads
from variants.convert.rows import rows_of, state_of


def to_latent(
    source: GroupedAttention, target: LatentSpec, moments: Moments
) -> tuple[tuple[float, ...], dict[str, Tensor]]:
    """The rotary frequencies that the layer keeps, and its state as ``target`` holds it; float64.

    A constant that position-free keys lose shifts all scores of a query alike, and the softmax does not see it; one
    that values lose is the same in every output, and goes into the output's bias.
    """
    spec, heads = source.spec, source.spec.num_q_heads
    query = rows_of(source.q_proj, heads)
    key, value = (rows_of(p, spec.num_kv_heads) for p in (source.k_proj, source.v_proj))
    rotation = rotate_heads(spec.rotary, query, key, moments, target.qk_rope_head_dim)
    k_rope, k_nope = rotation.keys(key)
    identity = torch.eye(spec.head_dim, dtype=query.dtype, device=query.device).expand(heads, -1, -1)
    turns, reads = rotation.queries(identity)  # a head's own columns as rotary and as position-free ones
    output = rows_of(source.o_proj, 1)[0]
    w_o = output[:, :-1].unflatten(1, (heads, -1))  # [D, H, V]
    spread = moments.centred if target.output_bias else moments.second
    met = torch.einsum("hkx,xy,hly->hkl", query, moments.second, query)
    of_keys = torch.einsum("hnk,hkl,hml->nm", reads, met, reads)
    factors = _factors((k_nope, value), of_keys, w_o, spread, target.kv_lora_rank)
    up_key, up_value = factors.up.split([len(k_nope), factors.up.shape[0] - len(k_nope)])
    up_value = up_value.unflatten(0, value.shape[:2]).repeat_interleave(heads // len(value), dim=0)  # [H, V, rank]
    lost = _lost(value, factors, moments) if target.output_bias else value.new_zeros(value.shape[:2])
    output[:, -1] += torch.einsum("dhv,hv->d", w_o, lost.repeat_interleave(heads // len(value), dim=0))
    queries = [turns @ query] if not target.qk_nope_head_dim else [query, turns @ query]
    ups = [up_value] if not target.qk_nope_head_dim else [reads.mT @ up_key, up_value]
    state = {
        **state_of("q_proj", torch.cat(queries, dim=1).flatten(0, 1), target.qkv_bias),
        **state_of("kv_a_proj_with_mqa", torch.cat([factors.down, k_rope]), target.qkv_bias),
        "kv_b_proj.weight": torch.cat(ups, dim=1).flatten(0, 1),
        **state_of("o_proj", output, target.output_bias),
    }
    return rotation.frequencies, state


def _factors(rows: tuple[Tensor, Tensor], of_keys: Tensor, w_o: Tensor, spread: Tensor, rank: int) -> Factors:
    """Factors of keys [N, D + 1] and values [G, V, D + 1] together, values weighed by the output projection."""
    key, value = rows
    shared = w_o.unflatten(1, (len(value), -1))  # [D, G, H / G, V]
    of_values = torch.block_diag(*torch.einsum("dghv,dghw->gvw", shared, shared))
    flat = key, value.flatten(0, 1)
    return factorise(torch.cat(flat), balanced(flat, (of_keys, of_values), spread), spread, rank)


def _lost(value: Tensor, factors: Factors, moments: Moments) -> Tensor:
    """What the latent loses of the mean value of each kv head, [G, V]."""
    flat = value.flatten(0, 1)
    kept = factors.up[-len(flat) :] @ (factors.down @ moments.mean)
    lost: Tensor = (flat @ moments.mean - kept).unflatten(0, value.shape[:2])
    return lost
