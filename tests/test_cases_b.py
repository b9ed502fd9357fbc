"""Public bug reports on numerics (CASES.md, section b), one test per case that touches what exists, for every backend.

A backend that refuses a case says why in the skip. B06, B09, B17, B25 and B26 also have tests beside their code
(test_rope, contract/test_geometry, contract/test_specs, attention/test_reference); B27 is in attention/test_forms.
"""

import hashlib
import math

import pytest
import torch

from tests.builders import (
    BACKENDS,
    DTYPES,
    SPECS,
    STORAGES,
    allocate,
    attend,
    build,
    dense_geometry,
    dense_layout,
    each_backend,
    each_spec,
    each_storage,
    fill,
    grouped,
    latent,
    normal,
    planned,
    random_entries,
    request,
    textbook,
)
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.rotary import Rotary
from variants.decode import Decoder

POINTS = {name: SPECS[name] for name in ("mha", "gqa", "mqa", "mla absorbed", "mla expanded")}
each_point = pytest.mark.parametrize("spec", POINTS.values(), ids=POINTS.keys())


def counting(spec, values, dtype=Dtype.F32, lengths=None, storage=STORAGES["contiguous"]):
    """A cache in which every value column of token j is values[j], and a query for which all scores are equal."""
    layout, geometry = spec.layout(dtype), spec.geometry()
    batch = len(lengths) if lengths else 2
    entries = {s.name: torch.zeros(batch, len(values), s.heads, s.width) for s in layout.streams}
    for span in geometry.value:
        entries[span.stream] += torch.as_tensor(values)[None, :, None, None]
    cache = fill(allocate(layout, batch, len(values), storage), entries, lengths or [len(values)] * batch)
    return geometry, cache, lambda queries: flat_query(geometry, batch, queries, dtype)


def flat_query(geometry, batch, queries, dtype):
    """Any query where the keys are a stream of their own, all zero; a zero one where they share it with the values."""
    shape = (batch, queries, geometry.num_q_heads, geometry.d_qk)
    return torch.zeros(shape, dtype=DTYPES[dtype]) if geometry.shares_state else normal(*shape, dtype=DTYPES[dtype])


@each_backend
@each_point
@pytest.mark.parametrize(("dtype", "tolerance"), [(Dtype.F32, 1e-6), (Dtype.BF16, 1e-2)])
@pytest.mark.parametrize(
    ("queries", "length", "expected"), [(1, 8, [3.5]), (2, 5, [1.5, 2.0]), (5, 5, [0, 0.5, 1, 1.5, 2])]
)
def test_b01_causal_mask_is_aligned_bottom_right(spec, backend, dtype, tolerance, queries, length, expected):
    geometry, cache, query = counting(spec, [float(j) for j in range(length)], dtype)
    o, _ = attend(backend, geometry, cache, query(queries))
    for i, value in enumerate(expected):
        torch.testing.assert_close(o[:, i].float(), torch.full_like(o[:, i].float(), value), rtol=0, atol=tolerance)


@each_backend
def test_b04_softmax_scale_of_deepseek_v3_weighs_two_keys(backend):
    """Raw products differ by 10: the larger key gets 0.794512 (0.602685 with 576^-0.5)."""
    scale = 192**-0.5 * (0.1 * math.log(40) + 1) ** 2
    spec = latent(4, 512, 128, 64, 128, rotary=Rotary("interleaved", 64))
    geometry = AttentionGeometry(4, 1, spec.geometry().key, spec.geometry().value, scale)
    entries = {"latent": torch.zeros(1, 2, 1, 512), "rope": torch.zeros(1, 2, 1, 64)}
    entries["latent"][0, 0, 0, 0] = 1.0  # value of the first key in column 0; the second is 0 there
    entries["latent"][0, 1, 0, 1] = 1.0
    entries["rope"][0, 0, 0, 5] = 2.0
    q = torch.zeros(1, 1, 4, 576)
    q[..., 512 + 5] = 5.0
    o, _ = attend(backend, geometry, fill(allocate(spec.layout(Dtype.F32), 1, 2), entries, [2]), q)
    assert o[0, 0, :, 0].tolist() == pytest.approx([0.794512] * 4, abs=1e-6)
    assert o[0, 0, :, 1].tolist() == pytest.approx([1 - 0.794512] * 4, abs=1e-6)


