"""The best latent of a given rank for position-free keys and values together.

Rows y = [key, value] of an input x are to come out of a latent: y ~ up (down x). Where an error e of y costs e^T M e
and inputs vary by C, the best pair is read off the eigenvectors of M^1/2 Y C Y^T M^1/2 (Y the rows' weights): what is
lost is the sum of the eigenvalues left out (Eckart-Young). M says what the layer makes of an error: for keys the second
moment of the queries that meet them, for values the output projections, each scaled so that what there is of them
weighs the same (TransMLA's balanced factorisation, arXiv 2502.07864: else keys, which are larger, take the latent).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = 1e-6  # of a metric's largest eigenvalue: what no query reads still counts a little, so that roots have inverses


@dataclass(frozen=True)
class Factors:
    """``down`` [rank, D + 1] makes a latent of an input with a 1 appended, ``up`` [rows, rank] rows of a latent."""

    down: Float[Tensor, "R D1"]
    up: Float[Tensor, "_N R"]


def factorise(
    rows: Float[Tensor, "_N D1"], metric: Float[Tensor, "_N _N"], spread: Float[Tensor, "D1 D1"], rank: int
) -> Factors:
    """The pair of ``rank`` with the least expected error e^T metric e, where inputs vary by ``spread``."""
    root, inverse = _roots(metric)
    weighed = root @ rows
    directions = torch.linalg.eigh(weighed @ spread @ weighed.T).eigenvectors[:, -rank:]
    return Factors(directions.T @ weighed, inverse @ directions)


def balanced(
    rows: tuple[Float[Tensor, "_K D1"], Float[Tensor, "_V D1"]],
    metrics: tuple[Float[Tensor, "_K _K"], Float[Tensor, "_V _V"]],
    spread: Float[Tensor, "D1 D1"],
) -> Float[Tensor, "_N _N"]:
    """One metric for both kinds of rows, in which each has power 1; a kind without power keeps its own."""
    powers = [torch.einsum("nx,xy,my,nm->", r, spread, r, m) for r, m in zip(rows, metrics, strict=True)]
    whole: Tensor = torch.block_diag(*(m / p if p > 0 else m for m, p in zip(metrics, powers, strict=True)))
    return whole


def _roots(metric: Tensor) -> tuple[Tensor, Tensor]:
    """M^1/2 and its inverse."""
    found = torch.linalg.eigh(metric)
    vectors: Tensor = found.eigenvectors
    values: Tensor = found.eigenvalues.clamp(min=LEAST * float(found.eigenvalues.max())).sqrt()
    return vectors * values @ vectors.T, vectors / values @ vectors.T
