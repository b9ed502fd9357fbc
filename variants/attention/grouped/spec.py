"""Grouped attention as numbers."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from variants.contract.checks import check_count
from variants.contract.codes import stored
from variants.contract.cost import Matmul, Part
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span, check_heads, check_tp, heads_per_rank
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.model import ModelShape
from variants.contract.rotary import Rotary

if TYPE_CHECKING:
    from variants.attention.grouped.module import GroupedAttention

EVERY_HEAD = "num_attention_heads"  # in a config: one kv head per query head


@dataclass(frozen=True)
class GroupedSpec:
    """MHA, GQA or MQA, over all tokens or the last ``window`` (the current one counts).

    ``scale`` is head_dim^-0.5 unless a model says otherwise (Gemma's query_pre_attn_scalar).

    Raises ValueError naming both numbers if num_kv_heads does not divide num_q_heads.
    """

    hidden_size: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    rotary: Rotary
    scale: float
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    norm_eps: float = 1e-6
    window: int | None = None

    form = None

    def __post_init__(self) -> None:
        check_heads(self.num_q_heads, self.num_kv_heads)
        if self.window is not None:
            check_count("window", self.window)
        if self.rotary.width > self.head_dim:
            raise ValueError(f"rope width must be <= head_dim; got {self.rotary.width} > {self.head_dim}")

    @classmethod
    def from_model(cls, model: ModelShape, num_kv_heads: int | str | None = None, window: int | None = None) -> Self:
        """The variant with ``num_kv_heads`` heads in a model's place.

        An int is taken as it is; ``num_attention_heads`` is MHA; None is the model's own grouping, or the largest
        divisor of its query heads up to 8 where the model has none.
        """
        return cls(
            hidden_size=model.hidden_size,
            num_q_heads=model.num_attention_heads,
            num_kv_heads=_resolve(num_kv_heads, model),
            head_dim=model.width,
            rotary=model.rotary,
            scale=(model.query_pre_attn_scalar or model.width) ** -0.5,
            qkv_bias=model.attention_bias,
            qk_norm=model.qk_norm,
            norm_eps=model.rms_norm_eps,
            window=window,
        )

    def layout(self, dtype: Dtype) -> CacheLayout:
        """Key and value streams, each in a slab of its own; codes share one with their scales."""
        keep = All() if self.window is None else Window(self.window)
        return stored(*(Stream(n, self.num_kv_heads, self.head_dim, dtype, keep) for n in ("key", "value")))

    def geometry(self) -> AttentionGeometry:
        """K = key, V = value."""
        key, value = (Span(n, 0, self.head_dim) for n in ("key", "value"))
        return AttentionGeometry(self.num_q_heads, self.num_kv_heads, (key,), (value,), self.scale)

    def matmuls(self) -> tuple[Matmul, ...]:
        """q, k, v and output projections."""
        kv = Matmul("k_proj", self.hidden_size, self.num_kv_heads * self.head_dim)
        return (
            Matmul("q_proj", self.hidden_size, self.num_q_heads * self.head_dim),
            kv,
            replace(kv, name="v_proj"),
            Matmul("o_proj", self.num_q_heads * self.head_dim, self.hidden_size, part=Part.OUTPUT),
        )

    @property
    def weight_elements(self) -> int:
        """Projections, biases and q/k norms."""
        qkv_bias = self.qkv_bias * (self.num_q_heads + 2 * self.num_kv_heads) * self.head_dim
        extras = qkv_bias + self.output_bias * self.hidden_size + self.qk_norm * 2 * self.head_dim
        return sum(m.weights for m in self.matmuls()) + extras

    def shard(self, tp: int) -> Self:
        """Heads split over ``tp`` ranks; beyond num_kv_heads ranks, each kv head is stored tp / num_kv_heads times."""
        check_tp(self.num_q_heads, tp)
        kv_heads = heads_per_rank("num_kv_heads", self.num_kv_heads, tp)
        return replace(self, num_q_heads=self.num_q_heads // tp, num_kv_heads=kv_heads)

    def unpacked(self) -> None:
        """Backends read the cache as it lies."""

    def prefilling(self) -> Self:
        """Prefill uses the same form."""
        return self

    def build(self) -> "GroupedAttention":
        """The module, with uninitialised weights."""
        from variants.attention.grouped.module import GroupedAttention  # torch only when a module is wanted

        return GroupedAttention(self)


def _resolve(wanted: int | str | None, model: ModelShape) -> int:
    if wanted == EVERY_HEAD:
        return model.num_attention_heads
    if wanted is None:
        return model.grouping
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise ValueError(f"num_kv_heads must be a whole number, {EVERY_HEAD!r} or null; got {wanted!r}")
    return wanted
