"""flash_mla, its arguments judged by a stand-in with the library's signature: what it computes from them is eager's."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.backend.fakes import flash_mla as fake
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
from tests.builders import allocate, dense_geometry, dense_layout, latent, normal, random_entries, request
from variants.backend.eager import Eager
from variants.backend.flash_mla import FlashMla
from variants.contract.dtype import Dtype
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

BACKEND, PAGES = FlashMla(), Paged(page_size=64)
LENGTHS = [65, 3, 200]


def mla(dtype=Dtype.BF16, rank=512, rope=64):
    spec = latent(6, rank, 128, rope, 128, rotary=Rotary("interleaved", rope))
    return spec.layout(dtype), spec.geometry()


@pytest.fixture
def library(monkeypatch):
    install(monkeypatch, flash_mla="flash_mla")


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("dtype", [Dtype.BF16, Dtype.F16])
@pytest.mark.parametrize("lengths", [[64, 64], LENGTHS], ids=["even", "ragged"])
def test_it_equals_eager(library, lengths, dtype, queries):
    layout, geometry = mla(dtype)
    assert_like_eager(BACKEND, geometry, filled(layout, PAGES, lengths, room=70), queries)


def test_the_schedule_is_for_the_lengths_after_the_step(library):
    """A plan is made before the step writes its tokens; the library's schedule is for one set of lengths."""
    layout, geometry = mla()
    cache = filled(layout, PAGES, [62, 100])
    plan = BACKEND.plan(geometry, cache.view, 103, queries=3)
    position = cache.view.lengths.long()[:, None] + torch.arange(3)
    cache.write({name: e[:, :3] for name, e in random_entries(layout, 2, 5, seed=9).items()}, position)
    q = normal(2, 3, 6, 576, dtype=torch.bfloat16)
    exact, _ = Eager().plan(geometry, cache.view, 103, 3).attend(q.double())
    torch.testing.assert_close(plan.attend(q)[0].double(), exact, rtol=0, atol=2e-2)


def test_the_cache_is_not_copied(library, monkeypatch):
    layout, geometry = mla()
    cache = filled(layout, PAGES, LENGTHS)
    calls: list[Any] = []
    monkeypatch.setattr(fake, "flash_mla_with_kvcache", recording(calls, fake.flash_mla_with_kvcache))
    distance(BACKEND, geometry, cache)
    assert {args[1].data_ptr() for args, _ in calls} == {cache.view.slabs[0].data_ptr()}


def test_a_wrong_argument_would_be_seen(library, monkeypatch):
    layout, geometry = mla()
    cache = filled(layout, PAGES, LENGTHS, room=70)
    faults = [
        without("softmax_scale"),
        without("causal"),
        changed("causal", lambda given: not given),
        changed("cache_seqlens", lambda given: given.clamp(min=64)),
        changed("cache_seqlens", lambda given: given - 1),
        changed("block_table", lambda given: given.flip(0)),
        changed("block_table", lambda given: given.roll(1, dims=1)),
        changed("k_cache", lambda given: given.roll(1, dims=1)),
        changed("q", lambda given: given.roll(1, dims=2)),
        changed("softmax_scale", lambda given: given / math.log(2)),
    ]
    assert_faults_show(
        monkeypatch,
        fake,
        "flash_mla_with_kvcache",
        faults,
        lambda: assert_like_eager(BACKEND, geometry, cache, queries=3),
    )


def test_a_sequence_shorter_than_the_step_is_an_error(library):
    layout, geometry = mla()
    with pytest.raises(ValueError, match=r"hold the 3 new tokens; got \[2, 70\]"):
        BACKEND.plan(geometry, filled(layout, PAGES, [2, 70]).view, 70, 3)
    with pytest.raises(ValueError, match="paged rows"):
        BACKEND.plan(geometry, allocate(layout, 1, 64).view, 64)


LAYOUT, GEOMETRY = mla()
PLAIN = replace(request(GEOMETRY, LAYOUT, PAGES), device="cuda")
APART = CacheLayout((Stream("latent", 1, 512, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)))
WINDOW = CacheLayout(
    tuple(Stream(n, 1, w, Dtype.BF16, Window(9)) for n, w in (("latent", 512), ("rope", 64))), (("latent", "rope"),)
)
DENSE = {"layout": dense_layout(2, 576, 512, Dtype.BF16), "geometry": dense_geometry(4, 2, 576, 512)}
SMALL = dict(zip(("layout", "geometry"), mla(rank=256), strict=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"ragged": True, "queries": 4}, []),
        ({"layout": mla(Dtype.F16)[0], "dtype": Dtype.F16}, []),
        ({"device": "cpu"}, ["on Hopper"]),
        ({"storage": Contiguous()}, ["pages of 64 tokens"]),
        ({"storage": Paged(page_size=16)}, ["pages of 64 tokens"]),
        ({"layout": APART}, ["one strided view"]),
        ({"layout": WINDOW}, ["no windows"]),
        ({"dtype": Dtype.F32}, ["queries and cache alike"]),
        ({"layout": mla(Dtype.F32)[0], "dtype": Dtype.F32}, ["bf16 or fp16"]),
        (DENSE, ["first columns of the key"]),
        (SMALL, ["these are 320", "these are 256"]),
    ],
)
def test_refusals_are_all_reasons(library, monkeypatch, changes, said):
    on_gpu(monkeypatch, 9, 0)
    reasons = BACKEND.refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said), reasons
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))


def test_another_gpu_and_a_missing_library_are_reasons(monkeypatch):
    on_gpu(monkeypatch, 10, 0)
    reasons = BACKEND.refuses(PLAIN)
    assert [said in reason for said, reason in zip(("not installed", "on Hopper"), reasons, strict=True)] == [True] * 2
