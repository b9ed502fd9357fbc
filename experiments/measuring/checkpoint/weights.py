"""Weights of an attention layer of theirs under our names: one matrix of q, k and v is taken apart."""

from collections.abc import Callable, Mapping
from typing import Any

from einops import rearrange
from torch import Tensor

State = Mapping[str, Tensor]
PARTS = ("weight", "bias")
QKV = ("q_proj", "k_proj", "v_proj")


def as_named(state: State, spec: Any) -> State:
    """Theirs have our names: Llama, Qwen, Mistral, DeepSeek."""
    return state


def concatenated(state: State, spec: Any) -> State:
    """GPT-2: all queries, then all keys, then all values; matrices lie [in, out]."""
    ours: dict[str, Tensor] = {}
    for part in PARTS:
        joint, out = (state[f"{name}.{part}"].t() for name in ("c_attn", "c_proj"))
        ours |= {f"{name}.{part}": rows for name, rows in zip(QKV, joint.chunk(3), strict=True)}
        ours[f"o_proj.{part}"] = out
    return ours


def fused(joint: str, out: str) -> Callable[[State, Any], State]:
    """Each key/value head's queries, then its key, then its value: MHA of GPT-NeoX, MQA of GPT-BigCode, any Falcon."""

    def apart(state: State, spec: Any) -> State:
        ours: dict[str, Tensor] = {}
        for part in (part for part in PARTS if f"{joint}.{part}" in state):
            heads = rearrange(
                state[f"{joint}.{part}"], "(g r w) ... -> g r w ...", g=spec.num_kv_heads, w=spec.head_dim
            )
            rows = heads[:, :-2], heads[:, -2:-1], heads[:, -1:]
            ours |= {
                f"{name}.{part}": rearrange(r, "g r w ... -> (g r w) ...") for name, r in zip(QKV, rows, strict=True)
            }
            ours[f"o_proj.{part}"] = state[f"{out}.{part}"]
        return ours

    return apart
