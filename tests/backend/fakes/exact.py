"""What the libraries document, in plain float64: the arithmetic that every fake shares."""

import torch
from torch import Tensor


def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, window_left: int = -1
) -> tuple[Tensor, Tensor]:
    """q [Q, H, K], k [T, G, K], v [T, G, V] -> o [Q, H, V], natural lse [Q, H]; masks end at the bottom right."""
    queries, tokens = len(q), len(k)
    grouped = q.double().unflatten(1, (k.shape[1], -1))
    scores = scale * torch.einsum("qghk,tgk->qght", grouped, k.double())
    back = torch.arange(tokens - queries, tokens)[:, None] - torch.arange(tokens)  # [Q, T]
    hidden = (back < 0) & causal
    if window_left >= 0:
        hidden |= back > window_left
    scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse[..., None].nan_to_num(neginf=0)).exp()
    o = torch.einsum("qght,tgv->qghv", weights, v.double())
    return o.flatten(1, 2), lse.flatten(1, 2)


def tokens(cache: Tensor, row: int, length: int, table: Tensor | None = None) -> Tensor:
    """The first ``length`` tokens of a sequence in [B, T, G, W], or in pages [P, S, G, W] by way of a table [B, N]."""
    if table is None:
        return cache[row, :length]
    pages = table[row, : -(-length // cache.shape[1])].long()
    return cache[pages].flatten(0, 1)[:length]
