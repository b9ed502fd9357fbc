"""Latent attention (MLA: one latent head, GLA: several) as numbers."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from variants.contract.checks import check_count
from variants.contract.codes import stored, uncoded
from variants.contract.cost import Applied, Matmul, Part
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span, check_heads, check_tp, heads_per_rank
from variants.contract.identity import ADDED
from variants.contract.layout import CacheLayout, Sharding, Stream
from variants.contract.model import ModelShape
from variants.contract.rotary import Rotary

if TYPE_CHECKING:
    from variants.attention.latent.module import LatentAttention

FORMS = ("absorbed", "materialized", "expanded")
_SIZES = ("hidden_size", "num_q_heads", "kv_lora_rank", "v_head_dim")
_PARTS = ("qk_nope_head_dim", "qk_rope_head_dim")  # of a key; one of them may be missing


@dataclass(frozen=True)
class LatentSpec:
    """MLA, or GLA with ``num_latent_heads`` > 1, in one of three forms; weights and results are the same in all.

    ``kv_lora_rank`` is the width of all latent heads together; each serves num_q_heads / num_latent_heads query heads.
    ``scale`` multiplies the full score: (qk_nope_head_dim + qk_rope_head_dim)^-0.5 times YaRN's softmax factor.
    What a converted layer needs and DeepSeek's has not: no norm on the latent (``latent_norm``), biases of the query
    and kv_a projections (``qkv_bias``) and of the output, keys that are all rotary (``qk_nope_head_dim`` 0) or not at
    all (``qk_rope_head_dim`` 0).
    Raises ValueError for an unknown form or a size that cannot be.
    """

    hidden_size: int
    num_q_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rotary: Rotary
    scale: float
    q_lora_rank: int | None = None
    norm_eps: float = 1e-6
    form: str = "absorbed"
    num_latent_heads: int = 1
    latent_norm: bool = field(default=True, metadata=ADDED)
    qkv_bias: bool = field(default=False, metadata=ADDED)
    output_bias: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"MLA form must be one of {', '.join(FORMS)}; got {self.form!r}")
        for name in _SIZES:
            check_count(name, getattr(self, name))
        for name in _PARTS:
            if getattr(self, name) or isinstance(getattr(self, name), bool):
                check_count(name, getattr(self, name))
        if not self.qk_head_dim:
            raise ValueError("a key needs columns: qk_nope_head_dim + qk_rope_head_dim must be >= 1; got 0 + 0")
        if self.q_lora_rank is not None:
            check_count("q_lora_rank", self.q_lora_rank)
        check_count("num_latent_heads", self.num_latent_heads)
        check_heads(self.num_q_heads, self.num_latent_heads, "num_latent_heads")
        if self.kv_lora_rank % self.num_latent_heads:
            raise ValueError(
                "num_latent_heads must divide kv_lora_rank; "
                f"got kv_lora_rank={self.kv_lora_rank}, num_latent_heads={self.num_latent_heads}"
            )
        if self.rotary.width not in (0, self.qk_rope_head_dim):
            raise ValueError(f"rope width must be qk_rope_head_dim={self.qk_rope_head_dim}; got {self.rotary.width}")

    @classmethod
    def from_model(
        cls,
        model: ModelShape,
        form: str = "absorbed",
        kv_lora_rank: int | None = None,
        qk_rope_head_dim: int | None = None,
        q_lora_rank: int | None = None,
        num_latent_heads: int = 1,
    ) -> Self:
        """MLA in a model's place: its own latent sizes, or DeepSeek's ratios (latent 4 head_dim, rope head_dim / 2)."""
        nope = model.qk_nope_head_dim or model.width
        rope = _first(qk_rope_head_dim, model.qk_rope_head_dim, model.width // 2)
        check_count("qk_rope_head_dim", rope)
        style = "none" if model.rope_style == "none" else "interleaved"
        rotary = replace(model.rotary, width=rope, style=style)
        return cls(
            hidden_size=model.hidden_size,
            num_q_heads=model.num_attention_heads,
            kv_lora_rank=_first(kv_lora_rank, model.kv_lora_rank, 4 * model.width),
            qk_nope_head_dim=nope,
            qk_rope_head_dim=rope,
            v_head_dim=model.v_head_dim or model.width,
            rotary=rotary,
            scale=(nope + rope) ** -0.5 * rotary.softmax_factor,
            q_lora_rank=model.q_lora_rank if q_lora_rank is None else q_lora_rank,
            norm_eps=model.rms_norm_eps,
            form=form,
            num_latent_heads=num_latent_heads,
        )

    @property
    def latent_width(self) -> int:
        """Columns of one latent head."""
        return self.kv_lora_rank // self.num_latent_heads

    @property
    def qk_head_dim(self) -> int:
        """Width of a decompressed key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def layout(self, dtype: Dtype) -> CacheLayout:
        """Latent and rotary key side by side in one row, as are per-head keys and values when expanded."""
        if self.form == "expanded":
            key = Stream("key", self.num_q_heads, self.qk_head_dim, dtype)
            return stored(key, Stream("value", self.num_q_heads, self.v_head_dim, dtype), one_row=True)
        width = self.qk_rope_head_dim
        rope = [Stream("rope", 1, width, uncoded(dtype), sharding=Sharding.REPLICATED)] if width else []
        if self.num_latent_heads > 1:
            return stored(Stream("latent", self.num_latent_heads, self.latent_width, dtype), *rope)
        latent = Stream("latent", 1, self.kv_lora_rank, dtype, sharding=Sharding.REPLICATED)
        return stored(latent, *rope, one_row=True)

    def geometry(self) -> AttentionGeometry:
        """Absorbed: latent heads whose V lies inside K. Otherwise the decompressed heads.

        Keys that are all rotary are scored beside the latent too, which queries then give no weight: kernels that read
        a latent cache need nothing new for them.
        """
        if self.form == "absorbed":
            latent = (Span("latent", 0, self.latent_width),)
            rope = (Span("rope", 0, self.qk_rope_head_dim),) if self.qk_rope_head_dim else ()
            return AttentionGeometry(self.num_q_heads, self.num_latent_heads, (*latent, *rope), latent, self.scale)
        key, value = Span("key", 0, self.qk_head_dim), Span("value", 0, self.v_head_dim)
        return AttentionGeometry(self.num_q_heads, self.num_q_heads, (key,), (value,), self.scale)

    def matmuls(self) -> tuple[Matmul, ...]:
        """Projections; what happens to kv_b is the whole difference between the forms."""
        kv_a = Matmul("kv_a_proj", self.hidden_size, self.kv_lora_rank + self.qk_rope_head_dim)
        o = Matmul("o_proj", self.num_q_heads * self.v_head_dim, self.hidden_size, part=Part.OUTPUT)
        return (*self._query_matmuls(), kv_a, *self._kv_b_matmuls(), o)

    def _query_matmuls(self) -> tuple[Matmul, ...]:
        width = self.num_q_heads * self.qk_head_dim
        if self.q_lora_rank is None:
            return (Matmul("q_proj", self.hidden_size, width),)
        return (
            Matmul("q_a_proj", self.hidden_size, self.q_lora_rank),
            Matmul("q_b_proj", self.q_lora_rank, width),
        )

    def _kv_b_matmuls(self) -> tuple[Matmul, ...]:
        heads, rank = self.num_q_heads, self.latent_width
        if self.form == "absorbed":
            key = Matmul("kv_b_proj (absorb key)", self.qk_nope_head_dim, rank, heads, part=Part.ABSORB)
            value = Matmul("kv_b_proj (absorb value)", rank, self.v_head_dim, heads, part=Part.ABSORB)
            return (key, value) if self.qk_nope_head_dim else (value,)
        applied = Applied.CACHED if self.form == "materialized" else Applied.NEW
        width = heads // self.num_latent_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return (Matmul("kv_b_proj", rank, width, self.num_latent_heads, applied),)

    @property
    def weight_elements(self) -> int:
        """Projections, biases and the norms of both latents."""
        norms = self.latent_norm * self.latent_width + (self.q_lora_rank or 0)
        queries_and_kv_a = self.num_q_heads * self.qk_head_dim + self.kv_lora_rank + self.qk_rope_head_dim
        biases = self.qkv_bias * queries_and_kv_a + self.output_bias * self.hidden_size
        return sum(m.weights for m in self.matmuls()) + norms + biases

    def shard(self, tp: int) -> Self:
        """Query heads split over ``tp`` ranks, and latent heads as far as there are; each rank stores at least one."""
        check_tp(self.num_q_heads, tp)
        latent_heads = heads_per_rank("num_latent_heads", self.num_latent_heads, tp)
        rank = latent_heads * self.latent_width
        return replace(self, num_q_heads=self.num_q_heads // tp, num_latent_heads=latent_heads, kv_lora_rank=rank)

    def unpacked(self) -> Self | None:
        """Materialized: backends read decompressed heads."""
        return replace(self, form="expanded") if self.form == "materialized" else None

    def prefilling(self) -> Self:
        """Absorbed caches are prefilled by materialized mathematics over the same latent."""
        return replace(self, form="materialized") if self.form == "absorbed" else self

    def build(self) -> "LatentAttention":
        """The module, with uninitialised weights."""
        from variants.attention.latent.module import LatentAttention  # torch only when a module is wanted

        return LatentAttention(self)


def _first(*sizes: int | None) -> int:
    """The first size that is given; 0 is given, and refused later."""
    return next(size for size in sizes if size is not None)
