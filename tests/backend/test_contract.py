"""Every backend, on every (attention, storage): refuse with reasons, or match float64 within what rounding explains.

The budget comes from the data: the same mathematics with every intermediate rounded to the cache's dtype, against
float64 of the same numbers, times a small factor. Unused slots hold NaN, or 1e4 of either sign where a backend says
that it reads them.
"""

import itertools
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.builders import (
    BACKENDS,
    COMPILED,
    DTYPES,
    SPECS,
    STORAGES,
    allocate,
    as_stored,
    attend,
    dense_geometry,
    dense_layout,
    each_backend,
    each_storage,
    fill,
    kv_rows,
    latent,
    normal,
    planned,
    random_entries,
    refusals,
    request,
    textbook,
    window_of,
)
from variants.contract.codes import CODES
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Quant, Stream
from variants.contract.rotary import Rotary

SPARE = 5  # poisoned slots behind the longest sequence
LENGTHS_AND_QUERIES: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (3, 3), (63, 3), (65, 1), (65, 3), (1000, 1))
COMPILED_FOR = ((65, 3),)  # of them, where each takes seconds to compile
FACTOR = 4


def dense(kv_heads, group, d_qk, d_v):
    return lambda dtype: (
        dense_layout(kv_heads, d_qk, d_v, dtype),
        dense_geometry(kv_heads * group, kv_heads, d_qk, d_v),
    )


def absorbed(heads):
    spec = latent(heads, 512, 128, 64, 128, rotary=Rotary("interleaved", 64))
    return lambda dtype: (spec.layout(dtype), spec.geometry())


SHAPES = {
    **{f"{g} x {w}": dense(2, g, w, w) for g, w in itertools.product((1, 3, 8, 32), (64, 80, 128))},
    **{f"{g} x 192/128": dense(2, g, 192, 128) for g in (1, 3, 8, 32)},
    **{f"{g} x 576/512": absorbed(g) for g in (1, 3, 8, 32)},
}


def rounded(q, entries, geometry, lengths, window=None):
    """The textbook with scores, weights and output rounded to q's dtype: an honest low-precision implementation."""
    o = []
    for b, length in enumerate(lengths):
        k, v = (kv_rows(entries, spans, geometry, b)[:length].to(q.dtype) for spans in (geometry.key, geometry.value))
        of_group = q[b].unflatten(1, (geometry.num_kv_heads, -1))
        scores = torch.einsum("qghk,tgk->ghqt", of_group, k) * geometry.scale
        back = torch.arange(length - q.shape[1], length)[:, None] - torch.arange(length)
        hidden = (back < 0) | (back >= (window or length))
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        o.append(torch.einsum("ghqt,tgv->qghv", weights, v).flatten(1, 2))
    return torch.stack(o)


def check(backend, geometry, cache, entries, q, lengths):
    """Output and log-sum-exp against float64, within the budget."""
    o, lse = backend.plan(geometry, cache.view, max(lengths), q.shape[1]).attend(q)
    window = window_of(cache.view.layout)
    exact, exact_lse = textbook(q, entries, geometry, lengths, window)
    assert (o.shape, o.dtype) == (exact.shape, q.dtype)
    accumulated = torch.finfo(torch.promote_types(q.dtype, torch.float32)).eps
    rounding = (rounded(q, entries, geometry, lengths, window).double() - exact).abs().max()
    budget = FACTOR * rounding + (2 * torch.finfo(q.dtype).eps + 64 * accumulated) * exact.abs().max()
    assert float((o.double() - exact).abs().max()) <= float(budget)
    if lse is not None:
        assert float((lse.double() - exact_lse).abs().max()) <= 16 * accumulated * (1 + float(exact_lse.abs().max()))


def is_compiled(backend):
    """Whether each shape costs it seconds."""
    return any(backend is BACKENDS[name] for name in COMPILED)


@cache
def of_shapes():
    """(backend, storage, layout, geometry, dtype) of every shape in every dtype, by name."""
    return everywhere({(name, d): shape(d) for name, shape in SHAPES.items() for d in DTYPES})


@cache
def of_specs(*dtypes):
    """The same of what backends read of each attention: after decompression where the form has one."""
    read = {name: spec.unpacked() or spec for name, spec in SPECS.items()}
    return everywhere({(name, d): (spec.layout(d), spec.geometry()) for name, spec in read.items() for d in dtypes})


def everywhere(read):
    """On each backend and storage."""
    places = itertools.product(BACKENDS, STORAGES, read.items())
    return {f"{b}-{s}-{name}-{d.value}": (b, STORAGES[s], *what, d) for b, s, ((name, d), what) in places}