@each_backend
@each_storage
@pytest.mark.parametrize(("q_heads", "kv_heads", "expected"), [(4, 2, [0, 0, 1, 1]), (6, 3, [0, 0, 1, 1, 2, 2])])
@pytest.mark.parametrize("queries", [1, 2])
def test_b08_query_head_h_reads_kv_head_h_over_group(backend, storage, q_heads, kv_heads, expected, queries):
    layout = dense_layout(kv_heads, 16, 16, Dtype.F32)
    entries = random_entries(layout, 1, 5)
    entries["value"].copy_(torch.arange(float(kv_heads))[None, None, :, None])
    cache = fill(allocate(layout, 1, 5, storage), entries, [5])
    q = normal(1, queries, q_heads, 16, dtype=torch.float32)
    o, _ = attend(backend, dense_geometry(q_heads, kv_heads, 16, 16), cache, q)
    for i in range(queries):
        assert o[0, i, :, 3].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("q", "kv"), [(7, 2), (4, 8), (4, 0)])
def test_b09_heads_that_do_not_divide_never_become_a_module(q, kv):
    with pytest.raises(ValueError, match=f"num_q_heads={q}, num_kv_heads={kv}"):
        grouped(q, kv)


@each_backend
@each_point
def test_b11_a_row_with_no_visible_key_is_zero(spec, backend):
    geometry, cache, query = counting(spec, [1.0, 2.0, 3.0], lengths=[0, 3])
    o, _ = attend(backend, geometry, cache, query(1))
    assert not o[0].any()
    torch.testing.assert_close(o[1], torch.full_like(o[1], 2.0))


@each_backend
@each_point
def test_b11_a_query_before_the_first_key_is_zero(spec, backend):
    """Three queries over one cached token: the first two stand before the sequence."""
    geometry, cache, query = counting(spec, [1.0, 2.0, 3.0], lengths=[1, 3])
    o, lse = attend(backend, geometry, cache, query(3))
    assert not o[0, :2].any()
    torch.testing.assert_close(o[0, 2], torch.full_like(o[0, 2], 1.0))
    assert lse is None or lse[0, :2].eq(-torch.inf).all()


@each_backend
@each_storage
@each_point
def test_b12_empty_sequences_give_zero_and_minus_infinity(spec, backend, storage):
    lengths = [0, 5, 0, 17]
    layout, geometry = spec.layout(Dtype.F32), spec.geometry()
    entries = random_entries(layout, 4, 17)
    cache = fill(allocate(layout, 4, 17, storage), entries, lengths)
    q = normal(4, 1, geometry.num_q_heads, geometry.d_qk, dtype=torch.float32)
    o, lse = attend(backend, geometry, cache, q)
    exact, exact_lse = textbook(q, entries, geometry, lengths)
    assert not o[[0, 2]].any()
    torch.testing.assert_close(o.double(), exact, rtol=1e-5, atol=1e-5)
    assert lse is not None
    assert lse[[0, 2]].eq(-torch.inf).all()
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)


@each_backend
def test_b12_only_empty_sequences(backend):
    spec = grouped()
    cache = allocate(spec.layout(Dtype.F32), 2, 4)
    q = normal(2, 1, 6, 16, dtype=torch.float32)
    o, lse = planned(backend, spec.geometry(), cache, 4, ragged=True).attend(q)
    assert not o.any()
    assert lse is None or lse.eq(-torch.inf).all()


@each_backend
@each_storage
def test_b14_a_window_counts_the_current_token(backend, storage):
    """K = 0, V[j] = j^2, window 4, query at 9: keys 6 to 9 -> 57.5 (51.0 with five keys, 49.667 without its own)."""
    layout = CacheLayout(tuple(Stream(n, 2, 16, Dtype.F32, Window(4)) for n in ("key", "value")))
    entries = {"key": torch.zeros(1, 10, 2, 16), "value": torch.arange(10.0).square()[None, :, None, None]}
    entries["value"] = entries["value"].expand(1, 10, 2, 16)
    cache = fill(allocate(layout, 1, 10, storage), entries, [10])
    geometry, q = dense_geometry(4, 2, 16, 16), normal(1, 10, 4, 16, dtype=torch.float32)
    decoded, _ = attend(backend, geometry, cache, q[:, 9:])
    torch.testing.assert_close(decoded, torch.full_like(decoded, 57.5))
    assert layout.bytes(10) == 4 * layout.bytes(1)
    prefilled, _ = attend(backend, geometry, cache, q)  # a ring has not ten tokens at once: see storage/test_ring
    torch.testing.assert_close(prefilled[:, 9:], decoded)
    by_hand = [sum(j * j for j in range(max(0, i - 3), i + 1)) / min(4, i + 1) for i in range(10)]
    assert prefilled[0, :, 0, 0].tolist() == pytest.approx(by_hand)


