"""Bytes, FLOPs and the floor, against counts made another way: torch's own FLOP counter and the tensors themselves."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.builders import (
    BACKENDS,
    allocate,
    build,
    dense_geometry,
    each_spec,
    fill,
    grouped,
    latent,
    normal,
    positions,
    random_entries,
    window_of,
)
from variants.contract.cost import Applied, Matmul, Point, Work, attend_work, cache_bytes, roofline, step_work
from variants.contract.dtype import Dtype
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.decode import plan_step

BATCH, CONTEXT = 2, 7
POINT = Point(BATCH, CONTEXT, 1, Dtype.F32)


def real_step(spec):
    """A real step over a cache of CONTEXT - 1 tokens, and its input."""
    layout = spec.layout(Dtype.F32)
    if window_of(layout) is not None:
        pytest.skip("eager also scores what a window hides; test_windows_by_counting_pairs counts what it need not")
    cache = fill(allocate(layout, BATCH, CONTEXT), random_entries(layout, BATCH, CONTEXT), [CONTEXT - 1] * BATCH)
    step = plan_step(build(spec, torch.float32), cache, BACKENDS["eager"], CONTEXT)
    return step, normal(BATCH, 1, spec.hidden_size, dtype=torch.float32), positions(BATCH, 1, CONTEXT - 1)


@each_spec
def test_step_flops_are_what_torch_counts(spec):
    step, x, position = real_step(spec)
    with FlopCounterMode(display=False) as counter:
        step(x, position)
    predicted = step_work(spec.layout(Dtype.F32), spec.geometry(), spec.matmuls(), spec.hidden_size, POINT)
    assert predicted.flops == counter.get_total_flops()


@each_spec
def test_attend_flops_are_what_torch_counts(spec):
    step, x, position = real_step(spec)
    step(x, position)
    q = step.attention.query(x, position)
    with FlopCounterMode(display=False) as counter:
        step.attend(q)
    predicted = attend_work(spec.layout(Dtype.F32), spec.geometry(), spec.matmuls(), POINT)
    assert predicted.flops == counter.get_total_flops()


@each_spec
def test_step_bytes_are_those_of_the_tensors(spec):
    step, x, position = real_step(spec)
    attention = step.attention
    y = step(x, position)
    q = attention.query(x, position)
    o, _ = step.attend(q)
    entries = attention.entry(x, position)
    weights = sum(m.weight.nbytes for m in attention.modules() if isinstance(m, nn.Linear))
    cached = sum(step.cache.view.stream(s.name)[:, :, :CONTEXT].nbytes for s in step.cache.view.layout.streams)
    moved = sum(t.nbytes for t in (x, y, q, o, *entries.values())) + weights + cached
    predicted = step_work(spec.layout(Dtype.F32), spec.geometry(), spec.matmuls(), spec.hidden_size, POINT)
    assert predicted.io_bytes == moved


def test_several_queries_are_causal_among_themselves():
    spec = grouped(8, 2, 16, hidden=32)
    one, three = (
        attend_work(spec.layout(Dtype.BF16), spec.geometry(), (), Point(2, 10, queries, Dtype.BF16))
        for queries in (1, 3)
    )
    keys_seen = 8 + 9 + 10
    assert one == Work(io_bytes=2 * (10 * 2 * 2 * 16 + 8 * 32) * 2, flops=2 * 2 * 10 * 8 * 32)
    assert three == Work(io_bytes=2 * (10 * 2 * 2 * 16 + 3 * 8 * 32) * 2, flops=2 * 2 * keys_seen * 8 * 32)


def test_a_step_of_three_appends_three():
    spec = grouped(8, 2, 16, hidden=32)
    layout, geometry = spec.layout(Dtype.BF16), spec.geometry()
    point = Point(2, 10, 3, Dtype.BF16)
    attend, step = attend_work(layout, geometry, (), point), step_work(layout, geometry, (), 32, point)
    assert step.io_bytes - attend.io_bytes == 2 * 3 * (32 + 32) * 2 + 2 * 3 * layout.bytes(1)


@pytest.mark.parametrize("window", [1, 3, 4, 9, 10, 100])
@pytest.mark.parametrize("queries", [1, 3])
def test_windows_by_counting_pairs(window, queries):
    """FLOPs of every (query, key) pair that a window lets through, and the bytes that a step reads and appends."""
    spec = grouped(8, 2, 16, hidden=32, window=window)
    layout, geometry = spec.layout(Dtype.BF16), spec.geometry()
    point = Point(2, 10, queries, Dtype.BF16)
    pairs = [(i, j) for i in range(10 - queries, 10) for j in range(10) if i - window < j <= i]
    token = 2 * 2 * 16 * 2
    attend = attend_work(layout, geometry, (), point)
    assert attend.flops == 2 * 8 * len(pairs) * 2 * (16 + 16)
    assert attend.io_bytes == 2 * (min(10, window) * token + queries * 8 * 32 * 2)
    assert step_work(layout, geometry, (), 32, point).io_bytes - attend.io_bytes == 2 * queries * (2 * 32 * 2 + token)
    assert cache_bytes(layout, point) == 2 * min(10, window) * token


def test_a_key_counts_where_every_stream_still_has_it():
    """The narrower of two windows decides; a stream that is not read decides nothing."""
    streams = (Stream("key", 1, 8, Dtype.BF16, Window(5)), Stream("value", 1, 8, Dtype.BF16, Window(3)))
    layout = CacheLayout((*streams, Stream("other", 1, 8, Dtype.BF16, Window(1))))
    work = attend_work(layout, dense_geometry(2, 1, 8, 8), (), Point(1, 10, 1, Dtype.BF16))
    assert work.flops == 2 * 3 * 2 * 16


MLA = latent(128, 512, 128, 64, 128, hidden=7168, rotary=Rotary("interleaved", 64), q_lora_rank=1536)


def test_c06_cached_bytes_are_counted_once_whatever_the_query_heads():
    point = Point(1, 4096, 1, Dtype.BF16)
    assert cache_bytes(grouped(64, 8, 128).layout(Dtype.BF16), point) == 16_777_216
    assert cache_bytes(MLA.layout(Dtype.BF16), point) == 4_718_592
    q_and_o = 2 * 64 * 2 * 128
    spec = grouped(64, 8, 128)
    assert attend_work(spec.layout(Dtype.BF16), spec.geometry(), (), point).io_bytes == 16_777_216 + q_and_o


def test_c09_fraction_of_a_measured_roof():
    """mlx: q (1, 32, 1, 256), kv (1, 4, 100000, 256), bf16, 2.2 to 2.4 ms against a measured read of 680 GB/s."""
    spec = grouped(32, 4, 256)
    work = attend_work(spec.layout(Dtype.BF16), spec.geometry(), (), Point(1, 100_000, 1, Dtype.BF16))
    assert cache_bytes(spec.layout(Dtype.BF16), Point(1, 100_000, 1, Dtype.BF16)) == 409_600_000
    floor = roofline(work, read_gbps=680, matmul_tflops=100)
    assert floor.bound == "memory"
    assert [round(100 * floor.us / us, 1) for us in (2400, 2200)] == [25.1, 27.4]


@pytest.mark.parametrize(
    ("spec", "intensity"),
    [(grouped(64, 64, 128), 1), (grouped(64, 8, 128), 8), (grouped(64, 1, 128), 64), (MLA, 241.8)],
    ids=["mha", "gqa", "mqa", "mla"],
)
def test_c22_intensity_says_which_roof_limits(spec, intensity):
    work = attend_work(spec.layout(Dtype.BF16), spec.geometry(), spec.matmuls(), Point(1, 32_768, 1, Dtype.BF16))
    assert work.flops / work.io_bytes == pytest.approx(intensity, rel=0.01)
    ridge = 181.0  # an H200's lower one: 776 TFLOP/s over 4.29 TB/s
    floor = roofline(work, read_gbps=1000, matmul_tflops=ridge)
    assert floor.bound == ("compute" if intensity > ridge else "memory")


def test_roofline_takes_the_slower_ceiling():
    assert roofline(Work(2_000_000, 1), 1000, 1).us == pytest.approx(2.0)
    assert roofline(Work(1, 5_000_000), 1000, 1).us == pytest.approx(5.0)


def test_absorption_weights_of_128_heads_are_33_megabytes():
    absorbing = [m for m in MLA.matmuls() if "absorb" in m.name]
    assert sum(m.weights for m in absorbing) * 2 == 33_554_432  # as many bytes as 29 127 cached tokens


def test_a_matmul_on_cached_tokens_grows_with_the_context_and_reads_its_weight_once():
    unpack = Matmul("w", 4, 6, heads=2, applied=Applied.CACHED)
    spec = grouped(8, 2, 16)
    layout, geometry = spec.layout(Dtype.BF16), spec.geometry()
    point = Point(3, 10, 1, Dtype.BF16)
    extra = [
        f(attend_work(layout, geometry, m, point)) for m in ((unpack,), ()) for f in (lambda w: (w.io_bytes, w.flops),)
    ]
    assert extra[0][0] - extra[1][0] == 48 * 2
    assert extra[0][1] - extra[1][1] == 2 * 48 * 3 * 10


@pytest.mark.parametrize(("batch", "context", "queries"), [(0, 1, 1), (1, 0, 1), (1, 1, 2), (1, 1, 0), (1, -1, -1)])
def test_impossible_points_raise(batch, context, queries):
    with pytest.raises(ValueError, match=f"got batch={batch}, queries={queries}, context={context}"):
        Point(batch, context, queries, Dtype.BF16)
