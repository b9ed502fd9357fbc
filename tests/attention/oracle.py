"""All layers as their papers write them: float64 numpy, one token and one head at a time, no code of ours."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.attention.tied.spec import TiedSpec
from variants.contract.rotary import Rotary

Array = npt.NDArray[np.float64]
Weights = dict[str, Array]


def weights_of(module: Any) -> Weights:
    """Parameters by name, as float64 arrays."""
    return {name: p.detach().double().numpy() for name, p in module.named_parameters()}


def layer(spec: Any, weights: Weights, x: Array) -> Array:
    """The layer's output [T, D] for one sequence [T, D]."""
    q, k, v = HEADS[type(spec)](spec, weights, x)  # [T, H, width] each
    window = getattr(spec, "window", None) or len(x)
    out = np.zeros((len(x), q.shape[1], v.shape[2]))
    for t in range(len(x)):
        for h in range(q.shape[1]):
            first = max(0, t - window + 1)
            scores = np.array([spec.scale * (q[t, h] @ k[j, h]) for j in range(first, t + 1)])
            p = np.exp(scores - scores.max())
            out[t, h] = (p / p.sum()) @ v[first : t + 1, h]
    return linear(weights, "o_proj", out.reshape(len(x), -1))


def grouped_heads(spec: GroupedSpec, weights: Weights, x: Array) -> tuple[Array, Array, Array]:
    """Q, K, V of every query head; head h reads kv head floor(h G / H) (GQA, arXiv 2305.13245, section 2.2)."""
    q, k, v = (linear(weights, name, x).reshape(len(x), -1, spec.head_dim) for name in ("q_proj", "k_proj", "v_proj"))
    if spec.qk_norm:
        q, k = (rms_norm(a, weights[f"{n}_norm.weight"], spec.norm_eps) for a, n in ((q, "q"), (k, "k")))
    q, k = rotate(spec.rotary, q), rotate(spec.rotary, k)
    of_head = [h * spec.num_kv_heads // spec.num_q_heads for h in range(spec.num_q_heads)]
    return q, k[:, of_head], v[:, of_head]


def latent_heads(spec: LatentSpec, weights: Weights, x: Array) -> tuple[Array, Array, Array]:
    """Q, K, V of every head, K and V from its latent (DeepSeek-V2, arXiv 2405.04434, eqs. 9 to 17).

    With several latent heads (GLA, arXiv 2505.21487) query head h reads latent floor(h L / H), and each
    latent is normed by itself.
    """
    tokens, heads, nope, rank = len(x), spec.num_q_heads, spec.qk_nope_head_dim, spec.kv_lora_rank
    each = rank // spec.num_latent_heads
    if spec.q_lora_rank is None:
        q = linear(weights, "q_proj", x)
    else:
        c_q = rms_norm(linear(weights, "q_a_proj", x), weights["q_a_layernorm.weight"], spec.norm_eps)
        q = linear(weights, "q_b_proj", c_q)
    q = q.reshape(tokens, heads, -1)
    both = linear(weights, "kv_a_proj_with_mqa", x)
    k_rope = rotate(spec.rotary, both[:, None, rank:])
    kv = np.zeros((tokens, heads, nope + spec.v_head_dim))
    for h in range(heads):
        first = h * spec.num_latent_heads // heads * each
        c_kv = both[:, first : first + each]
        if spec.latent_norm:
            c_kv = rms_norm(c_kv, weights["kv_a_layernorm.weight"], spec.norm_eps)
        up = weights["kv_b_proj.weight"][h * kv.shape[2] : (h + 1) * kv.shape[2]]
        kv[:, h] = c_kv @ up.T
    q = np.concatenate([q[..., :nope], rotate(spec.rotary, q[..., nope:])], axis=-1)
    k = np.concatenate([kv[..., :nope], np.repeat(k_rope, heads, axis=1)], axis=-1)
    return q, k, kv[..., nope:]


def tied_heads(spec: TiedSpec, weights: Weights, x: Array) -> tuple[Array, Array, Array]:
    """Q, K, V of every query head: V a tied state, K its first columns and one rotary key (arXiv 2505.21487)."""
    q = linear(weights, "q_proj", x).reshape(len(x), spec.num_q_heads, -1)
    tied = linear(weights, "kv_proj", x).reshape(len(x), spec.num_kv_heads, -1)
    rope = rotate(spec.rotary, linear(weights, "k_rope_proj", x)[:, None])
    plain = spec.head_dim - spec.qk_rope_head_dim
    q = np.concatenate([q[..., :plain], rotate(spec.rotary, q[..., plain:])], axis=-1)
    keys, values = [], []
    for h in range(spec.num_q_heads):
        state = tied[:, h * spec.num_kv_heads // spec.num_q_heads]
        keys.append(np.concatenate([state[:, :plain], rope[:, 0]], axis=-1))
        values.append(state)
    return q, np.stack(keys, axis=1), np.stack(values, axis=1)


HEADS: dict[type, Callable[..., tuple[Array, Array, Array]]] = {
    GroupedSpec: grouped_heads,
    LatentSpec: latent_heads,
    TiedSpec: tied_heads,
}


def linear(weights: Weights, name: str, x: Array) -> Array:
    """x W^T + b."""
    y: Array = x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", np.zeros(1))
    return y


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / rms(x), times a weight."""
    y: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight
    return y


def rotate(rotary: Rotary, x: Array) -> Array:
    """[T, heads, W] turned as complex numbers by exp(i t f), token t at position t (RoFormer, eq. 13)."""
    if rotary.style == "none":
        return x
    width = rotary.width
    turning, rest = x[..., :width], x[..., width:]
    first, second = (
        (turning[..., : width // 2], turning[..., width // 2 :])
        if rotary.style == "half"
        else (turning[..., 0::2], turning[..., 1::2])
    )
    angle = np.arange(len(x))[:, None, None] * np.array(rotary.frequencies())
    turned = (first + 1j * second) * np.exp(1j * angle) * rotary.amplitude
    if rotary.style == "half":
        return np.concatenate([turned.real, turned.imag, rest], axis=-1)
    pairs = np.stack([turned.real, turned.imag], axis=-1)
    assert math.prod(pairs.shape[-2:]) == width
    return np.concatenate([pairs.reshape(*x.shape[:-1], width), rest], axis=-1)
