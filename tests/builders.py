"""Small things that many tests need: specs, weights, filled caches, and float64 attention as a textbook has it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import FORMS, LatentSpec
from variants.attention.tied.spec import TiedSpec
from variants.codes import decode, encode
from variants.contract import plugin
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.model import ModelShape
from variants.contract.rotary import Llama3, Rotary, Yarn
from variants.protocols import Attended, Attention, Backend, KVCache, Plan, Request, Spec, StoragePolicy
from variants.view import TORCH_DTYPES

ROOT = Path(__file__).parent.parent
CONF = ROOT / "conf"
CPU = torch.device("cpu")

DTYPES = {
    Dtype.F64: torch.float64,
    Dtype.F32: torch.float32,
    Dtype.BF16: torch.bfloat16,
    Dtype.F16: torch.float16,
}
SMALL: dict[str, dict[str, Any]] = {"paged": {"page_size": 4}, "ring": {"queries": 3}}  # several pages in few tokens
STORAGES: dict[str, StoragePolicy] = {
    kind: plugin.find("storage", kind)(**SMALL.get(kind, {})) for kind in plugin.kinds("storage")
}
BACKENDS: dict[str, Backend] = {kind: plugin.find("backend", kind)() for kind in plugin.kinds("backend")}
COMPILED = {"flex"}  # take seconds for every new shape

YARN = Yarn(40.0, 64, mscale=0.7, mscale_all_dim=1.0)  # so short that every part of the ramp shows within a few tokens
LLAMA3 = Llama3(8.0, 1.0, 4.0, original_max_position_embeddings=16)


def config(folder: str) -> dict[str, dict[str, Any]]:
    """Every yaml of ``conf/<folder>`` by file name: a new file is tested without an edit."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONF / folder).glob("*.yaml"))}


def presets() -> dict[str, ModelShape]:
    """Every model of ``conf/model``."""
    return {name: ModelShape.parse(raw) for name, raw in config("model").items()}


def tiny_model(**changes: Any) -> ModelShape:
    """A model small enough for float64 on two cores: 4 heads of 16, 2 kv heads."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return ModelShape.parse({"name": "tiny", "source": "tests", **sizes, **changes})


def spec_of(raw: Mapping[str, Any], model: ModelShape) -> Spec:
    """What a config of ``conf/attention`` becomes in a model's place."""
    overrides = {k: v for k, v in raw.items() if k != "kind"}
    spec: Spec = plugin.find("attention", raw["kind"]).from_model(model, **overrides)
    return spec


def grouped(q_heads: int = 6, kv_heads: int = 2, head_dim: int = 16, hidden: int = 48, **changes: Any) -> GroupedSpec:
    """A grouped spec with half-split rotation over whole heads unless told otherwise."""
    rotary = changes.pop("rotary", Rotary("half", head_dim))
    scale = changes.pop("scale", head_dim**-0.5)
    return GroupedSpec(hidden, q_heads, kv_heads, head_dim, rotary, scale, **changes)


def latent(
    heads: int = 4, rank: int = 32, nope: int = 16, rope: int = 8, v: int = 12, hidden: int = 48, **changes: Any
) -> LatentSpec:
    """An MLA spec whose four widths all differ, so that none can stand in for another."""
    rotary = changes.pop("rotary", Rotary("interleaved", rope, scaling=YARN))
    scale = (nope + rope) ** -0.5 * rotary.softmax_factor
    return LatentSpec(hidden, heads, rank, nope, rope, v, rotary, scale, **changes)


def tied(
    q_heads: int = 6, kv_heads: int = 2, head_dim: int = 16, rope: int = 6, hidden: int = 48, **changes: Any
) -> TiedSpec:
    """A GTA spec whose rotary part is not half of a head."""
    rotary = changes.pop("rotary", Rotary("half", rope))
    return TiedSpec(hidden, q_heads, kv_heads, head_dim, rope, rotary, head_dim**-0.5)


def gla(**changes: Any) -> LatentSpec:
    """A latent of two heads of 16, each for two of four query heads."""
    return latent(num_latent_heads=2, **changes)


SPECS: dict[str, Spec] = {
    "mha": grouped(6, 6),
    "gqa": grouped(6, 2),
    "mqa": grouped(6, 1),
    "gqa biased, normed, llama3": grouped(
        6, 2, qkv_bias=True, output_bias=True, qk_norm=True, rotary=Rotary("half", 16, scaling=LLAMA3)
    ),
    "gqa partial, interleaved": grouped(6, 3, rotary=Rotary("interleaved", 8)),
    "mqa without rope": grouped(6, 1, rotary=Rotary("none", 0), qkv_bias=True),
    "gqa window": grouped(6, 2, window=4),
    "gta": tied(),
    **{f"gla {form}": gla(form=form) for form in FORMS},
    **{f"mla {form}": latent(form=form) for form in FORMS},
    **{f"mla {form}, q_lora": latent(form=form, q_lora_rank=20) for form in FORMS},
    "mla converted": latent(latent_norm=False, qkv_bias=True, output_bias=True),
    "mla all rotary, biased": latent(nope=0, latent_norm=False, qkv_bias=True, q_lora_rank=20),
    "mla without rope": latent(rope=0, form="materialized", latent_norm=False, rotary=Rotary("none", 0)),
    **{f"{name}.yaml": spec_of(raw, tiny_model()) for name, raw in config("attention").items()},
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
UNCOMPILED = {name: backend for name, backend in BACKENDS.items() if name not in COMPILED}
each_backend = pytest.mark.parametrize("backend", UNCOMPILED.values(), ids=UNCOMPILED.keys())
each_storage = pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES.keys())


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Seeded standard normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.promote_types(dtype, torch.float32)
    return torch.randn(*shape, generator=generator, dtype=drawn).to(dtype)


