"""Every storage: bytes as predicted, written by position, poison where nothing was written, noise that is noise."""

import pytest
import torch

from tests.builders import (
    CPU,
    STORAGES,
    allocate,
    dense_layout,
    each_spec,
    each_storage,
    fill,
    latent,
    positions,
    random_entries,
    window_of,
)
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Quant, Stream
from variants.storage.paged import Paged

FP8_MLA = CacheLayout(
    (
        Stream("latent", 1, 512, Dtype.FP8_E4M3, quant=Quant("scale", 128)),
        Stream("scale", 1, 4, Dtype.F32),
        Stream("rope", 1, 64, Dtype.BF16),
    ),
    rows=(("latent", "scale", "rope"),),
)
LAYOUTS = {
    "dense": dense_layout(2, 24, 12, Dtype.BF16),
    "latent": latent().layout(Dtype.F32),
    "padded": CacheLayout((Stream("key", 3, 5, Dtype.BF16), Stream("value", 1, 3, Dtype.F64))),
    "fp8": FP8_MLA,
    "window": CacheLayout((Stream("key", 2, 8, Dtype.F16, Window(4)), Stream("value", 2, 8, Dtype.F16, Window(4)))),
    "entries": CacheLayout((Stream("c", 1, 8, Dtype.BF16, Every(4)), Stream("d", 2, 8, Dtype.F32, Every(2)))),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def whole(stream):
    """All columns of a stream."""
    return Span(stream.name, 0, stream.width)


def streams(cache):
    """Every stream as float64 numbers, codes decoded, [B, heads, capacity, W]."""
    return {s.name: cache.view.read(whole(s), cache.capacity, torch.float64) for s in cache.view.layout.entries}


@each_storage
@each_layout
@pytest.mark.parametrize(("batch", "capacity"), [(1, 1), (3, 17), (2, 64)])
def test_allocated_bytes_are_predicted_to_the_byte(storage, layout, batch, capacity):
    cache = allocate(layout, batch, capacity, storage)
    assert storage.allocated_bytes(layout, batch, capacity) == cache.allocated_bytes
    assert cache.allocated_bytes == sum(slab.untyped_storage().nbytes() for slab in cache.view.slabs)
    assert cache.allocated_bytes >= batch * layout.bytes(capacity)
    assert cache.capacity >= capacity


@each_storage
@each_spec
def test_allocated_equals_logical_where_nothing_is_padded(storage, spec):
    if storage.page_size is not None:
        pytest.skip("pages round up")
    layout = spec.layout(Dtype.F64)  # two numbers fill 16 bytes
    if window_of(layout) is not None:
        pytest.skip("a window is held with room around it: in full, or for the tokens of a step")
    assert allocate(layout, 2, 9, storage).allocated_bytes == 2 * layout.bytes(9)


def test_c20_bytes_of_odd_shapes():
    layout = dense_layout(3, 24, 24, Dtype.BF16)
    assert 2 * allocate(layout, 5, 100).allocated_bytes == 288_000
    assert STORAGES["contiguous"].table_bytes(5, 100) == 0
    assert 2 * Paged(16).allocated_bytes(layout, 5, 100) == 322_560


def test_contiguous_rows_are_padded_to_16_bytes():
    assert allocate(LAYOUTS["padded"], 1, 10).allocated_bytes == 10 * (3 * 16 + 32)


def test_contiguous_reserves_a_window_in_full():
    cache = allocate(LAYOUTS["window"], 1, 100)
    assert cache.allocated_bytes == 100 * 2 * 2 * 16
    assert cache.view.layout.bytes(100) == 4 * 2 * 2 * 16


@each_storage
@each_layout
def test_a_new_cache_is_empty_and_every_number_is_nan(storage, layout):
    cache = allocate(layout, 2, 5, storage)
    assert cache.view.lengths.tolist() == [0, 0]
    assert all(stream.isnan().all() for stream in streams(cache).values())


def test_poison_of_codes_is_in_their_scales():
    layout = CacheLayout((Stream("key", 1, 8, Dtype.INT8, quant=Quant("s", 8)), Stream("s", 1, 1, Dtype.F16)))
    assert allocate(layout, 1, 3).view.stream("s").isnan().all()


@each_storage
def test_entries_lie_at_their_positions(storage):
    layout = LAYOUTS["dense"]
    entries = random_entries(layout, 2, 5)
    order = torch.tensor([[3, 0, 4, 1, 2], [2, 4, 1, 0, 3]])
    cache = allocate(layout, 2, 6, storage)
    cache.write(entries, order)
    for s in layout.streams:
        for b in range(2):
            for t in range(5):
                read = cache.view.gather(whole(s), 6)[b, :, order[b, t]]
                assert torch.equal(read, entries[s.name][b, t])
    assert cache.view.gather(whole(layout.streams[0]), 6)[:, :, 5].isnan().all()


@each_storage
def test_lengths_follow_the_last_position_in_place(storage):
    layout = LAYOUTS["dense"]
    cache = allocate(layout, 2, 9, storage)
    lengths = cache.view.lengths
    cache.write(random_entries(layout, 2, 1), torch.tensor([[4], [6]]))
    assert lengths.tolist() == [5, 7]
    assert lengths is cache.view.lengths
    assert lengths.dtype == torch.int32


@each_storage
@each_layout
def test_writing_twice_changes_nothing(storage, layout):
    entries = random_entries(layout, 2, 3)
    cache = allocate(layout, 2, 5, storage)
    cache.write(entries, positions(2, 3, 1))
    once = [slab.clone() for slab in cache.view.slabs]
    cache.write(entries, positions(2, 3, 1))
    assert all(torch.equal(a, b) for a, b in zip(once, cache.view.slabs, strict=True))
    assert cache.view.lengths.tolist() == [4, 4]


@each_storage
def test_writing_touches_no_other_slot(storage):
    layout = LAYOUTS["latent"]
    cache = fill(allocate(layout, 3, 8, storage), random_entries(layout, 3, 6), [6, 6, 6])
    before = streams(cache)
    cache.write(random_entries(layout, 3, 1, seed=9), torch.tensor([[6], [2], [6]]))
    for name, after in streams(cache).items():
        changed = (after != before[name]) & ~(after.isnan() & before[name].isnan())
        assert changed.any(dim=(1, 3)).nonzero().tolist() == [[0, 6], [1, 2], [2, 6]]


def test_entries_are_cast_to_the_stream():
    layout = LAYOUTS["dense"]
    cache = allocate(layout, 1, 1)
    cache.write({s.name: torch.full((1, 1, s.heads, s.width), 1 / 3) for s in layout.streams}, positions(1, 1))
    assert cache.view.stream("key").unique().tolist() == [0.333984375]  # 1/3 in bf16


@each_storage
def test_truncated_slots_are_poisoned_again(storage):
    layout = LAYOUTS["latent"]
    cache = fill(allocate(layout, 3, 7, storage), random_entries(layout, 3, 7), [7, 0, 3])
    assert cache.view.lengths.tolist() == [7, 0, 3]
    for s in layout.streams:
        unused = cache.view.gather(whole(s), 7).isnan()
        assert unused.all(dim=(1, 3)).sum(dim=1).tolist() == [0, 7, 4]
        assert not unused[0].any()
        assert not unused[2, :, :3].any()


@each_storage
@pytest.mark.parametrize("name", ["dense", "latent", "padded", "fp8", "window"])
def test_c16_noise_is_normal_in_every_stream(storage, name):
    cache = allocate(LAYOUTS[name], 3, 700, storage)
    cache.fill_noise(600, seed=5)
    assert cache.view.lengths.tolist() == [600, 600, 600]
    for stream in streams(cache).values():
        used = stream[:, :, :600]
        assert used.isfinite().all()
        assert 0.5 < used.std() < 2
        assert abs(float(used.mean())) < max(0.1, 4 * used.numel() ** -0.5)  # a ring holds six tokens
        assert stream[:, :, 600:].isnan().all()


@each_storage
def test_noise_repeats_by_seed_and_nowhere_else(storage):
    layout = dense_layout(3, 16, 16, Dtype.F32)
    caches = [allocate(layout, 2, 40, storage) for _ in range(3)]
    for cache, seed in zip(caches, (5, 5, 6), strict=True):
        cache.fill_noise(40, seed)
    one, again, other = (
        [rows[:40] for s in streams(c).values() for row in s for rows in row] for c in caches
    )  # behind 40 tokens a page is poison
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    everything = one + other
    assert len(everything) == 24
    assert not any(
        torch.equal(a, b) for i, a in enumerate(everything) for b in everything[i + 1 :]
    )  # sequences, heads, streams and seeds all differ


@each_storage
def test_less_noise_after_more_leaves_poison(storage):
    cache = allocate(LAYOUTS["dense"], 2, 9, storage)
    cache.fill_noise(9, seed=1)
    cache.fill_noise(4, seed=1)
    assert all(s[:, :, 4:].isnan().all() and s[:, :, :4].isfinite().all() for s in streams(cache).values())


@each_storage
def test_no_noise_at_all(storage):
    cache = allocate(LAYOUTS["dense"], 2, 9, storage)
    cache.fill_noise(0, seed=1)
    assert cache.view.lengths.tolist() == [0, 0]
    assert all(s.isnan().all() for s in streams(cache).values())


def test_c17_every_byte_is_written_before_it_is_timed(monkeypatch):
    """Memory that torch hands out holds a pattern; allocation and noise leave it nowhere."""
    real = torch.full

    def dirty(shape, value, **kwargs):
        slab = torch.empty(shape, **kwargs)
        slab.fill_(0xA5)
        return slab.fill_(value) if value else real(shape, value, **kwargs)

    monkeypatch.setattr(torch, "full", dirty)
    cache = allocate(LAYOUTS["fp8"], 2, 50)
    for slab in cache.view.slabs:
        assert (slab == 0xFF).all()
    cache.fill_noise(50, seed=3)
    (slab,) = cache.view.slabs
    assert not (slab == 0xFF).all(dim=-1).any()  # no row is left as it was allocated


def test_capacity_and_policy():
    cache = allocate(LAYOUTS["dense"], 2, 9)
    assert (cache.capacity, cache.policy) == (9, STORAGES["contiguous"])
    assert cache.view.slabs[0].device == CPU
