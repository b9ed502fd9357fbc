"""``attention=``: another spec in the place of a checkpoint's own. The one place where conversions are plugged in."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.series import make_plugin
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.modules import adopt
from variants.protocols import Attention, Spec


def attentions_as(checkpoint: Checkpoint, options: Mapping[str, Any] | None) -> tuple[Attention, ...]:
    """Every layer as a config of ``conf/attention`` asks for it; None: as the checkpoint has it.

    Raises ValueError where that needs other weights than the checkpoint's.
    """
    if options is None:
        return checkpoint.attentions
    asked: Spec = make_plugin("attention", options, lambda kind: partial(kind.from_model, checkpoint.shape))
    return tuple(converted(own, _beside(own.spec, asked)) for own in checkpoint.attentions)


def windowed(attentions: tuple[Attention, ...], tokens: int) -> tuple[Attention, ...]:
    """The same layers, which say that they see the last ``tokens`` only: what a ring needs to know.

    Exact for texts of up to so many tokens. A layer with a window of its own keeps it; ValueError if it can have none.
    """
    found = []
    for own in attentions:
        if not isinstance(own.spec, GroupedSpec):
            raise ValueError("storage=ring needs an attention that can have a window; this checkpoint's has none")
        found.append(converted(own, replace(own.spec, window=own.spec.window or tokens)))
    return tuple(found)


def converted(own: Attention, spec: Spec) -> Attention:
    """A layer with the weights of ``own`` that is ``spec``; ValueError unless they differ in form or window only."""
    if spec == own.spec:
        return own
    if _same_weights(own.spec, spec):
        assert isinstance(own, nn.Module)
        return adopt(spec, own.state_dict())
    raise ValueError(
        f"attention must be the checkpoint's own, {name_of(own.spec)}, for its weights are not converted here; "
        f"got {name_of(spec)}"
    )


def _beside(own: Spec, asked: Spec) -> Spec:
    """``asked`` with what a model's shape does not tell, as the checkpoint has it."""
    if isinstance(own, GroupedSpec) and isinstance(asked, GroupedSpec):
        window = own.window if asked.window is None else asked.window
        return replace(asked, output_bias=own.output_bias, scale=own.scale, window=window)
    if isinstance(own, LatentSpec) and isinstance(asked, LatentSpec):
        return replace(asked, rotary=own.rotary, norm_eps=own.norm_eps)
    return asked


def _same_weights(own: Spec, spec: Spec) -> bool:
    if isinstance(own, GroupedSpec) and isinstance(spec, GroupedSpec):
        return replace(spec, window=own.window) == own
    if isinstance(own, LatentSpec) and isinstance(spec, LatentSpec):
        return replace(spec, form=own.form) == own
    return False


def name_of(spec: Spec) -> str:
    """What the field calls it, with its sizes."""
    if isinstance(spec, GroupedSpec):
        heads = f"{spec.num_q_heads}:{spec.num_kv_heads} heads of {spec.head_dim}"
        kind = {spec.num_q_heads: "mha", 1: "mqa"}.get(spec.num_kv_heads, "gqa")
        return f"{kind} ({heads})" if spec.window is None else f"{kind} ({heads}, window {spec.window})"
    if isinstance(spec, LatentSpec):
        return f"{'mla' if spec.num_latent_heads == 1 else 'gla'} (latent {spec.kv_lora_rank}, {spec.form})"
    return type(spec).__name__.removesuffix("Spec").lower()