@each_storage
@each_spec
def test_b18_the_first_decode_write_follows_the_prompt(spec, storage):
    """Prompt 9, three steps: slots 0 to 11 written, slot 12 untouched, length 12."""
    module, x = build(spec, torch.float32), normal(2, 12, spec.hidden_size, dtype=torch.float32)
    cache = allocate(spec.layout(Dtype.F32), 2, 13, storage)
    if cache.view.start is not None:
        pytest.skip("a ring writes slot 12 modulo its slots: see storage/test_ring")
    decoder = Decoder(module, cache, BACKENDS["eager"])
    outputs = [decoder.prefill(x[:, :9]), *(decoder.decode(x[:, t : t + 1]) for t in (9, 10, 11))]
    assert cache.view.lengths.tolist() == [12, 12]
    for s in cache.view.layout.streams:
        stream = cache.view.gather(Span(s.name, 0, s.width), 13)
        assert stream[:, :, :12].isfinite().all()
        assert stream[:, :, 12].isnan().all()
    torch.testing.assert_close(torch.cat(outputs, dim=1), module.reference(x), rtol=1e-5, atol=1e-5)


@each_backend
@each_storage
@pytest.mark.parametrize("name", ["mha", "gqa", "mqa"])
def test_b19_the_new_token_counts(backend, storage, name):
    """K = 0, V[j] = j, through whole steps: after a prefill of 3 the last row is 1.0, the next step 1.5."""
    spec = SPECS[name]
    module = build(spec)
    cache = allocate(spec.layout(Dtype.F64), 1, 4, storage)
    decoder = Decoder(CountingModule(module), cache, backend)
    tokens = torch.arange(4.0, dtype=torch.float64)[None, :, None].expand(1, 4, spec.hidden_size)
    if reasons := backend.refuses(CountingModule(module).request(cache)):
        pytest.skip("; ".join(reasons))
    prefilled, decoded = decoder.prefill(tokens[:, :3]), decoder.decode(tokens[:, 3:])
    assert prefilled[0, :, 0].tolist() == pytest.approx([0.0, 0.5, 1.0])
    assert decoded[0, 0, 0].item() == pytest.approx(1.5)


class CountingModule:
    """A module whose keys are zero and whose values, and outputs, are its input's first number."""

    def __init__(self, module):
        self.spec, self.dtype, self.module = module.spec, module.dtype, module
        self.reference, self.unpack = module.reference, module.unpack

    def request(self, cache):
        return request(self.spec.geometry(), cache.view.layout, cache.policy)

    def query(self, x, position):
        return self.module.query(x, position)

    def entry(self, x, position):
        entries = self.module.entry(x, position)
        return {"key": entries["key"] * 0, "value": x[:, :, None, :1].expand_as(entries["value"])}

    def output(self, o):
        return o[:, :, 0, :1].expand(*o.shape[:2], self.spec.hidden_size)

    def as_form(self, spec):
        return self


@each_backend
@each_storage
@each_point
@pytest.mark.parametrize("lengths", [[3, 17, 64], [64, 17, 3], [17, 64, 3]])
def test_b21_a_ragged_row_equals_the_sequence_alone(spec, backend, storage, lengths):
    geometry, cache, query = counting(spec, [float(j) for j in range(64)], lengths=lengths, storage=storage)
    o, _ = attend(backend, geometry, cache, query(1))
    for b, length in enumerate(lengths):
        assert o[b].mean().item() == pytest.approx((length - 1) / 2, abs=1e-4)


