"""The oracle against float64 as a textbook has it, where it matters most: masks, log-sum-exp, broadcast and poison."""

import pytest
import torch

from tests.builders import (
    BACKENDS,
    allocate,
    dense_geometry,
    dense_layout,
    fill,
    normal,
    random_entries,
    request,
    textbook,
)
from variants.backend import eager
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Quant, Stream

EAGER = BACKENDS["eager"]


def attend(layout, geometry, lengths, queries=1, window=None, capacity=12):
    """Eager and textbook on the same random float64 cache."""
    entries = random_entries(layout, len(lengths), capacity)
    cache = fill(allocate(layout, len(lengths), capacity), entries, lengths)
    q = normal(len(lengths), queries, geometry.num_q_heads, geometry.d_qk)
    return EAGER.plan(geometry, cache.view, capacity, queries).attend(q), textbook(
        q, entries, geometry, lengths, window
    )


def equal(ours, exact):
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[9], [9, 9], [1, 12, 5], [0, 3]])
@pytest.mark.parametrize("queries", [1, 2, 5])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(4, 4), (6, 2), (5, 1)])
def test_output_and_lse_are_the_textbooks(lengths, queries, q_heads, kv_heads):
    equal(
        *attend(dense_layout(kv_heads, 16, 12, Dtype.F64), dense_geometry(q_heads, kv_heads, 16, 12), lengths, queries)
    )


@pytest.mark.parametrize("size", [1, 2, 4, 11, 12, 100])
@pytest.mark.parametrize("lengths", [[12, 12], [3, 8]])
def test_windows(size, lengths):
    layout = CacheLayout(tuple(Stream(n, 2, 8, Dtype.F64, Window(size)) for n in ("key", "value")))
    equal(*attend(layout, dense_geometry(4, 2, 8, 8), lengths, queries=3, window=size))


def test_one_head_spans_are_broadcast():
    """GTA: K is half of the tied heads beside one shared rotary head; V is the tied heads."""
    layout = CacheLayout((Stream("tied", 2, 16, Dtype.F64), Stream("rope", 1, 8, Dtype.F64)))
    key = (Span("tied", 0, 8), Span("rope", 0, 8))
    equal(*attend(layout, AttentionGeometry(6, 2, key, (Span("tied", 0, 16),), 0.3), [9, 4]))


def test_two_latent_heads():
    """GLA-2: two latent heads, each read by half of the queries, beside one rotary head."""
    layout = CacheLayout((Stream("latent", 2, 16, Dtype.F64), Stream("rope", 1, 8, Dtype.F64)))
    c = Span("latent", 0, 16)
    equal(*attend(layout, AttentionGeometry(8, 2, (c, Span("rope", 0, 8)), (c,), 0.3), [9, 4]))


@pytest.mark.parametrize("at_once", [1, 2, 4, 5])
def test_heads_some_at_a_time(at_once, monkeypatch):
    """Five KV heads, the last of which may be left over; every head takes 2 x 12 rows of 24 and 16 float64."""
    monkeypatch.setattr(eager, "MADE_BYTES", at_once * 2 * 12 * (24 + 16) * 8)
    layout = CacheLayout((Stream("tied", 5, 16, Dtype.F64), Stream("rope", 1, 8, Dtype.F64)))
    key = (Span("tied", 0, 16), Span("rope", 0, 8))
    laid_out: list[int] = []
    lay_out = eager._laid_out

    def noted(view, spans, heads, *rest):
        laid_out.append(heads.stop - heads.start)
        return lay_out(view, spans, heads, *rest)

    monkeypatch.setattr(eager, "_laid_out", noted)
    equal(*attend(layout, AttentionGeometry(10, 5, key, (Span("tied", 0, 16),), 0.3), [9, 4], queries=2))
    assert laid_out == [heads for heads in ([at_once] * (5 // at_once) + [5 % at_once]) if heads for _ in "kv"]


@pytest.mark.parametrize("dtype", [Dtype.F16, Dtype.BF16, Dtype.F32, Dtype.FP8_E4M3], ids=lambda d: d.value)
def test_sums_are_float32_and_the_output_is_the_queries_dtype(dtype):
    layout, geometry = dense_layout(2, 16, 16, dtype), dense_geometry(4, 2, 16, 16)
    cache = allocate(layout, 2, 9)
    cache.fill_noise(9, seed=1)
    o, lse = EAGER.plan(geometry, cache.view, 9).attend(normal(2, 1, 4, 16, dtype=torch.bfloat16))
    assert lse is not None
    assert (o.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    assert o.isfinite().all()


def test_lse_merges_parts():
    """Attending over two halves and merging by log-sum-exp is attending over the whole."""
    layout, geometry = dense_layout(2, 16, 16, Dtype.F64), dense_geometry(4, 2, 16, 16)
    entries = random_entries(layout, 2, 12)
    q = normal(2, 1, 4, 16)

    def part(start, stop):
        cut = {name: e[:, start:stop] for name, e in entries.items()}
        cache = fill(allocate(layout, 2, stop - start), cut, [stop - start] * 2)
        return EAGER.plan(geometry, cache.view, stop - start).attend(q)

    (o, lse), parts = part(0, 12), (part(0, 5), part(5, 12))
    weights = [(part_lse - lse).exp()[..., None] for _, part_lse in parts]
    merged = sum(w * part_o for w, (part_o, _) in zip(weights, parts, strict=True))
    torch.testing.assert_close(merged, o, rtol=0, atol=1e-12)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e4])
def test_unused_slots_never_count(poison):
    layout, geometry = dense_layout(2, 16, 16, Dtype.F64), dense_geometry(4, 2, 16, 16)
    entries = random_entries(layout, 2, 12)
    cache = fill(allocate(layout, 2, 12), entries, [12, 12])
    for s in layout.streams:
        cache.view.stream(s.name)[0, :, 7:] = poison
        cache.view.stream(s.name)[1, :, 3:] = poison
    cache.view.lengths.copy_(torch.tensor([7, 3]))
    q = normal(2, 2, 4, 16)
    equal(EAGER.plan(geometry, cache.view, 12, 2).attend(q), textbook(q, entries, geometry, [7, 3]))


def test_nan_in_a_used_slot_shows():
    layout, geometry = dense_layout(2, 16, 16, Dtype.F64), dense_geometry(4, 2, 16, 16)
    cache = fill(allocate(layout, 1, 12), random_entries(layout, 1, 12), [12])
    cache.view.stream("value")[0, 1, 5, 3] = torch.nan
    o, _ = EAGER.plan(geometry, cache.view, 12).attend(normal(1, 1, 4, 16))
    assert o[0, 0].isnan().nonzero().tolist() == [[2, 3], [3, 3]]


@pytest.mark.parametrize(
    ("stream", "word"),
    [
        (Stream("key", 2, 16, Dtype.INT8, quant=Quant("s", 16, axis="tokens")), "decodes"),
        (Stream("key", 2, 16, Dtype.INT4, quant=Quant("s", 16)), "decodes"),
        (Stream("key", 2, 16, Dtype.BF16, Every(4)), "every"),
    ],
)
def test_what_it_cannot_read_right_it_refuses(stream, word):
    value = Stream("value", 2, 16, Dtype.BF16, stream.keep)
    layout = CacheLayout((stream, value, Stream("s", 2, 1, Dtype.F32)))
    (reason,) = EAGER.refuses(request(dense_geometry(4, 2, 16, 16), layout, dtype=Dtype.BF16))
    assert word in reason
    assert "key" in reason
