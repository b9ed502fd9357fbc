"""Grouped attention as a module."""

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.attention.grouped.spec import GroupedSpec
from variants.contract.dtype import Dtype
from variants.contract.ranks import Cut
from variants.protocols import Entries, Spec
from variants.rope import Rope
from variants.view import DTYPES, CacheView


class GroupedAttention(nn.Module):
    """MHA, GQA or MQA over ``spec.num_kv_heads`` key/value heads. Parameter names are Hugging Face's."""

    def __init__(self, spec: GroupedSpec) -> None:
        super().__init__()
        self.spec = spec
        q_width, kv_width = spec.num_q_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, q_width, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(spec.hidden_size, kv_width, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(spec.hidden_size, kv_width, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(q_width, spec.hidden_size, bias=spec.output_bias)
        self.q_norm = nn.RMSNorm(spec.head_dim, spec.norm_eps) if spec.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(spec.head_dim, spec.norm_eps) if spec.qk_norm else nn.Identity()
        self.rope = Rope(spec.rotary)

    @property
    def dtype(self) -> Dtype:
        """What the weights are made of."""
        return DTYPES[self.o_proj.weight.dtype]

    def query(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H K"]:
        """Normed (Qwen3) and rotated queries."""
        q = rearrange(self.q_proj(x), "b q (h k) -> b q h k", h=self.spec.num_q_heads)
        rotated: Tensor = self.rope(self.q_norm(q), position)
        return rotated

    def entry(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Entries:
        """Rotated keys, and values."""
        key, value = (
            rearrange(p(x), "b q (g w) -> b q g w", g=self.spec.num_kv_heads) for p in (self.k_proj, self.v_proj)
        )
        return {"key": self.rope(self.k_norm(key), position), "value": value}

    def unpack(self, packed: CacheView, target: CacheView, length: int) -> None:
        """Never needed: backends read this cache as it lies."""
        raise TypeError("grouped attention has no packed form; spec.unpacked() is None")

    def output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q D"]:
        """The output projection."""
        y: Tensor = self.o_proj(rearrange(o, "b q h v -> b q (h v)"))
        return y

    def reference(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """softmax(scale Q K^T) V over the full sequence, K and V repeated for every query head (GQA, figure 2)."""
        position = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        spec, group = self.spec, self.spec.num_q_heads // self.spec.num_kv_heads
        heads = (self.q_proj, spec.num_q_heads), (self.k_proj, spec.num_kv_heads), (self.v_proj, spec.num_kv_heads)
        q, k, v = (rearrange(p(x), "b t (h w) -> b t h w", h=h) for p, h in heads)
        q, k = self.rope(self.q_norm(q), position), self.rope(self.k_norm(k), position)
        k, v = (repeat(part, "b t g w -> b t (g group) w", group=group) for part in (k, v))
        scores = torch.einsum("bqhk,bthk->bhqt", q, k) * spec.scale
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        if spec.window is not None:
            hidden |= ~hidden.new_ones(hidden.shape).triu(1 - spec.window)  # keys i - window + 1 .. i are seen
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        y: Tensor = self.o_proj(rearrange(torch.einsum("bhqt,bthv->bqhv", weights, v), "b q h v -> b q (h v)"))
        return y

    def cuts(self) -> dict[str, Cut]:
        """Queries and the output by query head, keys and values by kv head."""
        q, kv = Cut(self.spec.num_q_heads), Cut(self.spec.num_kv_heads)
        return {"q_proj": q, "k_proj": kv, "v_proj": kv, "o_proj": Cut(self.spec.num_q_heads, axis=1)}

    def as_form(self, spec: Spec) -> "GroupedAttention":
        """There is one form: the module itself."""
        if not isinstance(spec, GroupedSpec) or spec != self.spec:
            raise ValueError("grouped attention has one form only")
        return self
