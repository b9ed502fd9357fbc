"""Grouped tied attention as a module."""

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.attention.tied.spec import TiedSpec
from variants.contract.dtype import Dtype
from variants.contract.ranks import Cut
from variants.protocols import Entries, Spec
from variants.rope import Rope
from variants.view import DTYPES, CacheView


class TiedAttention(nn.Module):
    """GTA over ``spec.num_kv_heads`` tied states (arXiv 2505.21487, section 3.3.1)."""

    def __init__(self, spec: TiedSpec) -> None:
        super().__init__()
        self.spec = spec
        self.q_proj = nn.Linear(spec.hidden_size, spec.num_q_heads * spec.head_dim, bias=False)
        self.kv_proj = nn.Linear(spec.hidden_size, spec.num_kv_heads * spec.head_dim, bias=False)
        self.k_rope_proj = nn.Linear(spec.hidden_size, spec.qk_rope_head_dim, bias=False)
        self.o_proj = nn.Linear(spec.num_q_heads * spec.head_dim, spec.hidden_size, bias=False)
        self.rope = Rope(spec.rotary)

    @property
    def dtype(self) -> Dtype:
        """What the weights are made of."""
        return DTYPES[self.o_proj.weight.dtype]

    def query(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H K"]:
        """Queries whose last columns are rotated, to meet the shared rotary key."""
        q = rearrange(self.q_proj(x), "b q (h k) -> b q h k", h=self.spec.num_q_heads)
        plain, turned = q.split([self.spec.tied_width, self.spec.qk_rope_head_dim], dim=-1)
        return torch.cat([plain, self.rope(turned, position)], dim=-1)

    def entry(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Entries:
        """The tied state of each kv head and the rotated shared key."""
        tied = rearrange(self.kv_proj(x), "b q (g w) -> b q g w", g=self.spec.num_kv_heads)
        return {"tied": tied, "rope": self.rope(self.k_rope_proj(x).unsqueeze(2), position)}

    def unpack(self, packed: CacheView, target: CacheView, length: int) -> None:
        """Never needed: backends read this cache as it lies."""
        raise TypeError("tied attention has no packed form; spec.unpacked() is None")

    def output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q D"]:
        """The output projection."""
        y: Tensor = self.o_proj(rearrange(o, "b q h v -> b q (h v)"))
        return y

    def reference(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """softmax(scale Q K^T) V with K and V built out in full for every query head."""
        position = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        spec = self.spec
        q = rearrange(self.q_proj(x), "b t (h w) -> b t h w", h=spec.num_q_heads)
        tied = rearrange(self.kv_proj(x), "b t (g w) -> b t g w", g=spec.num_kv_heads)
        q = torch.cat([q[..., : spec.tied_width], self.rope(q[..., spec.tied_width :], position)], dim=-1)
        rope = self.rope(self.k_rope_proj(x).unsqueeze(2), position).expand(-1, -1, spec.num_kv_heads, -1)
        k = torch.cat([tied[..., : spec.tied_width], rope], dim=-1)
        group = spec.num_q_heads // spec.num_kv_heads
        k, v = (repeat(part, "b t g w -> b t (g group) w", group=group) for part in (k, tied))
        scores = torch.einsum("bqhk,bthk->bhqt", q, k) * spec.scale
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
        y: Tensor = self.o_proj(rearrange(torch.einsum("bhqt,bthv->bqhv", weights, v), "b q h v -> b q (h v)"))
        return y

    def cuts(self) -> dict[str, Cut]:
        """Queries and the output by query head, tied states by kv head; the rotary key is every rank's."""
        heads = self.spec.num_q_heads
        return {"q_proj": Cut(heads), "kv_proj": Cut(self.spec.num_kv_heads), "o_proj": Cut(heads, axis=1)}

    def as_form(self, spec: Spec) -> "TiedAttention":
        """There is one form: the module itself."""
        if not isinstance(spec, TiedSpec) or spec != self.spec:
            raise ValueError("tied attention has one form only")
        return self
