"""The newest token of a point's cache, made to matter: a backend that misses it is wrong at any length.

Among N tokens of noise each weighs 1/N, and an output is 1/sqrt(N) as large as what is cached: without the last of 16k
it moves by 0.8 %, less than what bf16 may be off by rounding. A token that adds as much as all others together moves it
by half and more where it is left out, most heads as well unless more read one key than it has columns, and the others'
part is still large enough to be wrong in.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from einops import reduce, repeat
from torch import Tensor

from variants.contract.geometry import AttentionGeometry
from variants.decode import Step
from variants.noise import APART, noise_
from variants.protocols import Entries

RIDGE = 1 / 16  # of a key's width: what keeps the sum small where there are more queries than columns
HALVINGS = 60
_NORMAL = NormalDist()


def look_at_newest(step: Step, q: Tensor, seed: int, start: int = 0) -> None:
    """Write the last token of every sequence anew: noise, but for keys that the last of q [B, Q, H, K] all ask for.

    Nothing is done where keys are what weights make of the cache: its rows are not what queries are held to.
    """
    if step.unpack is None:
        newest = torch.full((len(q), 1), step.length - 1, device=q.device)
        step.cache.write(_entries(step, q[:, -1].float(), seed, start), newest)


def _entries(step: Step, q: Tensor, seed: int, start: int) -> Entries:
    """What every stream holds of the token, [B, 1, heads, W], for queries [B, H, K]."""
    geometry = step.geometry
    rows = {
        s.name: noise_(torch.empty(len(q), 1, s.heads, s.width, device=q.device), seed, start + APART * number)
        for number, s in enumerate(step.cache.view.layout.entries)
    }
    heads = [rows[span.stream].shape[2] for span in geometry.key]
    asked = q.split([span.width for span in geometry.key], dim=-1)
    shares = _shares(asked, heads)
    keys = [reduce(part * shares, "b (g h) w -> b g w", "sum", g=g) for part, g in zip(asked, heads, strict=True)]
    for span, key in zip(geometry.key, keys, strict=True):
        rows[span.stream][:, 0, :, span.start : span.stop] = key
    of_head = torch.cat([repeat(k, "b g w -> b (g h) w", h=q.shape[1] // k.shape[1]) for k in keys], dim=-1)
    longer = _length((q * of_head).sum(-1) * geometry.scale, _Value.of(rows, geometry), step)
    for span in geometry.key:
        rows[span.stream][..., span.start : span.stop] *= longer
    return rows


def _shares(asked: tuple[Tensor, ...], heads: list[int]) -> Tensor:
    """How much of each query to add up, [B, H, 1], so that all score alike: the least squares of many with one key.

    ``asked``: the queries' columns [B, H, W] of each part of a key, which so many ``heads`` of keys share.
    """
    gram = torch.stack([_among(part, g) for part, g in zip(asked, heads, strict=True)]).sum(0)
    gram.diagonal(dim1=1, dim2=2).add_(RIDGE * sum(part.shape[-1] for part in asked))
    shares: Tensor = torch.linalg.solve(gram, torch.ones_like(gram[..., :1]))
    return shares


def _among(part: Tensor, heads: int) -> Tensor:
    """Products of queries [B, H, W] with those that read the same of so many heads of keys, [B, H, H]."""
    owner = torch.arange(part.shape[1], device=part.device) // (part.shape[1] // heads)
    return part @ part.mT * (owner[:, None] == owner)


@dataclass(frozen=True)
class _Value:
    """Mean squares of a value's columns, over all of them: of those that are the key's too, and of the others."""

    tied: float
    free: float
    share: float  # of the columns that are the key's too

    @classmethod
    def of(cls, rows: Entries, geometry: AttentionGeometry) -> "_Value":
        """Of rows [B, 1, heads, W] per stream."""
        keys = {name: torch.zeros(row.shape[-1], device=row.device) for name, row in rows.items()}
        for span in geometry.key:
            keys[span.stream][span.start : span.stop] = 1
        columns = [(span.stream, slice(span.start, span.stop)) for span in geometry.value]
        squares = torch.cat([rows[name][..., cut].square().mean(dim=(0, 1, 2)) for name, cut in columns])
        tied = torch.cat([keys[name][cut] for name, cut in columns])
        free = 1 - tied
        return cls((squares * tied).mean().item(), (squares * free).mean().item(), tied.mean().item())

    def size(self, longer: float) -> float:
        """Root of the mean square where the key is so much longer."""
        return math.sqrt(longer**2 * self.tied + self.free)


def _length(scores: Tensor, value: _Value, step: Step) -> float:
    """By how much longer a key of such scores [B, H] makes its token add as much to outputs as N tokens of noise.

    Values that are keys as well are drawn towards the query, by scale times it, and grow as the key does. ``wanted`` is
    the logarithm of what the token is to add; in the mean square over heads, whose scores s differ by r * s, it adds
    exp(s + (r * s)^2) of its value.
    """
    geometry, layout = step.geometry, step.cache.view.layout
    tokens = min(layout.stream(name).keep.entries(step.length) for name in geometry.streams)
    weight, noise = _others(tokens, math.sqrt(geometry.d_qk) * geometry.scale)
    wanted = math.log(weight) + math.log(noise + value.share * geometry.scale**2) / 2
    mean, spread = scores.mean().item(), scores.var(correction=0).item()

    def added(longer: float) -> float:
        return longer * mean + longer**2 * spread + math.log(value.size(longer))

    low, high = 0.0, 2 * max(1.0, wanted) / mean
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if added(middle) < wanted else (low, middle)
    return high


def _others(tokens: int, deviation: float) -> tuple[float, float]:
    """The sum of exp(score) of so many tokens of noise, and the mean square of what they make of values of noise.

    Scores are normal, and of N the highest lies near sqrt(2 ln N) deviations: exp of what lies above does not occur.
    """
    highest = math.sqrt(2 * math.log(tokens))
    first, second = (_NORMAL.cdf(highest - power * deviation) for power in (1, 2))
    weight = tokens * math.exp(deviation**2 / 2) * first
    return weight, min(1.0, math.exp(deviation**2) / tokens * second / first**2)
