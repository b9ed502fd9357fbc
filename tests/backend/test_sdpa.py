"""sdpa: which kernel of torch really ran, that nothing is expanded or copied, and what it refuses."""

from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.builders import (
    BACKENDS,
    DTYPES,
    allocate,
    dense_geometry,
    dense_layout,
    fill,
    latent,
    normal,
    random_entries,
    request,
)
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Quant, Stream
from variants.contract.rotary import Rotary

SDPA = BACKENDS["sdpa"]
KERNELS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "sdpa:flash",
    "aten::_scaled_dot_product_attention_math": "sdpa:math",
}


def mla(dtype, heads=8):
    spec = latent(heads, 512, 128, 64, 128, rotary=Rotary("interleaved", 64))
    return spec.layout(dtype), spec.geometry()


def gqa(dtype, q_heads=8, kv_heads=2, d_qk=64, d_v=64):
    return dense_layout(kv_heads, d_qk, d_v, dtype), dense_geometry(q_heads, kv_heads, d_qk, d_v)


POINTS = {
    "mha": lambda dtype: gqa(dtype, 4, 4),
    "gqa": gqa,
    "mqa": lambda dtype: gqa(dtype, 8, 1),
    "mla absorbed": mla,
    "mla expanded": lambda dtype: gqa(dtype, 4, 4, 192, 128),
}


def profiled(point, length=40, queries=1):
    """The recorded kernel, and a profile of one attend after a first one; the cache has room to spare."""
    layout, geometry = point
    cache = fill(allocate(layout, 2, length + 24), random_entries(layout, 2, length), [length] * 2)
    dtype = DTYPES[layout.streams[0].dtype]
    q = normal(2, queries, geometry.num_q_heads, geometry.d_qk, dtype=dtype)
    plan = SDPA.plan(geometry, cache.view, length, queries)
    plan.attend(q)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        plan.attend(q)
    return plan.kernel, run


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS.keys())
def test_c10_the_recorded_kernel_is_the_one_that_ran(point, queries, dtype):
    kernel, run = profiled(point(dtype), queries=queries)
    ran = {KERNELS[event.name] for event in run.events() if event.name in KERNELS}
    assert ran == {kernel}


@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.BF16], ids=lambda d: d.value)
def test_the_four_variants_run_fused_on_the_cpu(dtype):
    kernels = {name: profiled(POINTS[name](dtype))[0] for name in ("mha", "gqa", "mqa", "mla absorbed")}
    assert set(kernels.values()) == {"sdpa:flash"}


def allocated(run):
    """Bytes that torch asked for during a profile, freed or not: an upper bound of the peak."""
    events = run.profiler.kineto_results.events()
    return sum(max(0, event.nbytes()) for event in events if event.name() == "[memory]")


def test_c10_memory_of_the_profile_sees_an_expansion():
    x = torch.zeros(1, 64, 1024)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        x.repeat_interleave(4, dim=1)
    assert allocated(run) >= 4 * x.nbytes


@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.BF16], ids=lambda d: d.value)
@pytest.mark.parametrize(
    "point",
    [
        lambda dtype: gqa(dtype, 32, 8, 128, 128),
        lambda dtype: gqa(dtype, 32, 1, 128, 128),
        lambda dtype: mla(dtype, 32),
    ],
    ids=["gqa", "mqa", "mla"],
)
def test_c10_nothing_is_expanded_or_copied(point, dtype):
    """q 32, kv 8, d 128: extra memory of a step stays below a tenth of K and V (expanded they would be 4x)."""
    layout, _ = point(dtype)
    kernel, run = profiled(point(dtype), length=4096)
    assert kernel == "sdpa:flash"
    assert allocated(run) < 0.1 * 2 * layout.bytes(4096)


