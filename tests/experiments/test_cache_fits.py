"""What fits, as a person asks the cache door."""

import csv
import json

import pytest

from experiments.cache import cache
from tests.golden.models import MODELS

H100S = ["memory=80GB", "devices=8", "reserve=5GB", "weights=140GB"]


def capacities(tmp_path, *arguments):
    assert cache([*arguments, f"out={tmp_path / 'table.csv'}"]) == 0
    with (tmp_path / "table-capacity.csv").open() as file:
        return list(csv.DictReader(file))


def by_variant(found, column, **where):
    return {r["variant"]: r[column] for r in found if all(r[name] == str(value) for name, value in where.items())}


def test_llama3_70b_on_eight_devices(tmp_path, capsys):
    """What is left of a device, 52.5 GB, against 8192 tokens of one rank; a latent and one head are whole on each."""
    found = capacities(tmp_path, "config=llama3_70b", *H100S)
    room = 80 * 10**9 - 5 * 10**9 - 140 * 10**9 // 8
    per_token = {"as it is": 40_960, "MHA": 327_680, "GQA-8": 40_960, "MQA": 40_960, "MLA 512+64": 80 * 1152}
    for name, size in per_token.items():
        (row,) = [r for r in found if r["variant"] == name]
        assert row["device_bytes_per_sequence"] == str(8192 * size), name
        assert row["sequences"] == str(room // (8192 * size)), name
        assert row["cached_tokens"] == str(room // (8192 * size) * 8192), name
        assert row["longest_context"] == str(room // size), name
    assert by_variant(found, "batch_beyond_weights")["as it is"] == "53"
    assert float(by_variant(found, "times_own")["MLA 512+64"]) == pytest.approx(76 / 171)
    assert "cache > weights from batch" in capsys.readouterr().out


def test_weights_alone_tell_from_which_batch_on_the_cache_outweighs_them(capsys):
    assert cache(["config=llama3_70b", "weights=140GB"]) == 0
    said = capsys.readouterr().out.split("What fits")[1]
    batches = {line.split("  ")[1]: line.split()[-1] for line in said.splitlines() if line.startswith("llama3_70b")}
    assert batches == {
        "as it is": "53",
        "MHA": "7",
        "GQA-8": "53",
        "MQA": "418",
        "GTA": "99",
        "GLA-2": "186",
        "MLA 512+64": "186",
    }
    assert "sequences" not in said


def test_a_mix_of_lengths_is_one_more_row(tmp_path):
    found = capacities(tmp_path, "config=llama3_70b", *H100S, "mix=[2k:3,32k:1]", "tp=[4,8]")
    assert {(r["tokens"], r["tp"]) for r in found} == {(t, tp) for t in ("8192", "2k:3 32k:1") for tp in "48"}
    mean = (3 * 2048 + 32768) * 40_960 // 4
    sizes = by_variant(found, "device_bytes_per_sequence", tokens="2k:3 32k:1", tp=8)
    assert sizes["as it is"] == str(mean)


def test_what_does_not_fit_is_a_row_with_a_reason(tmp_path, capsys):
    found = capacities(tmp_path, "config=llama3_70b", *H100S, "tp=[1,3,8]")
    reasons = {r["tp"]: r["reason"] for r in found if r["variant"] == "as it is"}
    assert reasons["1"].startswith("weights must fit beside the reserve; got 140000000000 B")
    assert reasons["3"].startswith("tp must divide num_q_heads")
    assert reasons["8"] == ""
    said = capsys.readouterr().out
    assert "llama3_70b as it is, MHA, GQA-8, MQA, GTA, GLA-2, MLA 512+64, tp 1: weights must fit" in said
    assert said.count("weights must fit") == 1


def test_a_preset_brings_its_weights_and_each_config_its_own(tmp_path):
    found = capacities(tmp_path, "config=[llama3_8b,llama2_7b]", "memory=80GiB")
    assert {r["weight_bytes"] for r in found} == {str(2 * 8_030_261_248), str(2 * 6_738_415_616)}
    found = capacities(tmp_path, "config=[llama3_8b,llama2_7b]", "memory=80GiB", "weights=[16GB,13.5GB]")
    assert {(r["file"], r["weight_bytes"]) for r in found} == {
        ("llama3_8b", "16000000000"),
        ("llama2_7b", "13500000000"),
    }


def test_no_alternatives_to_what_is_no_attention_with_heads(tmp_path, capsys):
    found = capacities(tmp_path, "config=deepseek_v3", "weights=671GB")
    assert [r["variant"] for r in found] == ["as it is"]
    assert "deepseek_v3: other attention can take the place of keys and values per head only" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["memory=80"], "memory must be whole bytes with a unit"),
        (["memory=0.3B"], "memory must be whole bytes with a unit"),
        (["memory=0GB"], "memory must be whole bytes with a unit"),
        (["memory=80GB", "reserve=80GB"], "reserve must be from 0 to below memory"),
        (["memory=80GB", "devices=0"], "devices must be a whole number >= 1"),
        (["devices=8"], "devices needs memory= or weights= beside it"),
        (["memory=80GB", "weights=[1GB,2GB]"], "weights must be one for each config; got 2 for 1"),
        (["memory=80GB", "mix=8k"], "mix must be tokens:share"),
        (["memory=80GB", "mix=8k:0"], "mix must be tokens:share"),
        (["memory=80GB", "mix=8k:1,8192:2"], "mix must name each length once"),
    ],
)
def test_mistakes_are_told(arguments, why):
    with pytest.raises(ValueError, match=why):
        cache(["config=llama3_70b", *arguments])


def test_a_file_or_a_folder_says_nothing_of_weights(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps(MODELS["Llama-3.1-8B"].config))
    with pytest.raises(ValueError, match="weights must be given, since .*own.json' is no preset"):
        cache([f"config={tmp_path / 'own.json'}", "memory=80GB"])
    with pytest.raises(ValueError, match="memory is for config=, since every model has weights of its own"):
        cache([f"models={tmp_path}", "memory=80GB"])
