"""Pages of a pool: shuffled, rounded up, freed and claimed again, shared; never a stale read."""

import pytest
import torch

from tests.builders import (
    BACKENDS,
    CPU,
    allocate,
    attend,
    build,
    dense_geometry,
    dense_layout,
    each_backend,
    each_spec,
    fill,
    grouped,
    latent,
    normal,
    positions,
    random_entries,
    textbook,
    tied,
)
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.decode import Decoder
from variants.noise import BLOCK
from variants.storage.paged import NO_PAGE, Paged

EAGER = BACKENDS["eager"]
SMALL = dense_layout(2, 8, 8, Dtype.F64)
GEOMETRY = dense_geometry(4, 2, 8, 8)
PAGE = 4
TOKEN_BYTES = 2 * 2 * 8 * 8  # K and V of two heads of eight float64


def pool(batch=3, capacity=12, page_size=PAGE, layout=SMALL, seed=0):
    return Paged(page_size, seed).allocate(layout, batch, capacity, CPU)


def filled(lengths, page_size=PAGE, capacity=12, layout=SMALL):
    cache = pool(len(lengths), capacity, page_size, layout)
    entries = random_entries(layout, len(lengths), capacity)
    return fill(cache, entries, lengths), entries


def rows(cache, row, stream="key"):
    """What a row reads of a stream, [heads, capacity, W]."""
    width = cache.view.layout.stream(stream).width
    return cache.view.sequence(row).gather(Span(stream, 0, width), cache.capacity)[0]


def table(cache):
    """The block table, which a paged cache always has."""
    found = cache.view.block_table
    assert found is not None
    return found


def page_bytes(cache, pages):
    return [slab[pages].clone() for slab in cache.view.slabs]


def test_c05_pages_are_distinct_shuffled_and_unique_bytes_are_the_logical_ones():
    """Batch 32, 4096 tokens, 8 x 128 bf16: 536 870 912 B; one 8-byte stream stands in for a token's 4096 B here."""
    layout = dense_layout(8, 128, 128, Dtype.BF16)
    assert 32 * layout.bytes(4096) == Paged(16).allocated_bytes(layout, 32, 4096) == 536_870_912
    assert Paged(16).table_bytes(32, 4096) == 4 * 8192
    cache = pool(32, 4096, 16, CacheLayout((Stream("c", 1, 8, Dtype.FP8_E4M3),)))
    pages = table(cache).flatten().tolist()
    assert sorted(pages) == list(range(8192))
    assert pages != sorted(pages)
    assert all(row != sorted(row) for row in table(cache).tolist())
    cache.view.lengths.fill_(4096)
    assert cache.unique_bytes == 8 * 32 * 4096
    assert cache.unique_bytes * layout.bytes(1) // 8 == 536_870_912


def test_the_seed_decides_the_order():
    one, again, other = (table(pool(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("page_size", [0, -1, 257, 1000])
def test_page_sizes_out_of_range_are_refused(page_size):
    with pytest.raises(ValueError, match=rf"page_size must be .*1.*; got {page_size}"):
        Paged(page_size)


@pytest.mark.parametrize("page_size", [1.5, "16", True, None])
def test_page_sizes_are_whole(page_size):
    with pytest.raises(ValueError, match="page_size must be a whole number"):
        Paged(page_size)


@each_backend
@pytest.mark.parametrize("page_size", [1, 3, 16, 64, 256])
@pytest.mark.parametrize("spec", [grouped(6, 2), latent(), tied()], ids=["gqa", "mla", "gta"])
def test_any_page_size_and_ragged_lengths_equal_the_textbook(spec, page_size, backend):
    lengths, layout, geometry = [3, 17, 64], spec.layout(Dtype.F64), spec.geometry()
    cache, entries = filled(lengths, page_size, 70, layout)
    q = normal(3, 2, geometry.num_q_heads, geometry.d_qk)
    o, lse = attend(backend, geometry, cache, q)
    exact, exact_lse = textbook(q, entries, geometry, lengths)
    torch.testing.assert_close(o, exact, rtol=0, atol=1e-12)
    assert lse is None or torch.allclose(lse, exact_lse, rtol=0, atol=1e-12)


@each_spec
def test_decoding_crosses_page_borders(spec):
    module, x = build(spec), normal(2, 9, spec.hidden_size)
    decoder = Decoder(module, allocate(spec.layout(Dtype.F64), 2, 9, Paged(2, seed=3)), EAGER)
    outputs = [decoder.prefill(x[:, :3]), *(decoder.decode(x[:, t : t + 3]) for t in (3, 6))]
    torch.testing.assert_close(torch.cat(outputs, dim=1), module.reference(x), rtol=0, atol=1e-10)


def test_b18_slot_12_of_pages_of_four_stays_untouched():
    module, x = build(grouped()), normal(2, 12, 48)
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), 2, 13, Paged(4)), EAGER)
    outputs = [decoder.prefill(x[:, :9]), *(decoder.decode(x[:, t : t + 1]) for t in (9, 10, 11))]
    torch.testing.assert_close(torch.cat(outputs, dim=1), module.reference(x), rtol=0, atol=1e-10)
    cache = decoder.cache
    assert cache.view.lengths.tolist() == [12, 12]
    for row in range(2):
        assert rows(cache, row)[:, :12].isfinite().all()
        assert rows(cache, row)[:, 12:].isnan().all()
    assert cache.view.stream("key")[table(cache)[:, 3]].isnan().all()  # the page of slots 12 to 15


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (400, 25)])
def test_a28_tokens_are_rounded_up_to_pages(tokens, pages):
    """opt-125m: 12 layers of 12 heads of 64 in bf16, 36 864 B per token."""
    policy, layout = Paged(16), dense_layout(12, 64, 64, Dtype.BF16)
    assert policy.pages(tokens) == pages
    assert 12 * policy.allocated_bytes(layout, 1, tokens) == pages * 16 * 36_864
    if tokens == 17:
        assert 12 * policy.allocated_bytes(layout, 1, tokens) == 1_179_648
        assert 12 * layout.bytes(tokens) == 626_688
        cache = pool(1, 17, 16)
        cache.view.lengths.fill_(17)
        assert cache.unique_bytes / cache.allocated_bytes == pytest.approx(0.531, abs=5e-4)