def build(spec: Spec, dtype: torch.dtype = torch.float64, seed: int = 1) -> Any:
    """The module with random weights that make scores spread by a few units (a flat softmax hides faults)."""
    module = spec.build()
    assert isinstance(module, nn.Module)
    assert isinstance(module, Attention)
    for index, (name, parameter) in enumerate(module.named_parameters()):
        noise = normal(*parameter.shape, seed=1000 * seed + index)
        if parameter.ndim == 2:
            noise *= 1.5 * parameter.shape[1] ** -0.5
        else:
            noise = 0.3 * noise + (0.0 if name.endswith("bias") else 1.0)
        parameter.requires_grad_(False).copy_(noise)
    return module.to(dtype)


def allocate(
    layout: CacheLayout, batch: int, capacity: int, storage: StoragePolicy = STORAGES["contiguous"]
) -> KVCache:
    """An empty cache on the CPU; skips the test, saying why, where the storage cannot hold such a layout."""
    if reasons := storage.refuses(layout):
        pytest.skip("; ".join(reasons))
    return storage.allocate(layout, batch, capacity, CPU)


def positions(batch: int, tokens: int, start: int = 0) -> Tensor:
    """[B, T] positions start .. start + T - 1."""
    return torch.arange(start, start + tokens).expand(batch, -1)


def random_entries(layout: CacheLayout, batch: int, tokens: int, seed: int = 2) -> dict[str, Tensor]:
    """Entries [B, T, heads, W] of every stream, all different, in the stream's own dtype (float32 for codes)."""
    return {
        s.name: normal(batch, tokens, s.heads, s.width, seed=seed + i, dtype=DTYPES.get(s.dtype, torch.float32))
        for i, s in enumerate(layout.entries)
    }


def fill(
    cache: KVCache, entries: Mapping[str, Tensor], lengths: Sequence[int], reader: Backend | None = None
) -> KVCache:
    """Write entries and forget what lies beyond each sequence's length; a ring is written as decoding writes it.

    Unused slots hold NaN, or 1e4 of either sign for a ``reader`` that loads them and gives them no weight.
    """
    if getattr(reader, "reads_unused", False):
        return milder(fill(cache, entries, lengths))
    if cache.view.start is not None:
        return fill_ring(cache, entries, lengths)
    batch, tokens = next(iter(entries.values())).shape[:2]
    cache.write(entries, positions(batch, tokens))
    cache.truncate(torch.tensor(lengths, dtype=torch.int32))
    return cache


def fill_ring(cache: KVCache, entries: Mapping[str, Tensor], lengths: Sequence[int]) -> KVCache:
    """Write one token after the other; a sequence that has ended writes its last token again."""
    last, rows = torch.tensor(lengths).clamp(min=1) - 1, torch.arange(len(lengths))
    for t in range(max(lengths)):
        position = last.clamp(max=t)
        cache.write({name: e[rows, position][:, None] for name, e in entries.items()}, position[:, None])
    for row in (row for row, length in enumerate(lengths) if length == 0):
        cache.view.lengths[row] = 0
        for slab in cache.view.slabs:
            slab[row] = 0xFF
    return cache


def as_stored(entries: Mapping[str, Tensor], layout: CacheLayout) -> dict[str, Tensor]:
    """Entries as a cache gives them back: codes times scales in float64, the rest untouched."""
    stored = dict(entries)
    for s in (s for s in layout.entries if s.quant):
        assert s.quant is not None
        parts = encode(entries[s.name], s)
        codes = parts[s.name].to(TORCH_DTYPES[s.dtype])
        stored[s.name] = decode(codes, parts[s.quant.scale], s.quant.block, torch.float64)
    return stored


def milder(cache: KVCache) -> KVCache:
    """Put +-1e4 where a cache holds NaN: 0 times that is 0, and a weight of one part in a million still shows."""
    for stream in cache.view.layout.streams:
        rows = cache.view.stream(stream.name)
        sign = torch.tensor([1.0, -1.0])[torch.arange(rows.numel()) % 2].view(rows.shape)
        rows.copy_(rows.where(~rows.isnan(), (1e4 * sign).to(rows.dtype)))
    return cache


def window_of(layout: CacheLayout) -> int | None:
    """The window that all streams keep; None where they keep every token."""
    keep = layout.streams[0].keep
    assert all(s.keep == keep for s in layout.streams)
    return keep.size if isinstance(keep, Window) else None


