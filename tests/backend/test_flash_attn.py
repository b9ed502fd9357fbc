"""flash_attn 2, 3 and 4, their arguments judged by stand-ins with the libraries' signatures."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from tests.backend.fakes import flash_attn_2, flash_attn_3, flash_attn_4
from tests.backend.fakes.installed import (
    assert_faults_show,
    assert_like_eager,
    changed,
    distance,
    filled,
    install,
    on_gpu,
    recording,
    without,
)
from tests.builders import STORAGES, dense_geometry, dense_layout, gla, latent, request, tied
from variants.backend.flash_attn import FlashAttn
from variants.contract.dtype import Dtype
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

BF16 = Dtype.BF16
FUNCTIONS = {
    2: (flash_attn_2, "flash_attn_with_kvcache"),
    3: (flash_attn_3, "flash_attn_with_kvcache"),
    4: (flash_attn_4, "flash_attn_varlen_func"),
}
EVEN_OR_RAGGED = pytest.mark.parametrize("lengths", [[33, 33], [300, 3, 65]], ids=["even", "ragged"])
LAID = pytest.mark.parametrize("storage", [Contiguous(), Paged(page_size=256)], ids=["contiguous", "paged"])
QUERIES = pytest.mark.parametrize("queries", [1, 3])
VERSIONS = pytest.mark.parametrize("version", [2, 3, 4])


def dense(kv_heads=2, group=3, d_qk=64, d_v=64, window=None, dtype=BF16):
    layout = dense_layout(kv_heads, d_qk, d_v, dtype)
    if window is not None:
        layout = CacheLayout(tuple(replace(s, keep=Window(window)) for s in layout.streams))
    return layout, dense_geometry(kv_heads * group, kv_heads, d_qk, d_v, scale=0.3)


def of(spec, dtype=BF16):
    return spec.layout(dtype), spec.geometry()


def mla(heads=4, rank=512, rope=64):
    return of(latent(heads, rank, 128, rope, 128, rotary=Rotary("interleaved", rope)))


def two_latents():
    """GLA: two latents of 256 that share one rope of 64."""
    return of(gla(heads=4, rank=512, nope=64, rope=64, v=64, rotary=Rotary("interleaved", 64)))


@pytest.fixture(autouse=True)
def libraries(monkeypatch):
    names = {2: "flash_attn__flash_attn_interface", 3: "flash_attn_interface", 4: "flash_attn__cute"}
    install(monkeypatch, **{name: f"flash_attn_{version}" for version, name in names.items()})


@VERSIONS
@LAID
@EVEN_OR_RAGGED
@QUERIES
@pytest.mark.parametrize("point", [dense(4, 1), dense(), dense(1, 8, dtype=Dtype.F16)], ids=["mha", "gqa", "mqa"])
def test_grouped_attention_equals_eager(version, storage, lengths, queries, point):
    layout, geometry = point
    assert_like_eager(FlashAttn(version), geometry, filled(layout, storage, lengths, room=7), queries)


@pytest.mark.parametrize("version", [3, 4])
@LAID
@EVEN_OR_RAGGED
@QUERIES
def test_absorbed_mla_equals_eager(version, storage, lengths, queries):
    layout, geometry = mla()
    assert_like_eager(FlashAttn(version), geometry, filled(layout, storage, lengths, room=7), queries)


@LAID
@QUERIES
def test_gla_equals_eager(storage, queries):
    layout, geometry = two_latents()
    assert_like_eager(FlashAttn(3), geometry, filled(layout, storage, [300, 3, 65]), queries)


@pytest.mark.parametrize("version", [3, 4])
def test_values_may_be_narrower_than_keys(version):
    layout, geometry = dense(4, 1, 192, 128)
    assert_like_eager(FlashAttn(version), geometry, filled(layout, Contiguous(), [70, 3]), 3)


@VERSIONS
@LAID
@QUERIES
def test_a_window_equals_eager(version, storage, queries):
    layout, geometry = dense(window=5)
    assert_like_eager(FlashAttn(version), geometry, filled(layout, storage, [300, 3, 65]), queries)


@VERSIONS
def test_a_plan_reads_lengths_when_called(version):
    layout, geometry = dense()
    cache = filled(layout, Contiguous(), [20, 9], room=7)
    plan = FlashAttn(version).plan(geometry, cache.view, 20)
    q = torch.ones(2, 1, 6, 64, dtype=torch.bfloat16)
    before, _ = plan.attend(q)
    cache.view.lengths.copy_(torch.tensor([20, 8]))
    after, _ = plan.attend(q)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


@pytest.mark.parametrize(
    ("version", "point"), [(2, dense()), (3, dense()), (3, mla()), (3, two_latents()), (4, dense()), (4, mla())]
)
@LAID
def test_the_cache_is_not_copied(monkeypatch, version, point, storage):
    """Keys and values given are views of slabs, cut to the planned length so that the library splits for it."""
    (layout, geometry), (module, name) = point, FUNCTIONS[version]
    calls: list[Any] = []
    cache = filled(layout, storage, [40, 33], room=500)
    monkeypatch.setattr(module, name, recording(calls, getattr(module, name)))
    distance(FlashAttn(version, num_splits=5 if version < 4 else 0), geometry, cache)
    (_, key, value), named = calls[0]
    slabs = {slab.untyped_storage().data_ptr() for slab in cache.view.slabs}
    assert {t.untyped_storage().data_ptr() for t in (key, value)} <= slabs
    table = named.get("page_table", named.get("block_table"))
    assert (key.shape[1] if table is None else table.shape[1]) == (40 if table is None else 1)
    assert named["num_splits"] == (5 if version < 4 else 1)


@VERSIONS
def test_a_wrong_argument_would_be_seen(monkeypatch, version):
    module, name = FUNCTIONS[version]
    parameters = {2: ("k_cache", "v_cache", "cache_seqlens", "block_table"), 4: ("k", "v", "seqused_k", "page_table")}
    k, v, lengths, table = parameters.get(version, ("k_cache", "v_cache", "cache_seqlens", "page_table"))
    faults = [
        without("softmax_scale"),
        without("causal"),
        changed(lengths, lambda given: given - 1),
        changed(table, lambda given: given.flip(0)),
        changed(k, lambda given: given.roll(1, dims=2)),
        changed(v, lambda given: given.roll(1, dims=1)),
        changed("q", lambda given: given.roll(1, dims=2)),
        changed("softmax_scale", lambda given: given / math.log(2)),
    ]
    layout, geometry = dense()
    cache = filled(layout, Paged(page_size=256), [300, 20, 65], room=7)
    check = partial(assert_like_eager, FlashAttn(version), geometry, cache, queries=3)
    assert_faults_show(monkeypatch, module, name, faults, check)


@VERSIONS
def test_a_wrong_window_would_be_seen(monkeypatch, version):
    layout, geometry = dense(window=9)
    faults = [without("window_size"), changed("window_size", lambda given: (given[0] + 1, 0))]
    check = partial(assert_like_eager, FlashAttn(version), geometry, filled(layout, Contiguous(), [300, 20, 65]))
    assert_faults_show(monkeypatch, *FUNCTIONS[version], faults, check)


@pytest.mark.parametrize("version", [3, 4])
def test_a_wrong_latent_would_be_seen(monkeypatch, version):
    layout, geometry = mla()
    cache = filled(layout, Contiguous(), [70, 3])
    faults = [without("softmax_scale"), without("qv"), changed("qv", lambda given: given.roll(1, dims=-1))]
    check = partial(assert_like_eager, FlashAttn(version), geometry, cache)
    assert_faults_show(monkeypatch, *FUNCTIONS[version], faults, check)


@VERSIONS
def test_a_sequence_shorter_than_the_step_is_an_error(version):
    layout, geometry = dense()
    with pytest.raises(ValueError, match=r"hold the step's 3 new tokens; got \[2, 9\]"):
        FlashAttn(version).plan(geometry, filled(layout, Contiguous(), [2, 9]).view, 9, 3)


def test_versions_are_known_ones():
    with pytest.raises(ValueError, match="version must be one of 2, 3, 4; got 5"):
        FlashAttn(5)


LAYOUT, GEOMETRY = dense()
PLAIN = replace(request(GEOMETRY, LAYOUT), device="cuda")
EVERY = CacheLayout(tuple(Stream(n, 2, 64, BF16, Every(4)) for n in ("key", "value")))


def point(layout, geometry, **more):
    return {"layout": layout, "geometry": geometry, **more}


@pytest.mark.parametrize(
    ("version", "capability", "changes", "said"),
    [
        (2, (8, 0), {}, []),
        (3, (9, 0), {"ragged": True, "queries": 3, "storage": Paged(page_size=16)}, []),
        (4, (10, 0), {}, []),
        (3, (9, 0), point(*mla()), []),
        (3, (9, 0), point(*two_latents()), []),
        (3, (9, 0), point(*dense(2, 1, 192, 128)), []),
        (4, (10, 0), point(*mla()), []),
        (3, (9, 0), point(*dense(window=8)), []),
        (2, (7, 5), {}, ["compute capability"]),
        (3, (10, 0), {}, ["compute capability"]),
        (2, (9, 0), {"storage": Paged(page_size=16)}, ["pages of 256"]),
        (2, (9, 0), {"storage": Paged(page_size=256)}, []),
        (3, (9, 0), {"storage": STORAGES["ring"]}, ["one run of slots"]),
        (3, (9, 0), {"dtype": Dtype.F16}, ["queries and cache alike"]),
        (3, (9, 0), {"layout": dense(dtype=Dtype.F32)[0], "dtype": Dtype.F32}, ["bf16 or fp16"]),
        (3, (9, 0), {"layout": EVERY}, ["one entry per token"]),
        (2, (9, 0), point(*mla()), ["keys 576 and values 512"]),
        (2, (9, 0), point(*dense(2, 1, 192, 128)), ["keys 192 and values 128"]),
        (2, (9, 0), point(*dense(2, 1, 60, 60)), ["keys 60"]),
        (3, (9, 0), point(*dense(2, 1, 512, 512)), ["keys 512"]),
        (3, (9, 0), point(*mla(rank=128)), ["keys 192 and values 128"]),
        (4, (9, 0), point(*mla()), ["on compute capability 10 only"]),
        (4, (10, 0), point(*two_latents()), ["keys 320 and values 256"]),
        (4, (10, 0), point(*dense(2, 1, 192, 192)), ["keys 192"]),
        (4, (9, 0), point(*dense(2, 1, 192, 192)), []),
        (3, (9, 0), point(*of(tied(head_dim=64, rope=32))), ["one strided view"]),
    ],
)
def test_refusals_are_all_reasons(monkeypatch, version, capability, changes, said):
    on_gpu(monkeypatch, *capability)
    reasons = FlashAttn(version).refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said), reasons
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))
    assert all(reason.startswith(f"flash_attn {version} ") for reason in reasons)


@VERSIONS
def test_a_missing_library_and_a_cpu_are_reasons(monkeypatch, version):
    monkeypatch.undo()
    reasons = FlashAttn(version).refuses(replace(PLAIN, device="cpu"))
    words = ("not installed", "compute capability")
    assert [said in reason for said, reason in zip(words, reasons, strict=True)] == [True, True]
