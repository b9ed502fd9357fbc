"""What a layer makes of its prompt in float32: computed once for a set of weights, since no point changes it."""

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.protocols import Attention
from variants.view import TORCH_DTYPES


class Textbook:
    """Outputs and cache entries of one prompt's tokens, by one set of weights; both come with every question.

    A point asks about a part of the same prompt, and a copy of the weights in float32 takes longer to make than to use.
    """

    def __init__(self) -> None:
        self._outputs: dict[int, Tensor] = {}
        self._entries: dict[tuple[int, int], dict[str, Tensor]] = {}

    def outputs(self, attention: Attention, x: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 T D"]:
        """Of the prompt's first T tokens."""
        tokens = x.shape[1]
        if tokens not in self._outputs:
            exact = in_float32(attention)
            self._outputs[tokens] = exact.reference(x.to(TORCH_DTYPES[exact.dtype]))
        return self._outputs[tokens]

    def entries(
        self, attention: Attention, x: Float[Tensor, "1 T D"], position: Int[Tensor, "1 T"]
    ) -> dict[str, Tensor]:
        """Of the tokens ``x``, one after the other, the first of which stands at ``position[0, 0]``."""
        where = int(position[0, 0]), x.shape[1]
        if where not in self._entries:
            exact = in_float32(attention)
            self._entries[where] = dict(exact.entry(x.to(TORCH_DTYPES[exact.dtype]), position))
        return self._entries[where]


def in_float32(attention: Attention) -> Attention:
    """The same weights in float32, or as they are where they are finer."""
    if attention.dtype is Dtype.F64:
        return attention
    assert isinstance(attention, torch.nn.Module)
    exact = copy.deepcopy(attention).float()
    assert isinstance(exact, Attention)
    return exact
