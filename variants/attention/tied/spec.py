"""Grouped tied attention as numbers."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from variants.contract.checks import check_count
from variants.contract.codes import stored, uncoded
from variants.contract.cost import Matmul, Part
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span, check_heads, check_tp, heads_per_rank
from variants.contract.layout import CacheLayout, Sharding, Stream
from variants.contract.model import ModelShape
from variants.contract.rotary import Rotary

if TYPE_CHECKING:
    from variants.attention.tied.module import TiedAttention


@dataclass(frozen=True)
class TiedSpec:
    """GTA. ``scale`` is head_dim^-0.5 unless a model says otherwise (Gemma's query_pre_attn_scalar).

    Raises ValueError for a size that is not positive, or naming both numbers if heads do not divide or the rotary part
    leaves no room for the tied part.
    """

    hidden_size: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    qk_rope_head_dim: int
    rotary: Rotary
    scale: float

    form = None

    def __post_init__(self) -> None:
        for name in ("hidden_size", "num_q_heads", "num_kv_heads", "head_dim", "qk_rope_head_dim"):
            check_count(name, getattr(self, name))
        check_heads(self.num_q_heads, self.num_kv_heads)
        if not 0 < self.qk_rope_head_dim < self.head_dim:
            raise ValueError(
                "qk_rope_head_dim must be between 1 and head_dim - 1; "
                f"got qk_rope_head_dim={self.qk_rope_head_dim}, head_dim={self.head_dim}"
            )
        if self.rotary.width not in (0, self.qk_rope_head_dim):
            raise ValueError(f"rope width must be qk_rope_head_dim={self.qk_rope_head_dim}; got {self.rotary.width}")

    @classmethod
    def from_model(
        cls, model: ModelShape, num_kv_heads: int | None = None, qk_rope_head_dim: int | None = None
    ) -> Self:
        """GTA in a model's place: its own grouping (else the largest divisor up to 8), half of each head rotary."""
        rope = model.width // 2 if qk_rope_head_dim is None else qk_rope_head_dim
        check_count("qk_rope_head_dim", rope)
        return cls(
            hidden_size=model.hidden_size,
            num_q_heads=model.num_attention_heads,
            num_kv_heads=model.grouping if num_kv_heads is None else num_kv_heads,
            head_dim=model.width,
            qk_rope_head_dim=rope,
            rotary=replace(model.rotary, width=rope),
            scale=(model.query_pre_attn_scalar or model.width) ** -0.5,
        )

    @property
    def tied_width(self) -> int:
        """Columns of the tied state that are also key columns."""
        return self.head_dim - self.qk_rope_head_dim

    def layout(self, dtype: Dtype) -> CacheLayout:
        """A tied state per kv head and one rotary key for all of them."""
        tied = Stream("tied", self.num_kv_heads, self.head_dim, dtype)
        return stored(tied, Stream("rope", 1, self.qk_rope_head_dim, uncoded(dtype), sharding=Sharding.REPLICATED))

    def geometry(self) -> AttentionGeometry:
        """K = tied[:tied_width] + rope, V = tied."""
        key = (Span("tied", 0, self.tied_width), Span("rope", 0, self.qk_rope_head_dim))
        return AttentionGeometry(
            self.num_q_heads, self.num_kv_heads, key, (Span("tied", 0, self.head_dim),), self.scale
        )

    def matmuls(self) -> tuple[Matmul, ...]:
        """q, tied kv, shared rotary key and output projections."""
        return (
            Matmul("q_proj", self.hidden_size, self.num_q_heads * self.head_dim),
            Matmul("kv_proj", self.hidden_size, self.num_kv_heads * self.head_dim),
            Matmul("k_rope_proj", self.hidden_size, self.qk_rope_head_dim),
            Matmul("o_proj", self.num_q_heads * self.head_dim, self.hidden_size, part=Part.OUTPUT),
        )

    @property
    def weight_elements(self) -> int:
        """Projections only."""
        return sum(m.weights for m in self.matmuls())

    def shard(self, tp: int) -> Self:
        """Heads split over ``tp`` ranks; the rotary key has no head axis and every rank keeps it."""
        check_tp(self.num_q_heads, tp)
        kv_heads = heads_per_rank("num_kv_heads", self.num_kv_heads, tp)
        return replace(self, num_q_heads=self.num_q_heads // tp, num_kv_heads=kv_heads)

    def unpacked(self) -> None:
        """Backends read the cache as it lies."""

    def prefilling(self) -> Self:
        """Prefill uses the same form."""
        return self

    def build(self) -> "TiedAttention":
        """The module, with uninitialised weights."""
        from variants.attention.tied.module import TiedAttention  # torch only when a module is wanted

        return TiedAttention(self)