def taken(points, *asks):
    """A test for each that some of ``asks`` (queries, ragged, dtype) is not refused for; slow where it is compiled."""
    params = []
    for name, (kind, storage, layout, geometry, dtype) in points.items():
        backend = BACKENDS[kind]
        asked = [request(geometry, layout, storage, d or dtype, q, ragged) for q, ragged, d in asks]
        if not all(refusals(backend, one) for one in asked):
            marks = [pytest.mark.slow] * (kind in COMPILED)
            params.append(pytest.param(backend, storage, layout, geometry, dtype, id=name, marks=marks))
    return pytest.mark.parametrize(("backend", "storage", "layout", "geometry", "dtype"), params)


@pytest.mark.parametrize("kind", BACKENDS)
def test_every_refusal_has_its_reasons(kind):
    points = {**of_shapes(), **of_specs(*DTYPES), **of_specs(*CODES)}
    for _, storage, layout, geometry, dtype in (point for point in points.values() if point[0] == kind):
        for queries, ragged in itertools.product((1, 3), (False, True)):
            asked = request(geometry, layout, storage, dtype, queries, ragged)
            for reasons in (storage.refuses(layout, queries), BACKENDS[kind].refuses(asked)):
                assert not reasons or assert_reasons(reasons) is None


@taken(of_shapes(), (1, False, None))
def test_shapes_match_float64(backend, storage, layout, geometry, dtype):
    for length, queries in COMPILED_FOR if is_compiled(backend) else LENGTHS_AND_QUERIES:
        if not refusals(backend, request(geometry, layout, storage, queries=queries)):
            entries = random_entries(layout, 2, length + SPARE, seed=length)
            cache = fill(allocate(layout, 2, length + SPARE, storage), entries, [length] * 2, backend)
            q = normal(2, queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=DTYPES[dtype])
            check(backend, geometry, cache, entries, q, [length] * 2)


@taken(of_specs(*DTYPES), (1, False, None), (3, False, None), (1, True, None))
def test_every_attention_matches(backend, storage, layout, geometry, dtype):
    every = [([3, 9], 3)] if is_compiled(backend) else itertools.product(([7, 7], [3, 9]), (1, 3))
    for lengths, queries in every:
        if not refusals(backend, request(geometry, layout, storage, queries=queries, ragged=lengths[0] != lengths[1])):
            entries = random_entries(layout, 2, 9 + SPARE)
            cache = fill(allocate(layout, 2, 9 + SPARE, storage), entries, lengths, backend)
            q = normal(2, queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=DTYPES[dtype])
            check(backend, geometry, cache, entries, q, lengths)


@taken(of_specs(*CODES), (3, True, Dtype.F32), (1, True, Dtype.BF16))
def test_codes_are_decoded(backend, storage, layout, geometry, dtype):
    """Against what the cache holds: what coding loses is the cache's matter, not the backend's."""
    del dtype  # of the codes
    for of_queries, queries in ((Dtype.F32, 3), (Dtype.BF16, 1)):
        if not refusals(backend, request(geometry, layout, storage, of_queries, queries, ragged=True)):
            entries = random_entries(layout, 2, 9 + SPARE)
            cache = fill(allocate(layout, 2, 9 + SPARE, storage), entries, [3, 9])
            q = normal(2, queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=DTYPES[of_queries])
            check(backend, geometry, cache, as_stored(entries, layout), q, [3, 9])


@pytest.mark.parametrize(("kind", "dtypes"), [("eager", tuple(DTYPES)), ("numba_split_kv", (Dtype.F32, Dtype.BF16))])
def test_ours_take_whatever_a_storage_holds(kind, dtypes):
    """The grids above hold what is not refused: a refusal too many would thin them without a failure."""
    for points in (of_shapes(), of_specs(*DTYPES), of_specs(*CODES)):
        for name, (_, storage, layout, geometry, dtype) in points.items():
            asked = Dtype.F32 if dtype in CODES else dtype
            if asked in dtypes and not storage.refuses(layout, 3):
                reasons = BACKENDS[kind].refuses(request(geometry, layout, storage, asked, queries=3, ragged=True))
                assert reasons == [], name


def assert_reasons(reasons):
    assert isinstance(reasons, list)
    assert reasons
    assert all(isinstance(reason, str) and reason.strip() for reason in reasons)
    assert len(set(reasons)) == len(reasons)


