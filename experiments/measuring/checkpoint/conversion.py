"""``attention=``: another spec in the place of a checkpoint's own. The one place where conversions are plugged in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.passing import Converted, convert_layers
from experiments.measuring.series import make_plugin
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.convert import as_latent, with_kv_heads
from variants.convert.targets import is_exact, rotary_columns
from variants.modules import adopt
from variants.protocols import Attention, Spec

Text = Callable[[], Int[Tensor, "N T"]]  # windows of it, made only when they are wanted


def attentions_as(checkpoint: Checkpoint, options: Mapping[str, Any] | None, text: Text | None = None) -> Converted:
    """Every layer as a config of ``conf/attention`` asks for it; None: as the checkpoint has it.

    ``text``: what lossy conversions are fitted to and judged by; without it MLA is fitted to white noise. Raises
    ValueError where the checkpoint's weights cannot become that.
    """
    if options is None:
        return Converted(checkpoint.attentions)
    asked: Spec = make_plugin("attention", options, lambda kind: partial(kind.from_model, checkpoint.shape))
    return replaced(checkpoint, [_target(own, asked, options) for own in checkpoint.specs], text)


def replaced(checkpoint: Checkpoint, targets: Sequence[Spec], text: Text | None = None) -> Converted:
    """The checkpoint's layers as ``targets``: the same weights where they serve, else converted ones."""
    pairs = list(zip(checkpoint.specs, targets, strict=True))
    if all(_same_weights(own, target) for own, target in pairs):
        return Converted(tuple(_as(a, target) for a, target in zip(checkpoint.attentions, targets, strict=True)))
    for own, target in pairs:
        _check(own, target)
    lossless = all(_exact(own, target) for own, target in pairs)
    made = convert_layers(
        checkpoint, [_full(own, target) for own, target in pairs], None if lossless or text is None else text()
    )
    return replace(made, attentions=tuple(_as(a, t) for a, t in zip(made.attentions, targets, strict=True)))


def windowed(attentions: tuple[Attention, ...], tokens: int) -> tuple[Attention, ...]:
    """The same layers, which say that they see the last ``tokens`` only: what a ring needs to know.

    Exact for texts of up to so many tokens. A layer with a window of its own keeps it; ValueError if it can have none.
    """
    found = []
    for own in attentions:
        if not isinstance(own.spec, GroupedSpec):
            raise ValueError("storage=ring needs an attention that can have a window; this one has none")
        found.append(_as(own, replace(own.spec, window=own.spec.window or tokens)))
    return tuple(found)


def _as(own: Attention, spec: Spec) -> Attention:
    """A layer with the weights of ``own`` that is ``spec``, which differs in form or window at most."""
    if spec == own.spec or not _same_weights(own.spec, spec):
        return own  # a converted layer names the frequencies that it keeps, which no target does
    assert isinstance(own, nn.Module)
    return adopt(spec, own.state_dict())


def _target(own: Spec, asked: Spec, options: Mapping[str, Any]) -> Spec:
    """What a layer becomes: ``asked``, and what a model's shape does not tell as the checkpoint has it."""
    if isinstance(own, GroupedSpec) and isinstance(asked, GroupedSpec):
        window = own.window if asked.window is None else asked.window
        return replace(with_kv_heads(own, asked.num_kv_heads), window=window)
    if isinstance(own, GroupedSpec) and isinstance(asked, LatentSpec):
        if (asked.num_latent_heads, asked.q_lora_rank) != (1, None):
            raise ValueError(
                "a grouped layer becomes MLA with one latent head and no q_lora_rank; "
                f"got num_latent_heads={asked.num_latent_heads}, q_lora_rank={asked.q_lora_rank}"
            )
        unset = options.get("qk_rope_head_dim") is None
        rope = min(asked.qk_rope_head_dim, rotary_columns(own)) if unset else asked.qk_rope_head_dim
        return as_latent(own, asked.kv_lora_rank, rope, asked.form)
    if isinstance(own, LatentSpec) and isinstance(asked, LatentSpec):
        return replace(asked, rotary=own.rotary, norm_eps=own.norm_eps)
    return asked


def _full(own: Spec, target: Spec) -> Spec:
    """The target as conversions know it: they leave a layer's window as it is."""
    if isinstance(own, GroupedSpec) and isinstance(target, GroupedSpec):
        return replace(target, window=own.window)
    return target


def _check(own: Spec, target: Spec) -> None:
    if isinstance(own, GroupedSpec) and isinstance(target, GroupedSpec | LatentSpec):
        return
    raise ValueError(
        f"attention must be the checkpoint's own, {name_of(own)}, or, of a grouped one, mha, gqa, mqa or mla, for "
        f"other weights are not converted; got {name_of(target)}"
    )


def _exact(own: Spec, target: Spec) -> bool:
    """Whether nothing is lost whatever the weights: no text is needed then."""
    assert isinstance(own, GroupedSpec)
    if isinstance(target, GroupedSpec):
        return target.num_kv_heads >= own.num_kv_heads
    assert isinstance(target, LatentSpec)
    return is_exact(own, target)


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
