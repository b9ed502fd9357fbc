"""A spec's module without initialising what is filled or replaced anyway."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from variants.protocols import Attention, Spec


def hollow(spec: Spec) -> Attention:
    """The module on the meta device: shapes and names, no memory."""
    with torch.device("meta"):
        return spec.build()


def adopt(spec: Spec, state: Mapping[str, Tensor]) -> Attention:
    """A module with these very tensors as weights, all of them and no other, and no gradients."""
    module = hollow(spec)
    assert isinstance(module, nn.Module)
    module.requires_grad_(False).load_state_dict(state, strict=True, assign=True)
    return module