def test_keys_and_values_are_views_of_the_slabs():
    from variants.backend import sdpa

    for layout, geometry in (point(Dtype.BF16) for point in POINTS.values()):
        view = allocate(layout, 2, 10).view
        memory = {slab.untyped_storage().data_ptr() for slab in view.slabs}
        for value, columns in sdpa._values(geometry, view):
            assert value.untyped_storage().data_ptr() in memory
            assert value[..., columns].shape == (2, geometry.num_kv_heads, 10, geometry.d_v)
            if len(geometry.value) == 1:
                assert value[..., columns].data_ptr() == view.span(geometry.value[0]).data_ptr()


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.BF16], ids=lambda d: d.value)
def test_values_beside_wider_keys_in_one_row_run_fused_and_without_a_copy(dtype, queries):
    """MLA expanded, keys of 192 and values of 128: torch has no fused kernel for two widths on a CPU."""
    spec = latent(8, 512, 128, 64, 128, form="expanded")
    layout, geometry = spec.layout(dtype), spec.geometry()
    assert [slab.row_bytes for slab in layout.slabs()] == [dtype.bytes(192 + 128)]
    kernel, run = profiled((layout, geometry), length=1024, queries=queries)
    assert kernel == "sdpa:flash"
    assert allocated(run) < 0.1 * layout.bytes(1024)
    apart = CacheLayout(layout.streams)
    assert profiled((apart, geometry), length=64, queries=queries)[0] == "sdpa:math"


def test_values_in_the_middle_of_the_key_are_found():
    """K = rope + latent, V = latent[8:24]: neither at the start of the row nor the whole of a stream."""
    rope, c = Stream("rope", 1, 8, Dtype.F64), Stream("latent", 1, 32, Dtype.F64)
    layout = CacheLayout((rope, c), rows=(("rope", "latent"),))
    geometry = AttentionGeometry(4, 1, (Span("rope", 0, 8), Span("latent", 0, 32)), (Span("latent", 8, 24),), 0.2)
    cache = fill(allocate(layout, 2, 9), random_entries(layout, 2, 9), [9, 9])
    q = normal(2, 1, 4, 40)
    o, _ = SDPA.plan(geometry, cache.view, 9).attend(q)
    exact, _ = BACKENDS["eager"].plan(geometry, cache.view, 9).attend(q)
    torch.testing.assert_close(o, exact, rtol=0, atol=1e-12)


BF16 = Dtype.BF16
PLAIN = request(*reversed(gqa(BF16)))
PAGED = type("Paged", (), {"kind": "paged", "order": "hs", "page_size": 16})()
WINDOWED = CacheLayout(tuple(Stream(n, 2, 64, BF16, Window(4)) for n in ("key", "value")))
COMPRESSED = CacheLayout(tuple(Stream(n, 2, 64, BF16, Every(4)) for n in ("key", "value")))
CODES = CacheLayout(
    (
        Stream("key", 2, 64, Dtype.INT8, quant=Quant("s", 64)),
        Stream("value", 2, 64, Dtype.INT8, quant=Quant("s", 64)),
        Stream("s", 2, 1, Dtype.F32),
    )
)
APART = CacheLayout((Stream("latent", 1, 512, BF16), Stream("rope", 1, 64, BF16)))
SHARED = CacheLayout((Stream("key", 1, 64, BF16), Stream("value", 2, 64, BF16)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"ragged": True}, ["ragged batches"]),
        ({"storage": PAGED}, ["storage paged"]),
        ({"layout": WINDOWED}, ["windowed"]),
        ({"layout": COMPRESSED}, ["windowed"]),
        ({"layout": CODES, "dtype": Dtype.INT8}, ["codes"]),
        ({"layout": CODES}, ["codes", "dtype other than the queries' bf16"]),
        ({"layout": APART, "geometry": mla(BF16)[1]}, ["not one strided view"]),
        ({"layout": SHARED}, ["not one strided view"]),
        ({"dtype": Dtype.F32}, ["dtype other than the queries' fp32"]),
        ({"ragged": True, "storage": PAGED, "layout": WINDOWED}, ["ragged batches", "storage paged", "windowed"]),
    ],
)
def test_refusals_are_all_reasons(changes, said):
    reasons = SDPA.refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said)
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))
