"""The newest token of a point's cache, made to matter: a backend that misses it is wrong at any length.

Among N tokens of noise each weighs 1/N, and an output is 1/sqrt(N) as large as what is cached: without the last of 16k
it moves by 0.8 %, less than what bf16 may be off by rounding. A token that adds as much as all others together moves it
by half and more where it is left out, and the others' part is still large enough to be wrong in.
"""

import math

import torch
from einops import rearrange, reduce
from torch import Tensor

from variants.decode import Step
from variants.noise import APART, noise_
from variants.protocols import Entries


def look_at_newest(step: Step, q: Tensor, seed: int) -> None:
    """Write the last token of every sequence anew: noise, but for a key along what the last of q [B, Q, H, K] ask for.

    Nothing is done where keys are what weights make of the cache: no cache holds the one that would be wanted.
    """
    if step.unpack is None:
        newest = torch.full((len(q), 1), step.length - 1, device=q.device)
        step.cache.write(_entries(step, q[:, -1].float(), seed), newest)


def _entries(step: Step, q: Tensor, seed: int) -> Entries:
    """What every stream holds of the token, [B, 1, heads, W], for queries [B, H, K]."""
    rows = {
        s.name: noise_(torch.empty(len(q), 1, s.heads, s.width, device=q.device), seed, start=APART * number)
        for number, s in enumerate(step.cache.view.layout.entries, start=1)
    }
    keys, column = [], 0
    for span in step.geometry.key:
        row, asked = rows[span.stream], q[..., column : column + span.width]
        key = reduce(asked, "b (g h) w -> b g w", "mean", g=row.shape[2])
        row[:, 0, :, span.start : span.stop] = key
        keys.append(key.expand(-1, step.geometry.num_kv_heads, -1))
        column += span.width
    longer = _length(q, torch.cat(keys, dim=-1), step)
    for span in step.geometry.key:
        rows[span.stream][..., span.start : span.stop] *= longer
    return rows


def _length(q: Tensor, key: Tensor, step: Step) -> float:
    """By how much longer a key [B, G, K] makes its token add as much to outputs as N tokens of noise.

    Scores of noise have the variance v = K * scale^2, so the weights of N tokens sum up to N * exp(v / 2), and what
    they make of values of noise is exp(v / 2) / sqrt(N) large, in the root of the mean square. Values that are keys as
    well are drawn towards the query: by scale times it. ``wanted`` is the token's score that does the same; in the mean
    square over heads, whose scores s differ by r * s, that is s + (r * s)^2.
    """
    geometry, layout = step.geometry, step.cache.view.layout
    tokens = min(layout.stream(name).keep.entries(step.length) for name in geometry.streams)
    grouped = rearrange(q, "b (g h) k -> b g h k", g=geometry.num_kv_heads)
    scores = torch.einsum("bghk,bgk->bgh", grouped, key) * geometry.scale
    variance = geometry.d_qk * geometry.scale**2
    both = {span.stream for span in geometry.key} & {span.stream for span in geometry.value}
    others = math.exp(variance) / tokens + (geometry.scale**2 if both else 0)
    wanted = math.log(tokens) + variance / 2 + math.log(others) / 2
    mean, spread = scores.mean().item(), scores.var(correction=0).item()
    return 2 * wanted / (mean + math.sqrt(mean**2 + 4 * wanted * spread))
