"""Projections as rows per head, in float64, with the bias as one more column."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn


def rows_of(projection: nn.Linear, heads: int) -> Float[Tensor, "heads W D1"]:
    """Weights of each head and, as the last column, its biases (zeros where there are none)."""
    state = {name: tensor.double() for name, tensor in projection.state_dict().items()}
    weight = state["weight"]
    bias = state.get("bias", weight.new_zeros(len(weight)))
    return rearrange(torch.cat([weight, bias[:, None]], dim=1), "(h w) d -> h w d", h=heads)


def state_of(name: str, rows: Float[Tensor, "W D1"], bias: bool) -> dict[str, Tensor]:
    """The same rows as parameters of a projection called ``name``; a bias that it has no place for must be zero."""
    state = {f"{name}.weight": rows[:, :-1]}
    if bias:
        state[f"{name}.bias"] = rows[:, -1]
    elif bool(rows[:, -1].any()):
        raise ValueError(f"{name} must have a bias to hold what the layer adds; got a spec without")
    return state


def extended(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D1"]:
    """Inputs with a 1 appended."""
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)
