"""flashinfer, its arguments judged by stand-ins with the library's signatures."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from tests.backend.fakes import flashinfer as fake
from tests.backend.fakes import flashinfer_mla as fake_mla
from tests.backend.fakes.installed import (
    assert_faults_show,
    assert_like_eager,
    changed,
    distance,
    filled,
    install,
    recording,
    without,
)
from tests.builders import dense_geometry, dense_layout, gla, latent, normal, random_entries, request, tied
from variants.backend.eager import Eager
from variants.backend.flashinfer import FlashInfer, wrappers
from variants.contract.dtype import Dtype
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

BF16 = Dtype.BF16
GROUPED, LATENT = fake.BatchDecodeWithPagedKVCacheWrapper, fake_mla.BatchMLAPagedAttentionWrapper
RAGGED = [65, 3, 48]
EVEN_OR_RAGGED = pytest.mark.parametrize("lengths", [[48, 48], RAGGED], ids=["even", "ragged"])
PAGES = pytest.mark.parametrize("page_size", [1, 16, 64])
QUERIES = pytest.mark.parametrize("queries", [1, 3])


def dense(kv_heads=2, group=3, d_qk=64, d_v=64, window=None, dtype=BF16):
    layout = dense_layout(kv_heads, d_qk, d_v, dtype)
    if window is not None:
        layout = CacheLayout(tuple(replace(s, keep=Window(window)) for s in layout.streams))
    return layout, dense_geometry(kv_heads * group, kv_heads, d_qk, d_v, scale=0.3)


def of(spec):
    return spec.layout(BF16), spec.geometry()


def mla(rank=512, rope=64):
    return of(latent(5, rank, 128, rope, 128, rotary=Rotary("interleaved", rope)))


@pytest.fixture
def library(monkeypatch):
    install(monkeypatch, flashinfer="flashinfer", flashinfer__mla="flashinfer_mla")


@PAGES
@EVEN_OR_RAGGED
@QUERIES
@pytest.mark.parametrize("group", [1, 3, 5, 8])
def test_grouped_attention_equals_eager(library, page_size, lengths, queries, group):
    layout, geometry = dense(group=group, dtype=Dtype.F16)
    cache = filled(layout, Paged(page_size), lengths, room=20)
    assert_like_eager(FlashInfer(), geometry, cache, queries)


@PAGES
@EVEN_OR_RAGGED
@QUERIES
def test_absorbed_mla_equals_eager(library, page_size, lengths, queries):
    layout, geometry = mla()
    assert_like_eager(FlashInfer("fa2"), geometry, filled(layout, Paged(page_size), lengths, room=20), queries)


@QUERIES
def test_a_window_equals_eager(library, queries):
    layout, geometry = dense(window=5)
    assert_like_eager(FlashInfer(), geometry, filled(layout, Paged(16), RAGGED), queries)


@pytest.mark.parametrize("point", [dense(), mla()], ids=["gqa", "mla"])
def test_the_plan_is_for_the_lengths_after_the_step(library, point):
    """A plan is made before the step writes its tokens, here into a page that was not in use."""
    layout, geometry = point
    cache = filled(layout, Paged(16), [14, 40], room=10)
    plan = FlashInfer().plan(geometry, cache.view, 43, queries=3)
    position = cache.view.lengths.long()[:, None] + torch.arange(3)
    cache.write({name: e[:, :3] for name, e in random_entries(layout, 2, 5, seed=9).items()}, position)
    q = normal(2, 3, geometry.num_q_heads, geometry.d_qk, dtype=torch.bfloat16)
    exact, _ = Eager().plan(geometry, cache.view, 43, 3).attend(q.double())
    torch.testing.assert_close(plan.attend(q)[0].double(), exact, rtol=0, atol=2e-2)


@pytest.mark.parametrize(("wrapper", "point"), [(GROUPED, dense()), (LATENT, mla())], ids=["gqa", "mla"])
def test_the_cache_is_not_copied(library, monkeypatch, wrapper, point):
    layout, geometry = point
    cache = filled(layout, Paged(16), RAGGED)
    calls: list[Any] = []
    monkeypatch.setattr(wrapper, "run", recording(calls, wrapper.run))
    distance(FlashInfer(), geometry, cache)
    _, _, *given = calls[0][0]
    key, value = given[0] if wrapper is GROUPED else given[1:]
    slabs = {slab.untyped_storage().data_ptr() for slab in cache.view.slabs}
    assert {key.untyped_storage().data_ptr(), value.untyped_storage().data_ptr()} == slabs


def test_tensor_cores_serve_large_groups_and_steps(library):
    def kernel(group, queries=1, backend="auto"):
        layout, geometry = dense(group=group)
        return FlashInfer(backend).plan(geometry, filled(layout, Paged(16), RAGGED).view, 65, queries).kernel

    assert kernel(1) == kernel(3) == "flashinfer:batch_decode[auto]"
    assert kernel(4) == kernel(8) == kernel(1, queries=2) == "flashinfer:batch_decode[auto, tensor cores]"
    assert kernel(3, backend="fa2") == "flashinfer:batch_decode[fa2]"


def shifted(given):
    return given + 1


def turned(given):
    return given.roll(1, dims=0)


@pytest.mark.parametrize(
    ("method", "faults"),
    [
        ("__init__", [without("kv_layout"), without("use_tensor_cores")]),
        ("_plan_impl", [without("sm_scale"), changed("sm_scale", lambda given: given / math.log(2))]),
        ("_plan_impl", [without("q_len_per_req"), without("q_data_type"), changed("indices", turned)]),
        ("_plan_impl", [changed("last_page_len", lambda given: given.clamp(min=2)), changed("window_left", shifted)]),
        ("run", [changed("paged_kv_cache", lambda given: given[::-1]), changed("q", turned)]),
    ],
)
def test_a_wrong_argument_would_be_seen(library, monkeypatch, method, faults):
    layout, geometry = dense(window=9)
    cache = filled(layout, Paged(16), [65, 17, 48])
    check = partial(assert_like_eager, FlashInfer(), geometry, cache, queries=3)
    assert_faults_show(monkeypatch, GROUPED, method, faults, check)


@pytest.mark.parametrize(
    ("method", "faults"),
    [
        ("plan", [changed("sm_scale", lambda given: 576**-0.5), changed("causal", lambda given: False)]),
        ("plan", [changed("kv_indices", turned), changed("kv_len_arr", lambda given: given - 1)]),
        ("plan", [changed("qo_indptr", lambda given: given.clamp(max=6))]),
        ("run", [without("return_lse_base_on_e"), changed("q_nope", turned), changed("q_pe", turned)]),
        ("run", [changed("kpe_cache", turned)]),
    ],
)
def test_a_wrong_argument_of_mla_would_be_seen(library, monkeypatch, method, faults):
    layout, geometry = mla()
    cache = filled(layout, Paged(16), [65, 18, 50])
    check = partial(assert_like_eager, FlashInfer(), geometry, cache, queries=3)
    assert_faults_show(monkeypatch, LATENT, method, faults, check)


def test_base_2_would_be_seen(library, monkeypatch):
    """The grouped wrapper's log-sum-exp is of base 2; unconverted it is 1.44 times eager's."""
    layout, geometry = dense()
    cache = filled(layout, Paged(16), RAGGED)
    monkeypatch.setattr(wrappers, "LN_2", 1.0)
    o, lse = distance(FlashInfer(), geometry, cache)
    assert o < 2e-2
    assert lse > 0.1


def test_a_sequence_shorter_than_the_step_is_an_error(library):
    layout, geometry = dense()
    with pytest.raises(ValueError, match=r"hold the step's 3 new tokens; got \[2, 9\]"):
        FlashInfer().plan(geometry, filled(layout, Paged(16), [2, 9]).view, 9, 3)


LAYOUT, GEOMETRY = dense()
PLAIN = replace(request(GEOMETRY, LAYOUT, Paged(16)), device="cuda")
EVERY = CacheLayout(tuple(Stream(n, 2, 64, BF16, Every(4)) for n in ("key", "value")))
SHARED = CacheLayout((Stream("key", 1, 64, BF16), Stream("value", 2, 64, BF16)))
WIDER = CacheLayout((*dense()[0].streams, Stream("more", 2, 8, BF16)), rows=(("value", "more"),))
WINDOWED = CacheLayout(tuple(replace(s, keep=Window(9)) for s in mla()[0].streams), rows=mla()[0].rows)


def point(layout, geometry, **more):
    return {"layout": layout, "geometry": geometry, **more}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ragged": True, "queries": 3}, []),
        (point(*dense(window=4)), []),
        (point(*mla()), []),
        ({"device": "cpu"}, ["CUDA only"]),
        ({"storage": Contiguous()}, ["reads pages"]),
        ({"dtype": Dtype.F16}, ["queries and cache alike"]),
        ({"layout": EVERY}, ["one entry per token"]),
        ({"layout": SHARED}, ["a row per token and kv head"]),
        ({"layout": WIDER}, ["same strides"]),
        (point(*dense(2, 1, 192, 128)), ["these are (192, 128)", "same strides"]),
        (point(*dense(2, 1, 80, 80)), ["these are (80, 80)"]),
        (point(*of(tied(head_dim=64, rope=32))), ["a row per token and kv head", "one strided view"]),
        (point(*mla(rank=256)), ["these are (256, 64)"]),
        (point(WINDOWED, mla()[1]), ["no windows"]),
        (
            point(*of(gla(heads=4, rank=1024, rope=64, rotary=Rotary("interleaved", 64)))),
            ["a row per token and kv head", "one latent head"],
        ),
    ],
)
def test_refusals_are_all_reasons(library, changes, said):
    reasons = FlashInfer().refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said), reasons
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))


def test_a_missing_library_is_a_reason():
    assert FlashInfer().refuses(PLAIN) == ["flashinfer is not installed: pip install flashinfer-python"]
