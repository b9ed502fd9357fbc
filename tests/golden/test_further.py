"""Files that do something otherwise than the models of the golden table."""

import pytest

from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.hf.read import read_config
from tests.golden.further import FURTHER, LONG

BF16 = parse_format("bf16")


@pytest.mark.parametrize("name", FURTHER)
def test_elements_and_bytes_at_128k(name):
    expected = FURTHER[name]
    model = read_config(expected.config, name)
    assert model.elements_per_token == expected.elements
    assert model.kind == expected.kind
    assert four.exact(model, BF16, LONG) == 2 * expected.elements_at_long


def test_the_indexer_of_minimax_m3_is_told_apart_and_stays_whole():
    model = read_config(FURTHER["MiniMax-M3"].config, "MiniMax-M3")
    assert four.parts(model, BF16) == {"key": 61_440, "value": 61_440, "index": 14_592}
    assert four.per_device(model, BF16, 1, 4).bytes == (61_440 + 61_440) // 4 + 14_592


def test_sliding_layers_of_step_may_have_query_heads_of_their_own():
    model = read_config(FURTHER["Step-3.5-Flash"].config, "Step-3.5-Flash")
    assert {(layer.role, layer.num_q_heads) for layer in model.layers} == {("full", 64), ("window", 96)}


def test_a_resaved_step_names_its_layers_instead():
    own = {"attention_other_setting": None, "per_layer_config": {"1": {"num_attention_heads": 32}}}
    model = read_config({**FURTHER["Step-3.5-Flash"].config, **own}, "resaved")
    assert [layer.num_q_heads for layer in model.layers[:3]] == [64, 32, 64]
