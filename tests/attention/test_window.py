"""Grouped attention over the last tokens only."""

import pytest
import torch

from tests.builders import BACKENDS, STORAGES, allocate, build, each_storage, grouped, normal, tiny_model
from variants.attention.grouped.spec import GroupedSpec
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Window
from variants.decode import Decoder, Refused

TOKENS = 11
EAGER = BACKENDS["eager"]


@each_storage
@pytest.mark.parametrize("kv_heads", [6, 2, 1])
@pytest.mark.parametrize("window", [1, 2, 3, 10, 11, 100])
def test_prefill_and_decode_equal_the_reference(window, kv_heads, storage):
    module, x = build(grouped(6, kv_heads, window=window)), normal(2, TOKENS, 48)
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), 2, TOKENS, storage), EAGER)
    outputs = [decoder.prefill(x[:, :5]), *(decoder.decode(x[:, t : t + 2]) for t in range(5, TOKENS, 2))]
    torch.testing.assert_close(torch.cat(outputs, dim=1), module.reference(x), rtol=0, atol=1e-10)


def test_a_window_of_one_is_the_tokens_own_value():
    module, x = build(grouped(6, 2, window=1)), normal(1, 5, 48)
    value = module.v_proj(x).unflatten(-1, (2, 16)).repeat_interleave(3, dim=2)
    torch.testing.assert_close(module.reference(x), module.output(value), rtol=0, atol=1e-12)


def test_a_window_that_holds_all_tokens_hides_none():
    x = normal(2, TOKENS, 48)
    whole, last, wide = (build(grouped(window=w)).reference(x) for w in (None, TOKENS - 1, TOKENS))
    assert torch.equal(wide, whole)
    assert torch.equal(last[:, :-1], whole[:, :-1])
    assert (last[:, -1] - whole[:, -1]).abs().max() > 1e-3


def test_tokens_before_the_window_change_nothing():
    module, x = build(grouped(window=4)), normal(1, TOKENS, 48)
    changed = x.clone()
    changed[:, :3] += 1
    before, after = module.reference(x), module.reference(changed)
    assert torch.equal(before[:, 6:], after[:, 6:])  # token 6 sees 3 to 6
    assert (before[:, 5] - after[:, 5]).abs().max() > 1e-3


def test_layout_of_a_window():
    assert {s.keep for s in grouped(window=4).layout(Dtype.BF16).streams} == {Window(4)}
    assert {s.keep for s in grouped().layout(Dtype.BF16).streams} == {All()}
    assert grouped(window=4).layout(Dtype.BF16).bytes(100) == 4 * grouped().layout(Dtype.BF16).bytes(1)
    assert grouped(8, 4, window=4).shard(2).window == 4
    assert GroupedSpec.from_model(tiny_model(), window=4).window == 4


@pytest.mark.parametrize("window", [0, -4, 2.5, "4k", True])
def test_a_window_is_whole_and_positive(window):
    with pytest.raises(ValueError, match=f"window must be a whole number >= 1; got {window!r}"):
        grouped(window=window)


def test_sdpa_says_that_it_cannot():
    module = build(grouped(window=4))
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), 1, 5, STORAGES["contiguous"]), BACKENDS["sdpa"])
    with pytest.raises(Refused, match="windowed"):
        decoder.prefill(normal(1, 5, 48))