@each_backend
@each_storage
@each_point
def test_b21_ragged_random_rows_equal_the_sequence_alone(spec, backend, storage):
    lengths = [17, 3, 64]
    layout, geometry = spec.layout(Dtype.F32), spec.geometry()
    entries = random_entries(layout, 3, 64)
    q = normal(3, 1, geometry.num_q_heads, geometry.d_qk, dtype=torch.float32)
    together, _ = attend(backend, geometry, fill(allocate(layout, 3, 64, storage), entries, lengths), q)
    for b, length in enumerate(lengths):
        one = {name: e[b : b + 1, :length] for name, e in entries.items()}
        alone, _ = attend(backend, geometry, fill(allocate(layout, 1, length, storage), one, [length]), q[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=0, atol=1e-6)


@each_backend
@pytest.mark.parametrize("large", [32.0, 256.0])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_b22_scores_beyond_fp16_stay_finite(backend, large, kv_heads):
    """d 128, q = k = 256: the product is 8 388 608, scaled 741 455, both far above fp16's 65 504."""
    layout = dense_layout(kv_heads, 128, 128, Dtype.F16)
    value = torch.tensor([1.0, 3.0], dtype=torch.float16)[None, :, None, None].expand(1, 2, kv_heads, 128)
    entries = {"key": torch.full((1, 2, kv_heads, 128), large, dtype=torch.float16), "value": value}
    cache = fill(allocate(layout, 1, 2), entries, [2])
    q = torch.full((1, 1, 4, 128), large, dtype=torch.float16)
    o, lse = attend(backend, dense_geometry(4, kv_heads, 128, 128), cache, q)
    assert o.tolist() == torch.full_like(o, 2.0).tolist()
    assert lse is None or lse.isfinite().all()


@each_backend
@each_point
def test_b22_mixed_signs_beyond_fp16_pick_the_larger_key(spec, backend):
    """One key scores +huge, the other -huge; the output is the first value, not NaN."""
    layout, geometry = spec.layout(Dtype.F16), spec.geometry()
    entries = {s.name: torch.full((1, 2, s.heads, s.width), 200.0, dtype=torch.float16) for s in layout.streams}
    for entry in entries.values():
        entry[:, 1].neg_()
    q = torch.full((1, 1, geometry.num_q_heads, geometry.d_qk), 200.0, dtype=torch.float16)
    o, _ = attend(backend, geometry, fill(allocate(layout, 1, 2), entries, [2]), q)
    assert o.tolist() == torch.full_like(o, 200.0).tolist()


@each_spec
def test_b23_lengths_change_in_place_and_are_never_held_across_a_write(spec):
    """The view's lengths are one tensor that append changes (documented); a batch still equals its sequences alone."""
    module, x = build(spec), normal(2, 9, spec.hidden_size)
    decoder = Decoder(module, allocate(spec.layout(Dtype.F64), 2, 9), BACKENDS["eager"])
    decoder.prefill(x[:, :7])
    decoder.cache.truncate(torch.tensor([5, 7], dtype=torch.int32))
    view, before = decoder.cache.view.lengths, decoder.cache.view.lengths.clone()
    together = torch.cat([decoder.decode(x[:, 7:8]), decoder.decode(x[:, 8:9])], dim=1)
    assert before.tolist() == [5, 7]
    assert view.tolist() == [7, 9]
    for b, length in enumerate((5, 7)):
        alone = Decoder(module, allocate(spec.layout(Dtype.F64), 1, 9), BACKENDS["eager"])
        alone.prefill(x[b : b + 1, :length])
        steps = torch.cat([alone.decode(x[b : b + 1, t : t + 1]) for t in (7, 8)], dim=1)
        torch.testing.assert_close(together[b : b + 1], steps, rtol=0, atol=1e-10)


@each_backend
def test_b25_the_models_own_scale_is_used(backend):
    """Gemma-3-27B: 168^-0.5; raw products that differ by 10 give 0.683849 (0.707626 with 128^-0.5)."""
    layout = dense_layout(1, 128, 128, Dtype.F32)
    entries = {n: torch.zeros(1, 2, 1, 128) for n in ("key", "value")}
    entries["key"][0, 0, 0, 7] = 10.0
    entries["value"][0, 0] = 1.0
    q = torch.zeros(1, 1, 2, 128)
    q[..., 7] = 1.0
    cache = fill(allocate(layout, 1, 2), entries, [2])
    o, _ = attend(backend, dense_geometry(2, 1, 128, 128, scale=168**-0.5), cache, q)
    assert o.flatten()[0].item() == pytest.approx(0.683849, abs=1e-6)


@each_storage
@each_spec
def test_b26_bytes_of_a_written_slot_never_change(spec, storage):
    module, x = build(spec), normal(1, 6, spec.hidden_size)
    cache = allocate(spec.layout(Dtype.F64), 1, 6, storage)
    decoder = Decoder(module, cache, BACKENDS["eager"])
    hashes = set()
    for t in range(6):
        decoder.decode(x[:, t : t + 1])
        rows = (cache.view.gather(Span(s.name, 0, s.width), 1) for s in cache.view.layout.streams)
        first = b"".join(row[0, :, 0].numpy().tobytes() for row in rows)
        hashes.add(hashlib.sha256(first).hexdigest())
    assert len(hashes) == 1


@each_backend
@each_point
@pytest.mark.parametrize("dtype", [Dtype.F16, Dtype.BF16], ids=lambda d: d.value)
@pytest.mark.parametrize("length", [256, 257, 2048, 2049, 4096, 65_536])
def test_b31_weights_sum_to_one_at_any_length(spec, backend, dtype, length):
    """K = 0, V = 1: a 16-bit sum would stick at 256 (bf16) or 2048 (fp16) and give 16 or 2 instead of 1."""
    geometry, cache, query = counting(spec, torch.ones(length), dtype, lengths=[length])
    o, _ = attend(backend, geometry, cache, query(1))
    assert (o.float() - 1).abs().max().item() <= 0.01
