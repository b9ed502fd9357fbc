"""Keys of all kv heads as one head of rotary pairs, the few that matter first; the others lose their rotation.

A pair of columns that turn together is a complex number, and RoPE multiplies it by exp(i f t). The G kv heads have one
such pair each for frequency f: a vector of C^G. A unitary matrix that mixes them commutes with the rotation, so
queries and keys mixed alike have the same scores (TransMLA's RoRoPE, arXiv 2502.07864). The eigenvectors
of the keys' second moment put most of it into few pairs; the pairs that would be missed least become position-free.

Differs: TransMLA mixes by real matrices, keeps the first component of each frequency and folds neighbouring frequencies
into one; here phases mix too, and a pair is kept by what its rotation does to scores: the power of its key times that
of its queries times the mean of 1 - cos(f t) over distances t (a slow pair hardly turns).
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Complex, Float, Int
from torch import Tensor

from variants.contract.rotary import Rotary
from variants.convert.moments import Moments

DISTANCES = 2048  # tokens, over which a rotation is judged: what turns more slowly is hardly missed


@dataclass(frozen=True)
class Rotation:
    """``mix`` [pairs, G, G] is unitary per frequency; ``kept`` and ``free`` count pairs x components in one row."""

    rotary: Rotary
    mix: Complex[Tensor, "P G G"]
    kept: Int[Tensor, "_R"]
    free: Int[Tensor, "_F"]

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Radians per token of each kept pair."""
        components = self.mix.shape[-1]
        plain = _frequencies(self.rotary)
        return tuple(plain[pair // components] for pair in self.kept.tolist())

    def keys(self, key: Float[Tensor, "G K X"]) -> tuple[Float[Tensor, "_R X"], Float[Tensor, "_N X"]]:
        """Rows of the one rotary key, its pairs interleaved, and of all that is position-free."""
        mixed = torch.einsum("pgc,gpx->pcx", self.mix.conj(), _pairs(self.rotary, key)).flatten(0, 1)
        plain = key[:, _width(self.rotary) :].flatten(0, 1)
        return _columns(mixed[self.kept]), torch.cat([_columns(mixed[self.free]), plain])

    def queries(self, query: Float[Tensor, "H K X"]) -> tuple[Float[Tensor, "H _R X"], Float[Tensor, "H _N X"]]:
        """The same of every query head, so that its products with ``keys`` are those of the layer.

        Position-free pairs bring the embedding's amplitude of both sides.
        """
        heads, groups = len(query), self.mix.shape[-1]
        of_head = torch.arange(heads, device=query.device) // (heads // groups)
        mixed = torch.einsum("phc,hpx->hpcx", self.mix[:, of_head].conj(), _pairs(self.rotary, query)).flatten(1, 2)
        own = torch.nn.functional.one_hot(of_head, groups).to(query)  # plain columns meet those of their kv head only
        plain = torch.einsum("hg,hkx->hgkx", own, query[:, _width(self.rotary) :]).flatten(1, 2)
        free = self.rotary.amplitude**2 * _columns(mixed[:, self.free])
        return _columns(mixed[:, self.kept]), torch.cat([free, plain], dim=1)


def rotate_heads(
    rotary: Rotary,
    query: Float[Tensor, "H K D1"],
    key: Float[Tensor, "G K D1"],
    moments: Moments,
    width: int,
) -> Rotation:
    """Mix kv heads frequency by frequency, and keep rotation on the ``width`` columns that need it most."""
    q, k, second = _pairs(rotary, query), _pairs(rotary, key), moments.second.to(torch.complex128)
    of_keys, mix = torch.linalg.eigh(torch.einsum("gpx,xy,kpy->pgk", k, second, k.conj()))
    power = torch.einsum("hpx,xy,hpy->hp", q, second, q.conj()).real
    of_kv_head = rearrange(power, "(g n) p -> g n p", g=len(key)).sum(dim=1)
    of_queries = torch.einsum("pgc,gp->pc", mix.abs().square(), of_kv_head)
    missed = of_keys * of_queries * _turning(rotary, key.device)[:, None]
    order = missed.flatten().argsort(descending=True, stable=True)
    return Rotation(rotary, mix, order[: width // 2], order[width // 2 :])


def _turning(rotary: Rotary, device: torch.device) -> Float[Tensor, "P"]:
    """Mean of 1 - cos(f t) over distances: 0 for a pair that never turns, 1 for one that turns often."""
    distances = torch.arange(DISTANCES, dtype=torch.float64, device=device)
    frequencies = torch.tensor(_frequencies(rotary), dtype=torch.float64, device=device)
    return 1 - torch.outer(frequencies, distances).cos().mean(dim=1)


def _width(rotary: Rotary) -> int:
    return 0 if rotary.style == "none" else rotary.width


def _frequencies(rotary: Rotary) -> list[float]:
    return [] if rotary.style == "none" else rotary.frequencies()


def _pairs(rotary: Rotary, rows: Float[Tensor, "heads K X"]) -> Complex[Tensor, "heads P X"]:
    turning = rows[:, : _width(rotary)]
    if rotary.style == "interleaved":
        return torch.complex(turning[:, 0::2], turning[:, 1::2])
    return torch.complex(*turning.chunk(2, dim=1))


def _columns(pairs: Complex[Tensor, "*heads P X"]) -> Float[Tensor, "*heads K X"]:
    """Pairs as interleaved real rows."""
    return rearrange(torch.view_as_real(pairs), "... p x two -> ... (p two) x")
