"""What a grouped layer can become, as specs: the same model, other cached bytes."""

from dataclasses import replace

from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.contract.checks import check_count
from variants.contract.rotary import Rotary


def with_kv_heads(spec: GroupedSpec, num_kv_heads: int) -> GroupedSpec:
    """The same layer with other kv heads; ValueError unless one count divides the other, and the query heads."""
    check_count("num_kv_heads", num_kv_heads)
    if num_kv_heads % spec.num_kv_heads and spec.num_kv_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide the layer's {spec.num_kv_heads} (averaging) or be its multiple (repeating); "
            f"got {num_kv_heads}"
        )
    return replace(spec, num_kv_heads=num_kv_heads)


def as_latent(
    spec: GroupedSpec, kv_lora_rank: int, qk_rope_head_dim: int, form: str = "absorbed", output_bias: bool = True
) -> LatentSpec:
    """MLA in the layer's place: ``qk_rope_head_dim`` columns stay rotary, all else must fit into ``kv_lora_rank``.

    Both at their largest (all rotary columns of all kv heads, and all others) make an exact layer that caches what the
    grouped one does. ``output_bias`` takes up the mean of what the latent loses of the values. The rotary frequencies
    are chosen when weights are converted. Raises ValueError for what cannot be, and says why.
    """
    _check_source(spec)
    rotary, columns = rotary_columns(spec), 2 * spec.num_kv_heads * spec.head_dim
    if qk_rope_head_dim < 0 or qk_rope_head_dim % 2 or qk_rope_head_dim > rotary:
        raise ValueError(
            f"qk_rope_head_dim must be even, and at most the {rotary} rotary columns of {spec.num_kv_heads} kv heads; "
            f"got {qk_rope_head_dim}"
        )
    check_count("kv_lora_rank", kv_lora_rank)
    if kv_lora_rank > columns - qk_rope_head_dim:
        raise ValueError(
            f"kv_lora_rank must be at most the {columns - qk_rope_head_dim} columns of keys and values that are not "
            f"rotary; got {kv_lora_rank}"
        )
    if not output_bias and (spec.qkv_bias or spec.output_bias):
        raise ValueError("output_bias must be true where the layer has biases; got false")
    turning = replace(spec.rotary, style="interleaved", width=qk_rope_head_dim, inv_freq=None)
    return LatentSpec(
        hidden_size=spec.hidden_size,
        num_q_heads=spec.num_q_heads,
        kv_lora_rank=kv_lora_rank,
        qk_nope_head_dim=0 if 2 * qk_rope_head_dim == columns else spec.head_dim,
        qk_rope_head_dim=qk_rope_head_dim,
        v_head_dim=spec.head_dim,
        rotary=turning if qk_rope_head_dim else Rotary("none", 0),
        scale=spec.scale,
        norm_eps=spec.norm_eps,
        form=form,
        latent_norm=False,
        qkv_bias=spec.qkv_bias,
        output_bias=output_bias,
    )


def is_exact(spec: GroupedSpec, target: LatentSpec) -> bool:
    """Whether nothing is lost whatever the weights: every rotary column stays, and the latent holds all others."""
    columns = 2 * spec.num_kv_heads * spec.head_dim
    return target.qk_rope_head_dim == rotary_columns(spec) and target.kv_lora_rank + target.qk_rope_head_dim == columns


def rotary_columns(spec: GroupedSpec) -> int:
    """Key columns that turn, over all kv heads."""
    return 0 if spec.rotary.style == "none" else spec.num_kv_heads * spec.rotary.width


def _check_source(spec: GroupedSpec) -> None:
    if spec.qk_norm:
        raise ValueError(
            "a layer with qk_norm cannot become MLA: its keys are normed head by head, so they are no linear map of x "
            "that a latent could hold; convert it to other num_kv_heads"
        )
    if spec.window is not None:
        raise ValueError(f"MLA caches every token; got window={spec.window}: convert it to other num_kv_heads")
