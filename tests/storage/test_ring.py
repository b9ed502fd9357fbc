"""A window in a circle of slots: the answers of a contiguous cache, from n + Q - 1 slots."""

import pytest
import torch

from tests.builders import (
    BACKENDS,
    CPU,
    SPECS,
    allocate,
    attend,
    build,
    dense_geometry,
    fill,
    grouped,
    normal,
    positions,
    random_entries,
    textbook,
)
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.decode import Decoder
from variants.storage.contiguous import Contiguous
from variants.storage.ring import UNBOUNDED, Ring

EAGER = BACKENDS["eager"]
WINDOW = 4
GEOMETRY = dense_geometry(4, 2, 8, 8)


def window_layout(size=WINDOW, dtype=Dtype.F64):
    return CacheLayout(tuple(Stream(n, 2, 8, dtype, Window(size)) for n in ("key", "value")))


def ring(queries=1, size=WINDOW, batch=1, capacity=100):
    return Ring(queries).allocate(window_layout(size), batch, capacity, CPU)


def start_of(view):
    """Oldest positions, which the view of a ring always has."""
    assert view.start is not None
    return view.start


def squares():
    """K = 0 and V[j] = j^2 of ten tokens."""
    value = torch.arange(10.0, dtype=torch.float64).square()[None, :, None, None].expand(1, 10, 2, 8)
    return {"key": torch.zeros(1, 10, 2, 8, dtype=torch.float64), "value": value}


def written(queries, tokens=10):
    """A ring into which ten squares were written, ``queries`` at a time and the rest at the start."""
    cache, entries = ring(queries), squares()
    starts = [0, *range(tokens % queries or queries, tokens, queries)]
    for start, stop in zip(starts, [*starts[1:], tokens], strict=True):
        cache.write({n: e[:, start:stop] for n, e in entries.items()}, positions(1, stop - start, start))
    return cache


@pytest.mark.parametrize("queries", [1, 3])
def test_b14_a_window_of_four_after_ten_tokens(queries):
    """Keys 6 to 9: 57.5; with three queries the first still sees 4 to 7: 31.5."""
    cache = written(queries)
    o, _ = attend(EAGER, GEOMETRY, cache, normal(1, queries, 4, 8))
    expected = {1: [57.5], 3: [31.5, 43.5, 57.5]}[queries]
    for i, value in enumerate(expected):
        torch.testing.assert_close(o[:, i], torch.full_like(o[:, i], value), rtol=0, atol=1e-12)


@pytest.mark.parametrize("queries", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 4, 5])
def test_the_answers_are_those_of_a_contiguous_cache_and_of_the_reference(window, queries):
    """Up to five windows and a bit: prefill in chunks as large as the ring takes, then steps of ``queries`` tokens."""
    module = build(grouped(6, 2, window=window))
    tokens = 5 * window + queries
    x = normal(2, tokens, 48)
    prompt = tokens - 4 * queries if tokens > 4 * queries else tokens % queries
    outputs = []
    for storage in (Ring(queries), Contiguous()):
        layout = module.spec.layout(Dtype.F64)
        cache = allocate(layout, 2, tokens, storage)
        decoder = Decoder(module, cache, EAGER)
        parts = [decoder.prefill(x[:, :prompt])] if prompt else []
        parts += [decoder.decode(part) for part in x[:, prompt:].split(queries, dim=1)]
        outputs.append(torch.cat(parts, dim=1))
        assert cache.view.lengths.tolist() == [tokens, tokens]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(outputs[0], module.reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("lengths", [[1, 4, 20], [7, 0, 3]])
def test_ragged_rows_equal_the_textbook(lengths, queries):
    layout = window_layout()
    entries = random_entries(layout, 3, 20)
    cache = fill(ring(queries, batch=3), entries, lengths)
    q = normal(3, queries, 4, 8)
    o, lse = attend(EAGER, GEOMETRY, cache, q)
    exact, exact_lse = textbook(q, entries, GEOMETRY, lengths, WINDOW)
    torch.testing.assert_close(o, exact, rtol=0, atol=1e-12)
    assert lse is not None
    torch.testing.assert_close(lse, exact_lse, rtol=0, atol=1e-12)
    assert start_of(cache.view).tolist() == [max(0, length - (WINDOW + queries - 1)) for length in lengths]


@pytest.mark.parametrize("queries", [1, 3, 8])
@pytest.mark.parametrize("capacity", [1, 3, 4, 6, 100])
def test_slots_are_the_window_and_room_for_the_other_queries(queries, capacity):
    policy, layout = Ring(queries), window_layout()
    slots = min(WINDOW + queries - 1, capacity)
    cache = policy.allocate(layout, 3, capacity, CPU)
    assert policy.slots(layout, capacity) == slots
    assert cache.allocated_bytes == policy.allocated_bytes(layout, 3, capacity) == 3 * slots * layout.bytes(1)
    assert all(slab.shape == (3, 2, slots, 64) for slab in cache.view.slabs)
    assert policy.table_bytes(3, capacity) == 0
    assert (policy.kind, policy.order, policy.page_size) == ("ring", "hs", None)


def test_a_long_sequence_takes_no_more_than_a_window():
    layout = CacheLayout(tuple(Stream(n, 8, 128, Dtype.BF16, Window(4096)) for n in ("key", "value")))
    assert Ring().allocated_bytes(layout, 32, 131_072) == 32 * layout.bytes(131_072) == 536_870_912


def test_a_ring_cut_to_its_capacity_is_full_at_it():
    """Fewer slots than the window needs: the next token would overwrite one that is still seen."""
    module, x = build(grouped(window=10)), normal(1, 6, 48)
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), 1, 5, Ring()), EAGER)
    assert decoder.cache.capacity == 5
    torch.testing.assert_close(decoder.prefill(x[:, :5]), module.reference(x[:, :5]), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="cache holds 5 tokens per sequence; this step needs 6"):
        decoder.decode(x[:, 5:])
    assert ring(capacity=4).capacity == ring(capacity=5).capacity == UNBOUNDED
    assert ring(queries=3, capacity=5).capacity == 5