def refusals(backend: Backend, asked: Request) -> list[str]:
    """All reasons why a storage cannot hold it or a backend cannot do it."""
    return [*asked.storage.refuses(asked.layout, asked.queries), *backend.refuses(asked)]


def served(prefilling: bool = False) -> dict[str, tuple[Spec, Backend, StoragePolicy]]:
    """Every (attention, backend, storage) of float64 that steps of one token, or a prefill of several, can run on."""
    points = {}
    for (name, spec), (b, backend), (s, storage) in product(SPECS.items(), UNCOMPILED.items(), STORAGES.items()):
        form, queries = (spec.prefilling(), 4) if prefilling else (spec, 1)
        unpacked = form.unpacked()
        read, policy = (form, storage) if unpacked is None else (unpacked, STORAGES["contiguous"])
        asked = request(read.geometry(), read.layout(Dtype.F64), policy, queries=queries)
        if not [*storage.refuses(spec.layout(Dtype.F64)), *backend.refuses(asked)]:
            points[f"{name}, {b}, {s}"] = spec, backend, storage
    return points


def each_point(points: Mapping[str, Sequence[Any]], names: str = "spec backend storage") -> pytest.MarkDecorator:
    """A test for every named point."""
    return pytest.mark.parametrize(names.split(), points.values(), ids=points.keys())


def dense_layout(heads: int, d_qk: int, d_v: int, dtype: Dtype) -> CacheLayout:
    """Key and value streams in slabs of their own."""
    return CacheLayout((Stream("key", heads, d_qk, dtype), Stream("value", heads, d_v, dtype)))


def dense_geometry(q_heads: int, kv_heads: int, d_qk: int, d_v: int, scale: float | None = None) -> AttentionGeometry:
    """K = key, V = value."""
    key, value = Span("key", 0, d_qk), Span("value", 0, d_v)
    return AttentionGeometry(q_heads, kv_heads, (key,), (value,), scale or d_qk**-0.5)


def request(
    geometry: AttentionGeometry,
    layout: CacheLayout,
    storage: StoragePolicy = STORAGES["contiguous"],
    dtype: Dtype | None = None,
    queries: int = 1,
    ragged: bool = False,
) -> Request:
    """A request on the CPU in the cache's own dtype."""
    return Request(geometry, layout, storage, "cpu", dtype or layout.streams[0].dtype, queries, ragged)


def planned(
    backend: Backend, geometry: AttentionGeometry, cache: KVCache, length: int, queries: int = 1, ragged: bool = False
) -> Plan:
    """A plan over a cache; skips the test, saying why, where the storage or the backend refuses."""
    reasons = refusals(backend, request(geometry, cache.view.layout, cache.policy, queries=queries, ragged=ragged))
    if reasons:
        pytest.skip("; ".join(reasons))
    return backend.plan(geometry, cache.view, length, queries)


def attend(backend: Backend, geometry: AttentionGeometry, cache: KVCache, q: Tensor) -> Attended:
    """Attend over a cache as it stands."""
    shortest, longest = int(cache.view.lengths.min()), int(cache.view.lengths.max())
    return planned(backend, geometry, cache, longest, q.shape[1], ragged=shortest != longest).attend(q)


def textbook(
    q: Tensor,
    entries: Mapping[str, Tensor],
    geometry: AttentionGeometry,
    lengths: Sequence[int],
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(scale q K^T) V in float64, one sequence and one query at a time, from what was written.

    Query i of sequence b stands at position lengths[b] - Q + i and sees the keys up to itself.
    """
    batch, queries, heads = q.shape[:3]
    o = torch.zeros(batch, queries, heads, geometry.d_v, dtype=torch.float64)
    lse = torch.full((batch, queries, heads), -torch.inf, dtype=torch.float64)
    for b, length in enumerate(lengths):
        k, v = (kv_rows(entries, spans, geometry, b).double() for spans in (geometry.key, geometry.value))
        for i in range(queries):
            stop = length - queries + i + 1
            start = max(0, stop - window) if window else 0
            if stop <= 0:
                continue
            of_group = q[b, i].double().unflatten(0, (geometry.num_kv_heads, -1))  # head h reads kv head h // group
            scores = geometry.scale * torch.einsum("ghk,tgk->ght", of_group, k[start:stop])
            lse[b, i] = scores.logsumexp(dim=-1).flatten()
            o[b, i] = torch.einsum("ght,tgv->ghv", scores.softmax(dim=-1), v[start:stop]).flatten(0, 1)
    return o, lse


def kv_rows(entries: Mapping[str, Tensor], spans: Iterable[Span], geometry: AttentionGeometry, b: int) -> Tensor:
    """[T, G, width]: what the queries of each kv head read; a one-head stream serves all of them."""
    parts = (entries[s.stream][b, :, :, s.start : s.stop].expand(-1, geometry.num_kv_heads, -1) for s in spans)
    return torch.cat(list(parts), dim=-1)


def in_form(spec: Spec, form: str) -> LatentSpec:
    """An MLA spec in another form."""
    assert isinstance(spec, LatentSpec)
    return replace(spec, form=form)
