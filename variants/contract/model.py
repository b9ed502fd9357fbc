"""The shape of a model as far as its attention layers go, under Hugging Face's field names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from variants.contract.checks import check_count, check_number
from variants.contract.rotary import Rotary, check_fields, parse_scaling

LARGEST_GROUPING = 8  # kv heads that a grouped variant gives to a model which has no grouping of its own


@dataclass(frozen=True)
class ModelShape:
    """One attention layer of a model and how many there are; ``source`` says where the numbers were read.

    ``head_dim`` is the width of a head that carries no latent: null means ``qk_nope_head_dim`` of an MLA model, else
    ``hidden_size / num_attention_heads``. Raises ValueError naming the field that is wrong.
    """

    name: str
    source: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    attention_bias: bool = False
    qk_norm: bool = False
    rms_norm_eps: float = 1e-6
    query_pre_attn_scalar: float | None = None
    rope_style: str = "half"
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    partial_rotary_factor: float = 1.0
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            check_count(f"model.{name}", getattr(self, name))
        for name in _OPTIONAL_COUNTS:
            if getattr(self, name) is not None:
                check_count(f"model.{name}", getattr(self, name))
        for name in _NUMBERS:
            check_number(f"model.{name}", getattr(self, name))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"model.{name} must be true or false; got {getattr(self, name)!r}")
        if self.query_pre_attn_scalar is not None:
            check_number("model.query_pre_attn_scalar", self.query_pre_attn_scalar)
        if self.head_dim is None and self.qk_nope_head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "head_dim must be given where num_attention_heads does not divide hidden_size; "
                f"got hidden_size={self.hidden_size}, num_attention_heads={self.num_attention_heads}"
            )
        self.rotary.frequencies()  # raises here, not when a variant is built, if the rope fields cannot be

    @property
    def kv_heads(self) -> int:
        """Key/value heads of the model itself; a missing field means one per query head."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def grouping(self) -> int:
        """Kv heads of a grouped variant in this model's place: its own, else the largest divisor up to 8."""
        heads = self.num_attention_heads
        if 1 < self.kv_heads < heads:
            return self.kv_heads
        return max(g for g in range(1, min(LARGEST_GROUPING, heads) + 1) if heads % g == 0)

    @property
    def width(self) -> int:
        """Columns of one plain head."""
        return self.head_dim or self.qk_nope_head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rotary(self) -> Rotary:
        """The model's rotary embedding over a whole plain head; specs narrow it with ``over``."""
        full = Rotary(self.rope_style, self.width - self.width % 2, self.rope_theta, parse_scaling(self.rope_scaling))
        return full.over(self.width, self.partial_rotary_factor)

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "ModelShape":
        """Build from a config mapping; ValueError names an unknown or missing field."""
        check_fields(ModelShape, raw, "model")
        return ModelShape(**raw)


_COUNTS = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_OPTIONAL_COUNTS = (
    "num_key_value_heads",
    "head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
_NUMBERS = ("rms_norm_eps", "rope_theta", "partial_rotary_factor")
_FLAGS = ("attention_bias", "qk_norm")