def odd_points():
    """Layouts no attention has yet; a backend must say what it makes of them, not raise."""
    codes = Stream("key", 1, 16, Dtype.INT8, quant=Quant("scale", 16))
    fp8 = Stream("key", 1, 16, Dtype.FP8_E4M3, quant=Quant("scale", 16))
    scale, value = Stream("scale", 1, 1, Dtype.F32), Stream("value", 1, 16, Dtype.BF16)
    tied, rope = Stream("tied", 2, 16, Dtype.BF16), Stream("rope", 1, 8, Dtype.BF16)
    window = Window(4)
    plain = dense_geometry(4, 1, 16, 16)
    gta = AttentionGeometry(4, 2, (Span("tied", 0, 8), Span("rope", 0, 8)), (Span("tied", 0, 16),), 1.0)
    return {
        "int8": (CacheLayout((codes, scale, value)), plain),
        "fp8": (CacheLayout((fp8, scale, value)), plain),
        "window": (CacheLayout(tuple(Stream(n, 1, 16, Dtype.BF16, window) for n in ("key", "value"))), plain),
        "tied": (CacheLayout((tied, rope)), gta),
        "mixed": (CacheLayout((Stream("key", 1, 16, Dtype.F32), value)), plain),
    }


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
@each_storage
@pytest.mark.parametrize("name", odd_points())
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_refusing_never_raises(backend, storage, name, ragged, device):
    layout, geometry = odd_points()[name]
    for dtype in Dtype:
        point = replace(request(geometry, layout, storage, dtype=dtype, queries=2, ragged=ragged), device=device)
        reasons = backend.refuses(point)
        assert isinstance(reasons, list)
        if reasons:
            assert_reasons(reasons)
        assert backend.refuses(point) == reasons


@pytest.mark.parametrize("name", ["window", "tied", "mixed"])
@each_backend
def test_odd_points_refuse_or_match(backend, name):
    layout, geometry = odd_points()[name]
    reasons = backend.refuses(request(geometry, layout, dtype=Dtype.BF16))
    if reasons:  # not the first stream's dtype, which attend() would ask for
        pytest.skip("; ".join(reasons))
    entries = random_entries(layout, 2, 11)
    cache = fill(allocate(layout, 2, 11), entries, [9, 9], backend)
    q = normal(2, 1, 4, geometry.d_qk, dtype=torch.bfloat16)
    window = 4 if name == "window" else None
    exact, _ = textbook(q, entries, geometry, [9, 9], window)
    o, _ = backend.plan(geometry, cache.view, 9).attend(q)
    torch.testing.assert_close(o.double(), exact, rtol=1e-2, atol=1e-2)


def test_sdpa_does_all_four_variants_on_even_batches():
    """The list of skips above must never grow silently: no more than windows, and heads beside a shared rotary key."""
    refused = set()
    for (name, spec), dtype in itertools.product(SPECS.items(), DTYPES):
        read = spec.unpacked() or spec
        reasons = BACKENDS["sdpa"].refuses(request(read.geometry(), read.layout(dtype), queries=3))
        if reasons:
            refused.add((name, *(words for words in ("windowed", "one strided view") if words in reasons[0])))
    apart = ("gta", "gta.yaml", "gla absorbed", "gla.yaml")
    assert refused == {("gqa window", "windowed"), *((name, "one strided view") for name in apart)}


@each_backend
def test_rows_of_a_batch_do_not_mix(backend):
    """Each sequence's output equals its own alone; a batch of equal sequences would hide a mix-up."""
    layout, geometry = dense_layout(2, 64, 64, Dtype.F32), dense_geometry(6, 2, 64, 64)
    entries = random_entries(layout, 3, 20)
    q = normal(3, 2, 6, 64, dtype=torch.float32)
    together, _ = attend(backend, geometry, fill(allocate(layout, 3, 24), entries, [20] * 3, backend), q)
    for b in range(3):
        one = {name: e[b : b + 1] for name, e in entries.items()}
        alone, _ = attend(backend, geometry, fill(allocate(layout, 1, 24), one, [20], backend), q[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=0, atol=2e-6)


@each_backend
def test_attending_leaves_the_cache_alone(backend):
    layout, geometry = dense_layout(2, 64, 64, Dtype.BF16), dense_geometry(6, 2, 64, 64)
    cache = fill(allocate(layout, 2, 24), random_entries(layout, 2, 20), [20, 20], backend)
    held = [slab.clone() for slab in cache.view.slabs]
    q = normal(2, 1, 6, 64, dtype=torch.bfloat16)
    given = q.clone()
    plan = planned(backend, geometry, cache, 20)
    first, again = plan.attend(q)[0], plan.attend(q)[0]
    assert torch.equal(first, again)
    assert torch.equal(q, given)
    assert all(torch.equal(a, b) for a, b in zip(held, cache.view.slabs, strict=True))


@each_backend
def test_a_plan_sees_tokens_written_later(backend):
    """The plan is made on the view, before the newest entry is written; the slot is read when attending."""
    layout, geometry = dense_layout(2, 64, 64, Dtype.F64), dense_geometry(6, 2, 64, 64)
    entries = random_entries(layout, 2, 8)
    cache = fill(allocate(layout, 2, 8), entries, [7, 7], backend)
    plan = planned(backend, geometry, cache, 8)
    cache.write({name: e[:, 7:] for name, e in entries.items()}, torch.tensor([[7], [7]]))
    q = normal(2, 1, 6, 64)
    o, _ = plan.attend(q)
    torch.testing.assert_close(o, textbook(q, entries, geometry, [8, 8])[0], rtol=0, atol=1e-12)
