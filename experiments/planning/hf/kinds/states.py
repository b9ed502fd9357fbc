"""States of constant size that layers without a growing cache keep: recurrences and convolution columns.

They are in bfloat16 unless the file says otherwise; a causal convolution over k tokens keeps the last k - 1. The axis
that tensor parallelism would split comes first: heads of a recurrence, channels of a convolution.
"""

from experiments.planning.hf.build import linear, state
from experiments.planning.hf.fields import Fields, Unreadable
from experiments.planning.hf.kinds.sizes import HIDDEN
from experiments.planning.model_cache import LayerCache
from variants.contract.dtype import Dtype

DTYPES = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def recurrent_dtype(f: Fields) -> Dtype:
    """What the recurrence is stored in."""
    for name in DTYPES:
        text = f.word(name)
        if text and text != "auto":
            try:
                return Dtype.parse(text.removeprefix("torch."))
            except ValueError as error:
                raise Unreadable(f"{f.path}{name}: {error}") from None
    return Dtype.BF16


def mamba(f: Fields, prefix: str = "mamba_") -> LayerCache:
    """Mamba: a convolution over the inner channels and d_state numbers per channel."""
    d_state, d_conv, expand = _mamba_names(prefix)
    inner = f.count("mamba_d_inner") if f.has("mamba_d_inner") else _inner(f, expand)
    conv, kernel = inner, f.count(*d_conv)
    return linear(
        state("conv", conv, 1, columns=kernel - 1), state("ssm", inner, f.count(*d_state), recurrent_dtype(f))
    )


def mamba2(
    f: Fields, heads: tuple[str, ...], head_dim: tuple[str, ...], groups: tuple[str, ...], prefix: str = "mamba_"
) -> LayerCache:
    """Mamba-2: heads of head_dim channels, whose B and C (d_state numbers per group) pass the convolution too."""
    d_state, d_conv, expand = _mamba_names(prefix)
    count, size = f.count(*heads), f.count(*d_state)
    width = _head_width(f, head_dim, expand, count)
    inner = count * width
    conv = inner + 2 * f.count(*groups) * size
    return linear(
        state("conv", conv, 1, columns=f.count(*d_conv) - 1), state("ssm", count, width * size, recurrent_dtype(f))
    )


def _mamba_names(prefix: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    if prefix:
        return (f"{prefix}d_state",), (f"{prefix}d_conv",), (f"{prefix}expand",)
    return ("state_size", "ssm_state_size"), ("conv_kernel", "mamba_d_conv"), ("expand", "mamba_expand")


def _head_width(f: Fields, names: tuple[str, ...], expand: tuple[str, ...], heads: int) -> int:
    """Columns of a state head: stated, or (absent, null, auto) the inner channels over the heads."""
    stated = f.stated(*names) if names else None
    if stated is not None and stated != "auto":
        return f.checked(names[0], stated)
    inner = f.optional_count("mamba_d_ssm") or _inner(f, expand)
    if inner % heads:
        raise Unreadable(
            f"{f.path}{(names or ('mamba_d_head',))[0]} is missing and {heads} heads do not divide {inner} channels"
        )
    return inner // heads


def _inner(f: Fields, expand: tuple[str, ...]) -> int:
    """Inner channels: expand * hidden_size, where expand may be a fraction."""
    hidden, factor = f.count(*HIDDEN), f.stated(*expand)
    if factor is None:
        factor = f.default(*expand)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1024:
        raise f.wrong(expand[0], "must be a number from 0 to 1024", factor)
    inner = int(factor * hidden)
    return f.checked(expand[0], inner)


def delta_net(f: Fields) -> LayerCache:
    """Gated DeltaNet: a matrix per value head; queries, keys and values pass one convolution."""
    k_heads, v_heads = f.count("linear_num_key_heads"), f.count("linear_num_value_heads")
    return delta(f, k_heads, v_heads, f.count("linear_key_head_dim"), f.count("linear_value_head_dim"))


def delta(f: Fields, k_heads: int, v_heads: int, d_k: int, d_v: int) -> LayerCache:
    """Gated DeltaNet of these sizes."""
    conv, kernel = 2 * k_heads * d_k + v_heads * d_v, f.count("linear_conv_kernel_dim")
    return linear(state("conv", conv, 1, columns=kernel - 1), state("matrix", v_heads, d_k * d_v, recurrent_dtype(f)))


def kimi_delta(f: Fields, heads: int, width: int, kernel: int) -> LayerCache:
    """Kimi Delta Attention: a square matrix per head; queries, keys and values pass a convolution each."""
    conv = 3 * heads * width
    return linear(state("conv", conv, 1, columns=kernel - 1), state("matrix", heads, width**2, recurrent_dtype(f)))


def lightning(f: Fields, heads: int, width: int) -> LayerCache:
    """Lightning attention: a square matrix per head and no convolution."""
    return linear(state("matrix", heads, width**2, recurrent_dtype(f)))


def short_conv(f: Fields) -> LayerCache:
    """LFM2: a convolution over the model's columns."""
    return linear(state("conv", f.count(*HIDDEN), 1, columns=f.count("conv_L_cache") - 1))


def recurrent_unit(f: Fields) -> LayerCache:
    """RecurrentGemma's RG-LRU: one number per channel, after a convolution."""
    width = f.optional_count("lru_width") or f.count(*HIDDEN)
    kernel = f.count("conv1d_width")
    return linear(state("conv", width, 1, columns=kernel - 1), state("lru", width, 1, recurrent_dtype(f)))
