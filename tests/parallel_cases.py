"""What the ranks of ``tests.ranks`` are asked: every variant decoded in shards, held to the whole layer in float64."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor

from tests.builders import BACKENDS, CPU, SPECS, STORAGES, build, gla, grouped, latent, normal, tied
from tests.ranks import Case
from variants.attention.latent.spec import FORMS
from variants.contract.dtype import Dtype
from variants.contract.ranks import Turns
from variants.decode import Decoder, Refused
from variants.parallel.context import ContextDecoder
from variants.parallel.ranks import Ranks
from variants.parallel.shards import Sharded, shard
from variants.protocols import Attention, KVCache, Spec
from variants.view import TORCH_DTYPES

SPLITS = ((2, 1), (4, 1), (1, 2), (1, 4), (2, 2))  # tp, cp
BATCH, PROMPT, STEPS, BLOCK = 2, 5, 4, 2  # at first the last of four ranks caches nothing, at the end one token
EIGHT: dict[str, Spec] = {  # heads that four ranks can share
    "mha 8": grouped(8, 8),
    "gqa 8:4, biased, normed": grouped(8, 4, qkv_bias=True, output_bias=True, qk_norm=True),
    "gqa 8:2": grouped(8, 2),
    "mqa 8": grouped(8, 1),
    "gta 8:4": tied(8, 4),
    "gta 8:2": tied(8, 2),
    "gla 8:4": latent(8, num_latent_heads=4),
    "gla 8:2": latent(8, num_latent_heads=2, q_lora_rank=20),
}
LATENT = {f"{kind} {form}": made(form=form) for kind, made in (("mla", latent), ("gla", gla)) for form in FORMS}
EVERY = {**EIGHT, **LATENT}
BY_NAME = {**SPECS, **EVERY}


@dataclass(frozen=True)
class Seen:
    """What one rank saw: distance of its outputs from the whole layer's, what they were, and what it cached."""

    error: float
    outputs: str
    tokens: int
    cache_bytes: int


def cases() -> Mapping[str, Case]:
    """Every case by name, in the same order on every rank."""
    named: dict[str, Case] = {}
    for (tp, cp), name in product(SPLITS, EVERY):
        named[f"{name}, tp {tp}, cp {cp}"] = partial(decoded, name, tp, cp)
        if (tp, cp) == (2, 2):
            named[f"{name}, paged fp32"] = partial(decoded, name, tp, cp, Dtype.F32, "paged")
        if cp == 1:
            named[f"{name}, prefilled, tp {tp}"] = partial(prefilled, name, tp)
    for name in ("gqa", "gqa window", "gqa partial, interleaved"):
        for tp, cp in SPLITS:
            named[f"{name}, tp {tp}, cp {cp}"] = partial(decoded, name, tp, cp)
    return {
        **named,
        "sdpa": partial(decoded, "gqa 8:2", 1, 4, Dtype.F64, "contiguous", "sdpa"),
        "two tokens": two_tokens,
        "three processes": partial(ranks.__wrapped__, 3, 1),
    }


def compiled_cases() -> Mapping[str, Case]:
    """A backend that compiles for seconds."""
    kernel = (Dtype.F32, "paged", "numba_split_kv")
    return {name: partial(decoded, name, 2, 2, *kernel) for name in ("gqa 8:2", "mla absorbed")}


@cache
def ranks(tp: int, cp: int) -> Ranks:
    """Groups are made once."""
    return Ranks.join(tp, cp)


@cache
def whole(name: str, dtype: Dtype) -> tuple[Attention, Tensor, Tensor]:
    """The layer in one piece, its inputs, and what it makes of the steps in float64 by the textbook."""
    spec = BY_NAME[name]
    x = normal(BATCH, PROMPT + STEPS, spec.hidden_size, dtype=TORCH_DTYPES[dtype])
    return build(spec, TORCH_DTYPES[dtype]), x, build(spec).reference(x.double())


def decoded(
    name: str, tp: int, cp: int, dtype: Dtype = Dtype.F64, storage: str = "contiguous", backend: str = "eager"
) -> Seen | str:
    """A prompt cached, then steps one by one."""
    here, turns = ranks(tp, cp), Turns(cp, BLOCK)
    module, x, exact = whole(name, dtype)
    try:
        part = shard(module, here)
        held = turns.held(PROMPT + STEPS, here.cp_rank)
        room = STORAGES[storage].allocate(part.spec.layout(dtype), BATCH, max(1, held), CPU)
        decoder = ContextDecoder(part, room, BACKENDS[backend], here, turns)
        decoder.fill(x[:, :PROMPT])
        y = torch.cat([decoder.decode(x[:, t : t + 1]) for t in range(PROMPT, PROMPT + STEPS)], dim=1)
    except Refused as refusal:
        return str(refusal)
    return seen(y, exact[:, PROMPT:], room, int(room.view.lengths.max()))


def prefilled(name: str, tp: int) -> Seen | str:
    """A prompt whose outputs count too, then steps, by the decoder that knows nothing of ranks."""
    module, x, exact = whole(name, Dtype.F64)
    try:
        part: Sharded = shard(module, ranks(tp, 1))
    except Refused as refusal:
        return str(refusal)
    room = STORAGES["paged"].allocate(part.spec.layout(Dtype.F64), BATCH, PROMPT + STEPS, CPU)
    decoder = Decoder(part, room, BACKENDS["eager"])
    steps = [decoder.prefill(x[:, :PROMPT]), *(decoder.decode(x[:, t : t + 1]) for t in range(PROMPT, PROMPT + STEPS))]
    return seen(torch.cat(steps, dim=1), exact, room, PROMPT + STEPS)


def two_tokens() -> str:
    """A step of two tokens over a divided context."""
    here, name = ranks(1, 4), "gqa 8:2"
    module, x, _ = whole(name, Dtype.F64)
    room = STORAGES["contiguous"].allocate(EIGHT[name].layout(Dtype.F64), BATCH, 8, CPU)
    try:
        ContextDecoder(shard(module, here), room, BACKENDS["eager"], here, Turns(4)).decode(x[:, :2])
    except Refused as refusal:
        return str(refusal)
    return "not refused"


def seen(y: Tensor, exact: Tensor, room: KVCache, tokens: int) -> Seen:
    """Relative distance, a hash that tells outputs apart to the bit, and the cache."""
    digest = hashlib.sha256(y.numpy().tobytes()).hexdigest()
    return Seen(float((y.double() - exact).norm() / exact.norm()), digest, tokens, room.allocated_bytes)
