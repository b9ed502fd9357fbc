"""Latent attention (MLA) as a module: one set of weights, three forms."""

import copy
from dataclasses import replace

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.attention.latent.spec import LatentSpec
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.ranks import Cut
from variants.protocols import Entries, Spec
from variants.rope import Rope
from variants.view import DTYPES, CacheView


class LatentAttention(nn.Module):
    """MLA. Equation numbers are DeepSeek-V2's (arXiv 2405.04434); parameter names are DeepSeek's."""

    def __init__(self, spec: LatentSpec) -> None:
        super().__init__()
        self.spec = spec
        heads, rank, width, bias = spec.num_q_heads, spec.kv_lora_rank, spec.latent_width, spec.qkv_bias
        if spec.q_lora_rank is None:
            self.q_proj = nn.Linear(spec.hidden_size, heads * spec.qk_head_dim, bias=bias)
        else:
            self.q_a_proj = nn.Linear(spec.hidden_size, spec.q_lora_rank, bias=False)
            self.q_a_layernorm = nn.RMSNorm(spec.q_lora_rank, spec.norm_eps)
            self.q_b_proj = nn.Linear(spec.q_lora_rank, heads * spec.qk_head_dim, bias=bias)
        self.kv_a_proj_with_mqa = nn.Linear(spec.hidden_size, rank + spec.qk_rope_head_dim, bias=bias)
        self.kv_a_layernorm = nn.RMSNorm(width, spec.norm_eps) if spec.latent_norm else nn.Identity()
        self.kv_b_proj = nn.Linear(width, heads * (spec.qk_nope_head_dim + spec.v_head_dim), bias=False)
        self.o_proj = nn.Linear(heads * spec.v_head_dim, spec.hidden_size, bias=spec.output_bias)
        self.rope = Rope(spec.rotary)

    @property
    def dtype(self) -> Dtype:
        """What the weights are made of."""
        return DTYPES[self.o_proj.weight.dtype]

    def query(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q H K"]:
        """Per-head queries (eqs. 12-14); absorbed: q_nope W_UK in the latent's width beside the rotary part."""
        nope, rope = self._queries(x, position)
        return self._absorb(nope, rope) if self.spec.form == "absorbed" else torch.cat([nope, rope], dim=-1)

    def absorb_query(self, q: Float[Tensor, "B Q H _K"]) -> Float[Tensor, "B Q H K"]:
        """What ``query`` adds when absorbed, alone: per-head queries in the width that the latent is scored in."""
        return self._absorb(*q.split([self.spec.qk_nope_head_dim, self.spec.qk_rope_head_dim], dim=-1))

    def absorb_output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q H _V"]:
        """What ``output`` adds when absorbed, alone: attended latents as per-head values."""
        return torch.einsum("bqhc,hvc->bqhv", o, self._up()[1])

    def entry(self, x: Float[Tensor, "B Q D"], position: Int[Tensor, "B Q"]) -> Entries:
        """The normed latent (eq. 9) and the rotated shared key (eq. 15), or keys and values made from them."""
        latent, rope = self._compress(x, position)
        if self.spec.form != "expanded":
            return {"latent": latent, "rope": rope} if self.spec.qk_rope_head_dim else {"latent": latent}
        key, value = self._decompress(latent, rope)
        return {"key": key, "value": value}

    def unpack(self, packed: CacheView, target: CacheView, length: int) -> None:
        """Decompress tokens [0, length) of a latent cache into per-head keys and values (eqs. 10, 11, 16)."""
        weight = self.kv_b_proj.weight.dtype
        latent = packed.read(Span("latent", 0, self.spec.latent_width), length, weight)
        width = self.spec.qk_rope_head_dim
        rope = packed.read(Span("rope", 0, width), length, weight) if width else latent[..., :0]
        key, value = self._decompress(latent.transpose(1, 2), rope.transpose(1, 2))
        target.stream("key")[:, :, :length] = rearrange(key, "b t h k -> b h t k")
        target.stream("value")[:, :, :length] = rearrange(value, "b t h v -> b h t v")

    def output(self, o: Float[Tensor, "B Q H V"]) -> Float[Tensor, "B Q D"]:
        """The output projection (eq. 19); absorbed: first through W_UV, since the attended values are latents."""
        if self.spec.form == "absorbed":
            o = self.absorb_output(o)
        y: Tensor = self.o_proj(rearrange(o, "b q h v -> b q (h v)"))
        return y

    def reference(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The textbook layer (eqs. 9-19): per-head keys and values over the full sequence, causal softmax."""
        position = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        q_nope, q_rope = self._queries(x, position)
        latent, k_rope = self._compress(x, position)
        w_uk, w_uv = self._up()
        of_head = latent.repeat_interleave(self.spec.num_q_heads // self.spec.num_latent_heads, dim=2)  # [B, T, H, C]
        k_nope = torch.einsum("bthc,hnc->bthn", of_head, w_uk)
        scores = torch.einsum("bqhn,bthn->bhqt", q_nope, k_nope) + torch.einsum(
            "bqhr,btr->bhqt", q_rope, k_rope[:, :, 0]
        )
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = (scores * self.spec.scale).masked_fill(future, -torch.inf).softmax(dim=-1)
        value = torch.einsum("bthc,hvc->bthv", of_head, w_uv)
        y: Tensor = self.o_proj(rearrange(torch.einsum("bhqt,bthv->bqhv", weights, value), "b q h v -> b q (h v)"))
        return y

    def cuts(self) -> dict[str, Cut]:
        """By query head what makes and takes its rows, by latent head the latents; the rotary key is every rank's."""
        heads, latents = self.spec.num_q_heads, Cut(self.spec.num_latent_heads, rest=self.spec.qk_rope_head_dim)
        by_query = dict.fromkeys(("q_proj", "q_b_proj", "kv_b_proj"), Cut(heads))
        return {**by_query, "kv_a_proj_with_mqa": latents, "o_proj": Cut(heads, axis=1)}

    def as_form(self, spec: Spec) -> "LatentAttention":
        """The same parameters computing in another form; ValueError if more than the form differs."""
        twin = copy.copy(self)  # nn.Module keeps parameters in dicts: a shallow copy shares them
        if not isinstance(spec, LatentSpec) or replace(spec, form=self.spec.form) != self.spec:
            raise ValueError("as_form changes the form only; got a spec with other sizes")
        twin.spec = spec
        return twin

    def _queries(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        spec = self.spec
        flat = self.q_proj(x) if spec.q_lora_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = rearrange(flat, "b q (h k) -> b q h k", h=spec.num_q_heads)
        nope, rope = q.split([spec.qk_nope_head_dim, spec.qk_rope_head_dim], dim=-1)
        return nope, self.rope(rope, position)

    def _absorb(self, nope: Tensor, rope: Tensor) -> Tensor:
        """q_nope W_UK (zeros where keys are all rotary) beside the rotary part."""
        return torch.cat([torch.einsum("bqhn,hnc->bqhc", nope, self._up()[0]), rope], dim=-1)

    def _compress(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """The latent heads [B, Q, L, C] and the one rotary head [B, Q, 1, R] of each token."""
        both = self.kv_a_proj_with_mqa(x)
        latent, rope = both.split([self.spec.kv_lora_rank, self.spec.qk_rope_head_dim], dim=-1)
        latent = rearrange(latent, "b q (l c) -> b q l c", l=self.spec.num_latent_heads)
        return self.kv_a_layernorm(latent), self.rope(rope.unsqueeze(2), position)

    def _decompress(self, latent: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
        """Per-head keys [B, T, H, K] and values [B, T, H, V] of latents [B, T, L, C] and rotary keys [B, T, 1, R]."""
        spec, weight = self.spec, self.kv_b_proj.weight
        of_latent = rearrange(weight, "(l hw) c -> l hw c", l=spec.num_latent_heads)
        both = torch.einsum("btlc,lwc->btlw", latent, of_latent)
        both = rearrange(both, "b t l (h w) -> b t (l h) w", w=spec.qk_nope_head_dim + spec.v_head_dim)
        nope, value = both.split([spec.qk_nope_head_dim, spec.v_head_dim], dim=-1)
        shared = rope.expand(-1, -1, spec.num_q_heads, -1)
        return torch.cat([nope, shared], dim=-1), value

    def _up(self) -> tuple[Tensor, Tensor]:
        """W_UK [H, nope, C] and W_UV [H, v, C]: views of kv_b_proj, never merged with other weights."""
        both = rearrange(self.kv_b_proj.weight, "(h w) c -> h w c", h=self.spec.num_q_heads)
        return both[:, : self.spec.qk_nope_head_dim], both[:, self.spec.qk_nope_head_dim :]
