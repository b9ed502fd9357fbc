"""flex: compiled on a CPU against eager in float64, and what it refuses. Every new shape takes seconds to compile."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.backend.fakes.installed import recording
from tests.builders import (
    BACKENDS,
    allocate,
    dense_geometry,
    fill,
    latent,
    milder,
    normal,
    random_entries,
    request,
)
from variants.backend import flex
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Every, Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.storage.paged import Paged

FLEX = flex.Flex()
SLOTS = 300  # three blocks of the mask, the last one part


def gqa(dtype, window=None, q_heads=6, kv_heads=2, width=64):
    keep = All() if window is None else Window(window)
    streams = tuple(Stream(name, kv_heads, width, dtype, keep) for name in ("key", "value"))
    return CacheLayout(streams), dense_geometry(q_heads, kv_heads, width, width, scale=0.2)


def filled(layout, lengths, slots=SLOTS):
    return fill(allocate(layout, len(lengths), slots), random_entries(layout, len(lengths), slots), lengths, FLEX)


def assert_like_eager(plan, geometry, cache, queries, dtype):
    """Both read the cache as it is now."""
    q = normal(len(cache.view.lengths), queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=dtype)
    exact, _ = Eager().plan(geometry, cache.view, int(cache.view.lengths.max()), queries).attend(q.double())
    o, lse = plan.attend(q)
    assert lse is None
    torch.testing.assert_close(o.double(), exact, rtol=0, atol=3e-6 if dtype == torch.float32 else 2e-2)


@pytest.mark.slow
def test_one_plan_serves_ragged_lengths_that_grow_in_place():
    layout, geometry = gqa(Dtype.F32)
    cache = filled(layout, [3, 257, 0])
    plan = FLEX.plan(geometry, cache.view, SLOTS)
    assert plan.kernel == "flex:cpp"
    for lengths in ([3, 257, 0], [129, 258, 1], [SLOTS, 260, 256]):
        fill(cache, random_entries(layout, 3, SLOTS, seed=lengths[0]), lengths, FLEX)
        assert_like_eager(plan, geometry, cache, 1, torch.float32)


def test_whole_blocks_are_those_that_every_later_step_sees():
    layout, geometry = gqa(Dtype.F32)
    for queries, length, whole in ((1, 127, 0), (1, 128, 1), (3, 128, 0), (3, 130, 1), (1, 0, 0), (1, SLOTS, 2)):
        cache = filled(layout, [length])
        mask = flex._block_mask(geometry, cache.view, SLOTS, queries)
        assert int(mask.full_kv_num_blocks) == whole
        assert int(mask.kv_num_blocks) == 3 - whole
        assert mask.full_kv_indices.flatten()[:whole].tolist() == list(range(whole))
        assert mask.kv_indices.flatten()[: 3 - whole].tolist() == list(range(whole, 3))


@pytest.mark.slow
def test_the_decoding_template_of_long_caches_with_one_row():
    """Another C++ source; torch 2.13 writes it wrongly for a mask without a list of whole blocks."""
    layout, geometry = gqa(Dtype.F32, q_heads=2)
    cache = filled(layout, [1030, 700], slots=1100)
    assert_like_eager(FLEX.plan(geometry, cache.view, 1100), geometry, cache, 1, torch.float32)


@pytest.mark.slow
def test_new_tokens_are_causal_at_the_bottom_right():
    layout, geometry = gqa(Dtype.BF16)
    cache = filled(layout, [2, 260, 131])
    assert_like_eager(FLEX.plan(geometry, cache.view, 260, 3), geometry, cache, 3, torch.bfloat16)


@pytest.mark.slow
def test_a_window_skips_blocks_and_stays_right_while_lengths_grow():
    layout, geometry = gqa(Dtype.F32, window=5)
    cache = filled(layout, [3, 140, 290])
    mask = flex._block_mask(geometry, cache.view, SLOTS, 1)
    assert mask.kv_num_blocks.flatten().tolist() == [3, 2, 1]
    assert mask.kv_indices[:, 0, 0, 0].tolist() == [0, 1, 2]
    plan = FLEX.plan(geometry, cache.view, SLOTS)
    assert_like_eager(plan, geometry, cache, 1, torch.float32)
    fill(cache, random_entries(layout, 3, SLOTS, seed=9), [9, 260, SLOTS], FLEX)
    assert_like_eager(plan, geometry, cache, 1, torch.float32)


@pytest.mark.slow
def test_absorbed_mla_reads_the_cache_in_place(monkeypatch):
    """What reaches ``flex_attention`` are views of the slab."""
    spec = latent(4, 512, 128, 64, 128, rotary=Rotary("interleaved", 64))
    layout, geometry = spec.layout(Dtype.F32), spec.geometry()
    cache = filled(layout, [SLOTS, SLOTS - 1])
    assert_like_eager(FLEX.plan(geometry, cache.view, SLOTS), geometry, cache, 1, torch.float32)
    calls: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call, **_: recording(calls, lambda q, k, v, **_: q[..., :512]))
    FLEX.plan(geometry, cache.view, SLOTS)
    _, *given = calls[0][0]
    assert [kv.data_ptr() for kv in given] == [cache.view.slabs[0].data_ptr()] * 2
    assert [kv.shape[-1] for kv in given] == [576, 512]


def test_unused_values_are_read():
    """Why ``reads_unused`` is declared; the day this fails it can go."""
    layout, geometry = gqa(Dtype.F32)
    cache = fill(allocate(layout, 3, SLOTS), random_entries(layout, 3, SLOTS), [3, 260, 0])
    plan = FLEX.plan(geometry, cache.view, SLOTS)
    q = normal(3, 1, 6, 64, dtype=torch.float32)
    assert plan.attend(q)[0].isnan().any()
    milder(cache)
    assert plan.attend(q)[0].isfinite().all()


LAYOUT, GEOMETRY = gqa(Dtype.BF16)
PLAIN = request(GEOMETRY, LAYOUT)
EVERY = CacheLayout(tuple(Stream(n, 2, 64, Dtype.BF16, Every(4)) for n in ("key", "value")))
SHARED = CacheLayout((Stream("key", 1, 64, Dtype.BF16), Stream("value", 2, 64, Dtype.BF16)))
APART = CacheLayout((Stream("latent", 1, 512, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)))
MLA = latent(4, 512, 128, 64, 128, rotary=Rotary("interleaved", 64))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"ragged": True, "queries": 3}, []),
        ({"storage": Paged()}, ["not paged"]),
        ({"layout": EVERY}, ["one entry per token"]),
        ({"layout": SHARED}, ["one strided view"]),
        ({"layout": APART, "geometry": MLA.geometry()}, ["one strided view"]),
        ({"dtype": Dtype.F32}, ["queries and cache alike"]),
        ({"layout": gqa(Dtype.F64)[0], "dtype": Dtype.F64}, ["fp32, bf16 or fp16"]),
        ({"device": "cuda", "layout": MLA.layout(Dtype.BF16), "geometry": MLA.geometry()}, ["up to 256 wide"]),
        ({"device": "meta"}, ["cpu and cuda only"]),
    ],
)
def test_refusals_are_all_reasons(changes, said, monkeypatch):
    monkeypatch.setattr(flex, "find_spec", lambda name: object())  # triton, also where it is not installed
    reasons = FLEX.refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said), reasons
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))


def test_what_it_needs_to_compile_is_a_reason(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert [r for r in FLEX.refuses(PLAIN) if "finds no no-such-compiler" in r]
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert [r for r in FLEX.refuses(PLAIN) if "AVX2" in r]
    monkeypatch.setattr(flex, "find_spec", lambda name: None)
    assert [r for r in FLEX.refuses(replace(PLAIN, device="cuda")) if "triton" in r]


def test_kernel_options_reach_the_kernel():
    """An option that the template does not know how to take is an error, not ignored."""
    assert BACKENDS["flex"] == FLEX
    layout, geometry = gqa(Dtype.F32)
    cache = filled(layout, [3])
    with pytest.raises(Exception, match="BACKEND"):
        flex.Flex({"BACKEND": "none such"}).plan(geometry, cache.view, SLOTS)