@pytest.mark.parametrize("page_size", [1, 5, 16, 256])
@pytest.mark.parametrize("layout", [SMALL, latent().layout(Dtype.BF16), dense_layout(3, 5, 3, Dtype.BF16)])
def test_allocated_is_predicted(layout, page_size):
    policy = Paged(page_size)
    cache = policy.allocate(layout, 3, 37, CPU)
    assert cache.allocated_bytes == policy.allocated_bytes(layout, 3, 37)
    assert table(cache).nbytes == policy.table_bytes(3, 37)
    assert cache.capacity == policy.pages(37) * page_size


def test_released_pages_are_poisoned_and_reused_without_stale_reads():
    cache, _ = filled([12, 12, 12])
    own = table(cache)[1].tolist()
    before = page_bytes(cache, table(cache)[[0, 2]].flatten().long())
    cache.release(1)
    assert cache.view.lengths.tolist() == [12, 0, 12]
    assert table(cache)[1].tolist() == [NO_PAGE] * 3
    assert all((slab[own] == 0xFF).all() for slab in cache.view.slabs)
    cache.claim(1)
    assert sorted(table(cache)[1].tolist()) == sorted(own)
    assert rows(cache, 1).isnan().all()
    after = page_bytes(cache, table(cache)[[0, 2]].flatten().long())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    new = random_entries(SMALL, 3, 12, seed=77)
    cache.write({n: e[:, :2] for n, e in new.items()}, positions(3, 2))
    cache.view.lengths.copy_(torch.tensor([12, 2, 12]))
    q = normal(3, 1, 4, 8)
    o, _ = attend(EAGER, GEOMETRY, cache, q)
    exact, _ = textbook(q[1:2], {n: e[1:2] for n, e in new.items()}, GEOMETRY, [2])
    torch.testing.assert_close(o[1:2], exact, rtol=0, atol=1e-12)


def test_a_row_may_claim_what_another_released():
    cache, _ = filled([12, 12, 12])
    mine, other = table(cache)[0].tolist(), table(cache)[2].tolist()
    cache.release(0)
    cache.release(2)
    cache.claim(0)
    assert table(cache)[0].tolist() == other[::-1]  # the last freed first
    assert set(mine) & set(table(cache)[0].tolist()) == set()
    cache.claim(0)  # has all of its pages
    assert table(cache)[0].tolist() == other[::-1]


def test_a_pool_without_free_pages_says_so():
    cache, _ = filled([12, 12, 12])
    table(cache)[1, 0] = NO_PAGE  # a page lost: what is released and claimed always suffices
    with pytest.raises(ValueError, match="row 1 needs 1 pages; the pool has 0 free"):
        cache.claim(1)


def test_an_empty_row_attends_to_nothing():
    cache, entries = filled([12, 12, 12])
    cache.release(1)
    q = normal(3, 1, 4, 8)
    o, lse = attend(EAGER, GEOMETRY, cache, q)
    exact, _ = textbook(q, entries, GEOMETRY, [12, 0, 12])
    torch.testing.assert_close(o, exact, rtol=0, atol=1e-12)
    assert lse is not None
    assert lse[1].eq(-torch.inf).all()