@pytest.mark.parametrize("queries", [1, 3])
def test_a_step_of_more_tokens_is_refused(queries):
    module, x = build(grouped(window=WINDOW)), normal(1, 20, 48)
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), 1, 20, Ring(queries)), EAGER)
    decoder.prefill(x[:, :7])
    held = [slab.clone() for slab in decoder.cache.view.slabs]
    with pytest.raises(ValueError, match=f"takes {queries} new tokens at once; got {queries + 1}"):
        decoder.decode(x[:, 7 : 8 + queries])
    with pytest.raises(ValueError, match=f"a ring of queries={queries} takes as many new tokens; got {queries + 1}"):
        decoder.cache.write(random_entries(decoder.cache.view.layout, 1, queries + 1), positions(1, queries + 1, 7))
    assert all(torch.equal(a, b) for a, b in zip(held, decoder.cache.view.slabs, strict=True))
    assert decoder.cache.view.lengths.tolist() == [7]


def test_it_cannot_be_truncated():
    cache = written(1)
    with pytest.raises(ValueError, match="cannot be truncated"):
        cache.truncate(torch.tensor([3], dtype=torch.int32))
    assert cache.view.lengths.tolist() == [10]


@pytest.mark.parametrize("name", [n for n in SPECS if n != "gqa window"])
def test_layouts_without_one_window_are_refused(name):
    layout, policy = SPECS[name].layout(Dtype.BF16), Ring()
    (reason,) = policy.refuses(layout)
    assert "ring needs one window for all streams" in reason
    assert "got every token" in reason
    for call in (policy.slots, lambda of, tokens: policy.allocated_bytes(of, 1, tokens)):
        with pytest.raises(ValueError, match="one window"):
            call(layout, 8)
    with pytest.raises(ValueError, match="one window"):
        policy.allocate(layout, 1, 8, CPU)


def test_two_windows_and_long_steps_are_refused():
    key, value = (Stream(n, 1, 8, Dtype.F64, Window(w)) for n, w in (("key", 4), ("value", 5)))
    (reason,) = Ring().refuses(CacheLayout((key, value)))
    assert "got the last 4 tokens, the last 5 tokens" in reason
    assert Ring().refuses(window_layout()) == Ring(3).refuses(window_layout(), queries=3) == []
    (reason,) = Ring(2).refuses(window_layout(), queries=3)
    assert "steps of 2 new tokens; a step brings 3" in reason
    assert len(Ring().refuses(CacheLayout((key, value)), queries=2)) == 2


@pytest.mark.parametrize("queries", [0, -1, 1.5, True])
def test_queries_are_whole_and_positive(queries):
    with pytest.raises(ValueError, match="queries must be a whole number"):
        Ring(queries)


def test_start_moves_in_place_and_the_oldest_token_goes():
    cache = ring(batch=2)
    start, entries = start_of(cache.view), random_entries(window_layout(), 2, 7)
    seen = []
    for t in range(7):
        cache.write({n: e[:, t : t + 1] for n, e in entries.items()}, positions(2, 1, t))
        seen.append(start.tolist())
    assert start is start_of(cache.view)
    assert seen == [[0, 0]] * 4 + [[1, 1], [2, 2], [3, 3]]
    assert cache.view.positions(100).tolist() == [[3, 4, 5, 6]] * 2
    held = cache.view.gather(Span("key", 0, 8), 100)
    assert torch.equal(held, entries["key"][:, 3:].transpose(1, 2))


def test_writing_again_changes_nothing():
    cache, entries = written(3), squares()
    held = [slab.clone() for slab in cache.view.slabs]
    cache.write({n: e[:, 7:] for n, e in entries.items()}, positions(1, 3, 7))
    assert all(torch.equal(a, b) for a, b in zip(held, cache.view.slabs, strict=True))
    assert (cache.view.lengths.tolist(), start_of(cache.view).tolist()) == ([10], [4])


def test_a_sequence_of_a_batch_is_read_alone():
    layout = window_layout()
    entries = random_entries(layout, 3, 20)
    cache = fill(ring(batch=3), entries, [20, 3, 11])
    q = normal(3, 1, 4, 8)
    together, _ = attend(EAGER, GEOMETRY, cache, q)
    for row in range(3):
        one = cache.view.sequence(row)
        assert start_of(one).tolist() == [[16, 0, 7][row]]
        assert one.slabs[0].data_ptr() == cache.view.slabs[0][row].data_ptr()
        alone, _ = EAGER.plan(GEOMETRY, one, 20).attend(q[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("length", "start"), [(0, 0), (3, 0), (6, 0), (7, 1), (1000, 994)])
def test_noise_stands_where_the_tokens_would(length, start):
    cache = ring(queries=3, batch=2)
    cache.fill_noise(length, seed=1)
    assert (cache.view.lengths.tolist(), start_of(cache.view).tolist()) == ([length] * 2, [start] * 2)
    for name in ("key", "value"):
        stream = cache.view.stream(name)
        assert stream[:, :, : min(length, 6)].isfinite().all()
        assert stream[:, :, length:].isnan().all()
    if length:
        o, _ = attend(EAGER, GEOMETRY, cache, normal(2, 1, 4, 8))
        assert o.isfinite().all()
