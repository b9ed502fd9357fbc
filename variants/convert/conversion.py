"""The door: a trained layer and a target go in, the converted layer and what it cost come out."""

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from variants.attention.grouped.module import GroupedAttention
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.convert.heads import regrouped
from variants.convert.latent import to_latent
from variants.convert.moments import Moments
from variants.convert.targets import as_latent, is_exact, with_kv_heads
from variants.modules import adopt
from variants.protocols import Attention, Spec

FREE = ("form", "rotary", "norm_eps")  # fields of an MLA target that weights do not depend on, or that they decide


@dataclass(frozen=True)
class Conversion:
    """What a conversion did: ``method`` repeat, mean_pool or low_rank; bytes are one layer's, in the weights' dtype.

    ``exact``: nothing is lost but by rounding, whatever the weights. ``error``: relative error of the layer's outputs
    on the calibration activations (Frobenius); None where there were none.
    """

    method: str
    exact: bool
    error: float | None
    bytes_per_token_before: Fraction
    bytes_per_token_after: Fraction


def convert(
    module: Attention, target: Spec, calibration: Float[Tensor, "B T D"] | None = None
) -> tuple[Any, Conversion]:
    """A grouped layer's weights as ``target`` (``with_kv_heads``, ``as_latent``) holds them, in the same dtype.

    ``calibration``: inputs of the layer on real text. MLA is fitted to them (without: to inputs of unit covariance,
    which real ones are far from), and the error is measured on them. The MLA layer's spec names the frequencies that it
    keeps. Raises ValueError in one line for what cannot be converted.
    """
    if not isinstance(module, GroupedAttention):
        raise ValueError(f"convert starts from grouped attention (MHA, GQA, MQA); got {type(module).__name__}")
    device = module.o_proj.weight.device
    if calibration is not None and calibration.shape[-1] != module.spec.hidden_size:
        raise ValueError(f"calibration must be {module.spec.hidden_size} wide; got {tuple(calibration.shape)}")
    if isinstance(target, GroupedSpec):
        _check_grouped(module.spec, target)
        fewer = target.num_kv_heads < module.spec.num_kv_heads
        method, exact = ("mean_pool", False) if fewer else ("repeat", True)
        state = regrouped(module, target.num_kv_heads)
    elif isinstance(target, LatentSpec):
        _check_latent(module.spec, target)
        method, exact = "low_rank", is_exact(module.spec, target)
        width = module.spec.hidden_size
        moments = Moments.assumed(width, device) if calibration is None else Moments.of(calibration.to(device))
        frequencies, state = to_latent(module, target, moments)
        target = replace(target, rotary=replace(target.rotary, inv_freq=frequencies or None))
    else:
        raise ValueError(f"convert makes grouped attention or MLA; got {type(target).__name__}")
    dtype = module.o_proj.weight.dtype
    converted = adopt(target, {name: weight.to(dtype).contiguous() for name, weight in state.items()})
    error = None if calibration is None else relative_error(module, converted, calibration)
    before, after = (spec.layout(module.dtype).bytes_per_token for spec in (module.spec, target))
    return converted, Conversion(method, exact, error, before, after)


@torch.no_grad()
def relative_error(layer: Attention, other: Attention, x: Float[Tensor, "B T D"]) -> float:
    """Frobenius norm of the difference of two layers' outputs over that of the first's, sequence by sequence."""
    missed = total = 0.0
    for rows in x.split(1):
        expected = layer.reference(rows).double()
        missed += float((other.reference(rows).double() - expected).square().sum())
        total += float(expected.square().sum())
    return float((missed / total) ** 0.5) if total else 0.0


def _check_grouped(spec: GroupedSpec, target: GroupedSpec) -> None:
    _same(replace(with_kv_heads(spec, target.num_kv_heads), norm_eps=target.norm_eps), target, "with_kv_heads", ())


def _check_latent(spec: GroupedSpec, target: LatentSpec) -> None:
    expected = as_latent(spec, target.kv_lora_rank, target.qk_rope_head_dim, target.form, target.output_bias)
    _same(expected, target, "as_latent", FREE)


def _same(expected: Any, target: Any, maker: str, free: tuple[str, ...]) -> None:
    """ValueError naming the first field in which a target is not what the layer can become."""
    for name in (f.name for f in fields(expected) if f.name not in free):
        wanted, got = getattr(expected, name), getattr(target, name)
        if wanted != got:
            raise ValueError(f"{name} must be {wanted!r} for this layer; got {got!r}: make the target by {maker}")