def test_a_missing_page_never_stands_for_the_pools_last_one():
    """-1 as an index is the last page, which some other row owns."""
    cache, _ = filled([12, 12, 12])
    last = cache.view.slabs[0].shape[0] - 1
    owner = next(row for row, pages in enumerate(table(cache).tolist()) if last in pages)
    gone = (owner + 1) % 3
    before = [slab[last].clone() for slab in cache.view.slabs]
    cache.release(gone)
    lengths = torch.full((3,), 12, dtype=torch.int32)
    lengths[gone] = 0
    cache.truncate(lengths)
    assert all(torch.equal(a, slab[last]) for a, slab in zip(before, cache.view.slabs, strict=True))
    with pytest.raises(ValueError, match=rf"rows \[{gone}\] have no pages to write to"):
        cache.write(random_entries(SMALL, 3, 1), positions(3, 1, 11))
    lengths[gone] = 1
    with pytest.raises(ValueError, match=f"row {gone} has no pages for 1 tokens"):
        cache.truncate(lengths)
    assert all(torch.equal(a, slab[last]) for a, slab in zip(before, cache.view.slabs, strict=True))


def shared(tokens=8):
    """Row 1 reads the first tokens of row 0; row 2 stands alone."""
    cache, entries = filled([11, 0, 12])
    cache.share_prefix(1, 0, tokens)
    return cache, entries


def test_a_shared_prefix_is_counted_once():
    cache, _ = shared()
    assert cache.view.lengths.tolist() == [11, 8, 12]
    logical = sum(SMALL.bytes(length) for length in cache.view.lengths.tolist())
    assert logical == 31 * TOKEN_BYTES
    assert cache.unique_bytes == logical - 8 * TOKEN_BYTES
    assert torch.equal(rows(cache, 1)[:, :8], rows(cache, 0)[:, :8])
    assert rows(cache, 1)[:, 8:].isnan().all()


def test_a_shared_prefix_stays_as_it_is_while_both_decode_on():
    module, x = build(grouped()), normal(2, 14, 48)
    x[1, :8] = x[0, :8]
    cache = Paged(4).allocate(module.spec.layout(Dtype.F64), 2, 16, CPU)
    decoder = Decoder(module, cache, EAGER)
    decoder.prefill(x[:, :8])
    cache.truncate(torch.tensor([8, 0], dtype=torch.int32))
    cache.share_prefix(1, 0, 8)
    prefix = table(cache)[0, :2].long()
    assert torch.equal(table(cache)[1, :2].long(), prefix)
    before = page_bytes(cache, prefix)
    steps = torch.cat([decoder.decode(x[:, t : t + 1]) for t in range(8, 14)], dim=1)
    assert all(torch.equal(a, b) for a, b in zip(before, page_bytes(cache, prefix), strict=True))
    torch.testing.assert_close(steps, module.reference(x)[:, 8:], rtol=0, atol=1e-10)
    per_token = cache.view.layout.bytes(1)
    assert cache.unique_bytes == (8 + 2 * 6) * per_token
    assert not torch.equal(rows(cache, 0)[:, 8:14], rows(cache, 1)[:, 8:14])


def test_a_prefix_outlives_the_row_that_wrote_it():
    cache, entries = shared()
    pages = table(cache)[0].tolist()
    kept = page_bytes(cache, pages[:2])
    cache.release(0)
    assert all(torch.equal(a, b) for a, b in zip(kept, page_bytes(cache, pages[:2]), strict=True))
    assert all((slab[pages[2]] == 0xFF).all() for slab in cache.view.slabs)
    cache.claim(0)
    assert not set(table(cache)[0].tolist()) & set(pages[:2])
    q = normal(3, 1, 4, 8)
    o, _ = attend(EAGER, GEOMETRY, cache, q)
    exact, _ = textbook(q[1:2], {n: e[:1] for n, e in entries.items()}, GEOMETRY, [8])
    torch.testing.assert_close(o[1:2], exact, rtol=0, atol=1e-12)
    cache.release(1)
    assert all((slab[pages[:2]] == 0xFF).all() for slab in cache.view.slabs)  # its last reader is gone


