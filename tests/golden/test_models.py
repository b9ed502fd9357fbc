"""Every model of our own table, every row of the shared one, and every figure that somebody published."""

import csv
import json
from fractions import Fraction

import pytest

from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.hf.fields import Undecided
from experiments.planning.hf.read import read_config
from tests.builders import ROOT
from tests.golden.figures import BYTES_PER_TOKEN, DEEPSEEK_V2_ABLATION, GTA_GLA_PAPER, JAMBA_PAPER_GIB, REPORTED
from tests.golden.further import FURTHER
from tests.golden.models import MODELS

SHARED = ROOT.parent / "shared" / "golden"
BF16 = parse_format("bf16")
GIB = 2**30
LENGTHS = (8192, 32768, 131072)
# What LlamaConfig says where llava's text_config is silent; test_classes.py holds it to the class itself
LLAMA = {"llama": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}}

each_model = pytest.mark.parametrize("name", MODELS)
shared_only = pytest.mark.skipif(not SHARED.exists(), reason="../shared/golden is not here")


def read(name):
    return read_config(MODELS[name].config, name)


def shared_rows():
    path = SHARED / "models.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def shared_model(row):
    raw = json.loads((SHARED / row["file"]).read_text())
    try:
        return read_config(raw, row["name"])
    except Undecided:
        assert row["name"] == "llava-1.5-7b", "only llava leaves its sizes to class defaults"
        return read_config(raw, row["name"], defaults=LLAMA)


@each_model
def test_bytes_of_our_own_table(name):
    model, expected = read(name), MODELS[name]
    assert model.elements_per_token == expected.elements
    assert four.rate(model, BF16) == expected.per_token
    assert four.marginal(model, BF16, None) == expected.marginal
    assert tuple(four.exact(model, BF16, tokens) for tokens in LENGTHS) == expected.at
    assert four.state_bytes(model) == expected.state
    assert model.kind == expected.kind


@shared_only
@pytest.mark.parametrize("row", shared_rows(), ids=lambda row: row["name"])
def test_every_row_of_the_shared_table(row):
    model = shared_model(row)
    assert model.elements_per_token == Fraction(row["elements_per_token"])
    assert four.rate(model, BF16) == Fraction(row["bf16_bytes_per_token"])
    assert four.marginal(model, BF16, None) == Fraction(row["bf16_bytes_per_token_marginal_long_ctx"])
    stated = (row["bytes_8k"], row["bytes_32k"], row["bytes_128k"])
    assert tuple(four.exact(model, BF16, tokens) for tokens in LENGTHS) == tuple(map(int, stated))
    if row["const_state_bytes"]:
        assert four.state_bytes(model) == int(row["const_state_bytes"])


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_presets_are_read_like_files(name):
    from experiments.planning.hf.presets import preset

    assert four.rate(read_config(preset(name), name), BF16) == BYTES_PER_TOKEN[name]


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("DeepSeek-V3", 70.272), ("Qwen2-72B", 327.680), ("Llama-3.1-405B", 516.096)],
)
def test_deepseek_v3_hardware_paper_table_1(name, kilobytes):
    assert float(four.rate(read(name), BF16)) == 1000 * kilobytes


@pytest.mark.parametrize(("layers", "heads", "mha", "mla"), DEEPSEEK_V2_ABLATION.values())
def test_deepseek_v2_ablation(layers, heads, mha, mla):
    sizes = {"num_hidden_layers": layers, "hidden_size": heads * 128, "num_attention_heads": heads}
    plain = read_config({"model_type": "llama", **sizes}, "MHA")
    latent = {"model_type": "deepseek_v2", **sizes, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert plain.elements_per_token == mha
    assert read_config(latent, "MLA").elements_per_token == mla


def test_llama3_70b_is_two_and_a_half_gib_at_8k_and_forty_at_128k():
    model = read("Llama-3.1-70B")
    assert four.exact(model, BF16, 8192) == 2_684_354_560 == 2.5 * GIB
    assert round(four.exact(model, BF16, 8192) / 10**9, 3) == 2.684
    assert four.exact(model, BF16, 131072) == 40 * GIB


@pytest.mark.parametrize(("layers", "heads", "kv", "gib"), JAMBA_PAPER_GIB.values())
def test_jamba_paper_at_256k(layers, heads, kv, gib):
    sizes = {"num_hidden_layers": layers, "hidden_size": heads * 128, "num_attention_heads": heads}
    model = read_config({"model_type": "llama", **sizes, "num_key_value_heads": kv}, "row")
    assert four.exact(model, BF16, 256 * 1024) == gib * GIB


def test_jamba_mini_and_large_at_256k():
    assert four.exact(read("Jamba-v0.1"), BF16, 256 * 1024) == 4 * GIB
    large = {**MODELS["Jamba-v0.1"].config, "num_hidden_layers": 72, "hidden_size": 8192, "num_attention_heads": 64}
    assert four.exact(read_config(large, "Jamba-Large"), BF16, 256 * 1024) == 9 * GIB


@pytest.mark.parametrize(("name", "kv"), [("MHA", 16), ("GQA-4", 4), ("MQA", 1)])
def test_gta_gla_paper_grouped_rows_per_device(name, kv):
    model = read_config(
        {
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_key_value_heads": kv,
        },
        name,
    )
    assert tuple(four.per_device(model, BF16, 1, tp).bytes for tp in (1, 2, 4)) == GTA_GLA_PAPER[name]


def test_gta_gla_paper_mla_row_per_device():
    config = {**MODELS["DeepSeek-V3"].config, "num_hidden_layers": 1, "num_attention_heads": 16}
    model = read_config(config, "MLA")
    assert tuple(four.per_device(model, BF16, 1, tp).bytes for tp in (1, 2, 4)) == GTA_GLA_PAPER["MLA"]


def test_deepseek_v32_in_bf16_and_as_deployed():
    model = read("DeepSeek-V3.2")
    assert four.rate(model, BF16) == 85_888
    assert round(four.exact(model, BF16, 2**20) / GIB, 2) == 83.88
    assert four.rate(model, parse_format("fp8_ds_mla")) == 61 * (656 + 132) == 48_068


@pytest.mark.parametrize(
    ("name", "gib", "with_windows"), [("DeepSeek-V4-Pro", 9.617, 9.625), ("DeepSeek-V4-Flash", 6.719, 6.724)]
)
def test_deepseek_v4_at_a_million_tokens(name, gib, with_windows):
    model = read(name)
    assert round(float(2**20 * four.rate(model, BF16)) / GIB, 3) == gib
    assert round(four.exact(model, BF16, 2**20) / GIB, 3) == with_windows


def test_flash_mla_token_is_656_bytes_per_layer():
    """512 codes of one byte, 4 scales of four, 64 rotary columns of two."""
    parts = four.parts(read("DeepSeek-V3"), parse_format("fp8_ds_mla"))
    assert parts == {"latent": 61 * 512, "latent_scale": 61 * 4 * 4, "rope": 61 * 64 * 2}
    assert sum(parts.values()) == 61 * 656


@pytest.mark.parametrize("figure", REPORTED)
def test_what_engines_report(figure):
    name, kv, tokens, tp, expected = REPORTED[figure]
    config = (FURTHER | MODELS)[name].config
    assert four.per_device(read_config(config, name), parse_format(kv), tokens, tp).bytes == expected
