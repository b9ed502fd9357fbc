"""Layers to convert and inputs for them, as tests need them."""

import torch

from tests.builders import LLAMA3, YARN, allocate, build, grouped, normal
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.rotary import Rotary
from variants.decode import Decoder

SOURCES = {
    "gqa": grouped(),
    "mha": grouped(4, 4),
    "mqa": grouped(4, 1),
    "qwen2: biased qkv": grouped(6, 3, qkv_bias=True),
    "all biases, llama3": grouped(qkv_bias=True, output_bias=True, rotary=Rotary("half", 16, scaling=LLAMA3)),
    "partly rotary": grouped(6, 3, rotary=Rotary("interleaved", 8)),
    "yarn": grouped(rotary=Rotary("half", 16, scaling=YARN)),
    "other scale": grouped(scale=0.1),
    "gpt2: without rope": grouped(4, 4, rotary=Rotary("none", 0), qkv_bias=True, output_bias=True),
}


def inputs(tokens=24, batch=2, hidden=48, seed=0):
    """Activations as layers see them: some directions large, a mean that is not zero, float64."""
    spread = torch.logspace(0.3, -1.5, hidden, dtype=torch.float64)
    turned = torch.linalg.qr(normal(hidden, hidden, seed=99))[0]
    return (normal(batch, tokens, hidden, seed=seed) * spread) @ turned.T + 0.5 * normal(hidden, seed=98)


def decoded(module, x, storage=None, prompt=7):
    """Prefill of a prompt, then one token after the other, over a cache of the layer's own layout."""
    layout = module.spec.layout(Dtype.F64)
    cache = allocate(layout, len(x), x.shape[1], *([storage] if storage else []))
    decoder = Decoder(module, cache, Eager())
    parts = [decoder.prefill(x[:, :prompt]), *(decoder.decode(part) for part in x[:, prompt:].split(1, dim=1))]
    return torch.cat(parts, dim=1)


def source(name):
    """A layer with random weights."""
    return build(SOURCES[name]).requires_grad_(False)