def test_a_released_row_may_share_and_claim_the_rest():
    cache, _ = filled([12, 12, 12])
    cache.release(1)
    cache.share_prefix(1, 0, 4)
    with pytest.raises(ValueError, match="have no pages"):
        cache.write(random_entries(SMALL, 3, 1), positions(3, 1, 4))
    cache.claim(1)
    pages = table(cache)[1].tolist()
    assert pages[0] == table(cache)[0, 0]
    assert len({*pages, *table(cache)[0].tolist(), *table(cache)[2].tolist()}) == 8
    cache.release(1)
    cache.share_prefix(1, 0, 12)  # the whole row: nothing is missing
    cache.write(random_entries(SMALL, 3, 1), torch.tensor([[11], [11], [11]]))


@pytest.mark.parametrize(
    ("row", "tokens", "message"),
    [
        (1, 6, "positive multiple of page_size=4 and at most 11; got 6"),
        (1, 12, "at most 11; got 12"),
        (1, 0, "positive multiple of page_size=4 and at most 11; got 0"),
        (1, -4, "got -4"),
        (2, 4, "row 2 must be empty; it holds 12 tokens"),
    ],
)
def test_what_cannot_be_shared_is_refused(row, tokens, message):
    cache, _ = filled([11, 0, 12])
    before = table(cache).clone()
    with pytest.raises(ValueError, match=message):
        cache.share_prefix(row, 0, tokens)
    assert torch.equal(table(cache), before)


@pytest.mark.parametrize("lengths", [[11, 0, 12], [11, 7, 12], [7, 8, 12], [0, 8, 12]])
def test_forgetting_part_of_a_shared_prefix_is_refused(lengths):
    """The row would next write into a page that the other one reads."""
    cache, _ = shared()
    before = [slab.clone() for slab in cache.view.slabs]
    with pytest.raises(ValueError, match="another row reads the pages behind them"):
        cache.truncate(torch.tensor(lengths, dtype=torch.int32))
    assert all(torch.equal(a, b) for a, b in zip(before, cache.view.slabs, strict=True))
    cache.truncate(torch.tensor([8, 8, 3], dtype=torch.int32))
    assert rows(cache, 1)[:, :8].isfinite().all()


@pytest.mark.parametrize("length", [0, 1, 15, 16])
def test_noise_differs_in_every_page_and_poison_is_behind_it(length):
    cache = pool(2, 16, 4)
    cache.fill_noise(length, seed=1)
    assert cache.view.lengths.tolist() == [length] * 2
    for row in range(2):
        for stream in ("key", "value"):
            assert rows(cache, row, stream)[:, :length].isfinite().all()
            assert rows(cache, row, stream)[:, length:].isnan().all()
    used = [
        tokens for r in range(2) for s in ("key", "value") for head in rows(cache, r, s) for tokens in head[:length]
    ]
    assert len({bytes(t.numpy().tobytes()) for t in used}) == len(used)


def test_noise_does_not_repeat_where_its_block_ends():
    """A pool larger than the block that noise is drawn from: no two pages are alike."""
    layout = CacheLayout((Stream("c", 1, 256, Dtype.FP8_E4M3), Stream("d", 1, 256, Dtype.FP8_E4M3)))
    cache = pool(1, 2 * BLOCK // 256, 256, layout)
    cache.fill_noise(cache.capacity, seed=1)
    pages = [slab[:, 0, :2].numpy().tobytes() for slab in cache.view.slabs]
    size = 2 * 256
    every = [page[i : i + size] for page in pages for i in range(0, len(page), size)]
    assert len(every) == 2 * 128
    assert len(set(every)) == len(every)


def test_noise_leaves_free_pages_poisoned():
    cache, _ = filled([12, 12, 12])
    own = table(cache)[1].tolist()
    cache.release(1)
    cache.fill_noise(0, seed=1)
    assert all((slab[own] == 0xFF).all() for slab in cache.view.slabs)


def test_unique_bytes_of_a_window_are_what_it_keeps():
    layout = CacheLayout(tuple(Stream(n, 2, 8, Dtype.F64, Window(5)) for n in ("key", "value")))
    cache = pool(2, 12, 4, layout)
    cache.view.lengths.copy_(torch.tensor([3, 12]))
    assert cache.unique_bytes == layout.bytes(3) + layout.bytes(12) == (3 + 5) * TOKEN_BYTES


def test_the_pool_stays_where_it_is():
    """C24: appending writes in place; no step copies or moves the pool."""
    module, x = build(grouped()), normal(2, 12, 48)
    decoder = Decoder(module, pool(2, 12, 4, module.spec.layout(Dtype.F64)), EAGER)
    slabs = decoder.cache.view.slabs
    before = [t.data_ptr() for t in (*slabs, table(decoder.cache))]
    for t in range(10):
        decoder.decode(x[:, t : t + 1])
    view = decoder.cache.view
    assert [t.data_ptr() for t in (*view.slabs, table(decoder.cache))] == before
    assert view.slabs is slabs
