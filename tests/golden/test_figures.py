"""Cache bytes of real models against published figures."""

import csv
import json
from dataclasses import asdict

import pytest

from tests.builders import ROOT, grouped, latent, presets, tied
from tests.golden import figures
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.contract.dtype import Dtype
from variants.contract.rotary import Rotary

SHARED = ROOT.parent / "shared" / "golden"
PRESETS = presets()
PLAIN_KINDS = ("MHA", "GQA", "MQA", "MLA")


def own_layout(model):
    """The cache layout a model really has."""
    if model.kv_lora_rank:
        return LatentSpec.from_model(model).layout(Dtype.BF16)
    return GroupedSpec.from_model(model, model.kv_heads).layout(Dtype.BF16)


def mla(heads, **changes):
    return latent(heads, 512, 128, 64, 128, rotary=Rotary("interleaved", 64), **changes)


def csv_rows():
    path = SHARED / "models.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


@pytest.mark.parametrize(("name", "expected"), figures.BYTES_PER_TOKEN.items())
def test_bytes_per_token(name, expected):
    model = PRESETS[name]
    assert model.num_hidden_layers * own_layout(model).bytes_per_token == expected


def test_every_preset_has_a_figure():
    assert set(PRESETS) <= set(figures.BYTES_PER_TOKEN), "add the new model's published figure to figures.py"


def test_llama3_70b_at_8192_tokens():
    assert 80 * own_layout(PRESETS["llama3_70b"]).bytes(8192) == figures.LLAMA3_70B_AT_8K == 5 * 2**29


@pytest.mark.parametrize(("name", "per_rank"), figures.GTA_GLA_PAPER.items())
def test_gta_gla_paper_bytes_per_device(name, per_rank):
    spec = {
        "MHA": grouped(16, 16, 128),
        "GQA-4": grouped(16, 4, 128),
        "MQA": grouped(16, 1, 128),
        "MLA": mla(16),
        "GTA-4": tied(16, 4, 128, 64),
        "GLA-2": mla(16, num_latent_heads=2),
    }[name]
    assert tuple(spec.shard(tp).layout(Dtype.BF16).bytes_per_token for tp in (1, 2, 4)) == per_rank


@pytest.mark.parametrize(("layers", "heads", "mha", "mla_elements"), figures.DEEPSEEK_V2_ABLATION.values())
def test_deepseek_v2_elements_per_token(layers, heads, mha, mla_elements):
    elements = [
        layers * sum(s.heads * s.width for s in spec.layout(Dtype.BF16).streams)
        for spec in (grouped(heads, heads, 128), mla(heads))
    ]
    assert elements == [mha, mla_elements]


def test_deepseek_v2_table_1_says_what_each_kind_caches():
    """Elements per token of l layers: 2 n_h d_h l, 2 n_g d_h l, 2 d_h l, (d_c + d_h^R) l."""
    n_h, n_g, d_h, d_c, d_r = 32, 4, 128, 512, 64
    formulas = {grouped(n_h, n_h, d_h): 2 * n_h * d_h, grouped(n_h, n_g, d_h): 2 * n_g * d_h}
    formulas |= {grouped(n_h, 1, d_h): 2 * d_h, mla(n_h): d_c + d_r}
    for spec, elements in formulas.items():
        assert sum(s.heads * s.width for s in spec.layout(Dtype.BF16).streams) == elements


def test_deepseek_v2_mla_equals_gqa_with_two_and_a_quarter_groups():
    assert mla(128).layout(Dtype.BF16).bytes_per_token == 2.25 * grouped(128, 1, 128).layout(Dtype.BF16).bytes_per_token


@pytest.mark.parametrize(("layers", "heads", "kv_heads", "gib"), figures.JAMBA_PAPER_GIB.values())
def test_jamba_paper_gib_at_256k(layers, heads, kv_heads, gib):
    assert layers * grouped(heads, kv_heads, 128).layout(Dtype.BF16).bytes(256 * 1024) == gib * 2**30


@pytest.mark.skipif(not SHARED.exists(), reason="../shared/golden is not here")
@pytest.mark.parametrize(("row_name", "name"), figures.MODELS_CSV.items())
def test_presets_equal_the_golden_rows(row_name, name):
    (row,) = (r for r in csv_rows() if r["name"] == row_name)
    model = PRESETS[name]
    layout, layers = own_layout(model), model.num_hidden_layers
    assert layers * sum(s.heads * s.width for s in layout.streams) == int(row["elements_per_token"])
    assert layers * layout.bytes_per_token == int(row["bf16_bytes_per_token"])
    for column, tokens in (("bytes_8k", 8), ("bytes_32k", 32), ("bytes_128k", 128)):
        assert layers * layout.bytes(tokens * 1024) == int(row[column])


@pytest.mark.skipif(not SHARED.exists(), reason="../shared/golden is not here")
@pytest.mark.parametrize(("row_name", "name"), figures.MODELS_CSV.items())
def test_presets_equal_the_real_config_files(row_name, name):
    """Every field that the model's config.json states: sizes, biases, norms, rotary base and scaling."""
    real = json.loads((SHARED / "configs" / f"{row_name}.json").read_text())
    ours = asdict(PRESETS[name])
    shared = set(ours) & set(real) - figures.OTHER_RELEASE.get(name, set())
    assert {"hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps"} <= shared
    assert {field: ours[field] for field in shared} == {field: real[field] for field in shared}


@pytest.mark.skipif(not SHARED.exists(), reason="../shared/golden is not here")
@pytest.mark.parametrize("row", [r for r in csv_rows() if r["attention"] in PLAIN_KINDS], ids=lambda r: r["name"])
def test_golden_rows_of_these_variants(row):
    """Every model of the table whose layers are all alike, from its columns through the specs."""
    layers, heads = int(row["layers"]), int(row["heads"])
    if row["attention"] == "MLA":
        rank, rope = int(row["latent_dim"]), int(row["rope_dim"])
        layout = latent(heads, rank, 128, rope, 128, rotary=Rotary("interleaved", rope)).layout(Dtype.BF16)
    else:
        layout = grouped(heads, int(row["kv_heads"]), int(row["head_dim_k"])).layout(Dtype.BF16)
    assert layers * layout.bytes_per_token == int(row["bf16_bytes_per_token"])
    assert layers * layout.bytes(128 * 1024) == int(row["bytes_128k"])
