"""``python -m experiments.cache`` as a person uses it."""

import csv
import json
import subprocess
import sys

import pytest

from experiments.cache import cache
from experiments.planning.table import COLUMNS
from tests.blocking import not_installed
from tests.builders import ROOT
from tests.golden.models import MODELS

WANTED = (
    *("file", "kind", "elements_per_token", "bytes_per_token", "marginal_bytes_per_token", "const_state_bytes"),
    *("tokens", "tp", "tp_mode", "kv_dtype", "total_bytes", "reserved_bytes", "device_bytes", "status", "reason"),
)
HEAVY = ("torch", "transformers", "hydra", "omegaconf", "numpy", "pandas", "yaml", "matplotlib")


@pytest.fixture
def folder(tmp_path):
    for name in ("Llama-3.1-8B", "gpt-oss-20b", "DeepSeek-V3"):
        (tmp_path / f"{name}.json").write_text(json.dumps(MODELS[name].config))
    return tmp_path


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_one_row_per_file_length_tp_and_dtype(folder):
    out = folder / "out" / "table.csv"
    assert cache([f"models={folder}", "tokens=[8k,128k]", "tp=[1,2]", "kv_dtype=[bf16,fp8]", f"out={out}"]) == 0
    rows = table(out)
    assert len(rows) == 3 * 2 * 2 * 2
    assert set(WANTED) <= set(rows[0])
    picked = {(r["file"], r["tokens"], r["tp"], r["kv_dtype"]): r for r in rows}
    row = picked["gpt-oss-20b.json", "8192", "2", "bf16"]
    assert [row[name] for name in WANTED] == [
        *("gpt-oss-20b.json", "GQA+SWA", "24576", "49152", "24576", "0", "8192", "2", "sharded", "bf16"),
        *("204472320", "402653184", "102236160", "ok", ""),
    ]


def test_json_holds_the_same_rows_with_sources(folder):
    out = folder / "table.json"
    config = folder / "Llama-3.1-8B.json"
    assert cache([f"config={config}", f"out={out}"]) == 0
    (row,) = json.loads(out.read_text())
    assert tuple(row) == COLUMNS
    assert (row["total_bytes"], row["tokens"], row["tp"], row["kv_dtype"]) == (2**30, 8192, 1, "bf16")
    assert "num_key_value_heads=8 from config num_key_value_heads" in row["sources"]


def test_each_number_says_where_it_came_from(folder, capsys):
    """Of one file after the other: stated, the class's own number, or made from others."""
    bare = {name: MODELS["Llama-3.1-8B"].config[name] for name in ("model_type", "num_key_value_heads")}
    (folder / "Llama-3.1-8B.json").write_text(json.dumps(bare))
    assert cache([f"models={folder}", "sources=yes"]) == 0
    said = capsys.readouterr().out.partition("Where the numbers of Llama-3.1-8B.json came from:")[2]
    ours, _, others = said.partition("\n\n")
    assert [line.strip() for line in ours.strip().splitlines()] == [
        "num_hidden_layers=32 class default of llama",
        "num_attention_heads=32 class default of llama",
        "num_key_value_heads=8 from config num_key_value_heads",
        "hidden_size=4096 class default of llama",
        "head_dim=128 derived: hidden_size / num_attention_heads",
    ]
    assert "layer_types=['sliding_attention', " in others


def test_a_bad_file_in_a_folder_is_a_row_with_a_reason(folder, capsys):
    (folder / "bad.json").write_text('{"model_type": "gpt2", "n_layer": 2, "n_head": -1}')
    out = folder / "out" / "table.csv"
    assert cache([f"models={folder}", f"out={out}"]) == 3
    by_file = {row["file"]: row for row in table(out)}
    assert by_file["bad.json"]["status"] == "error"
    assert by_file["bad.json"]["reason"].startswith("n_head must be a whole number")
    assert by_file["DeepSeek-V3.json"]["status"] == "ok"
    assert "bad.json: error: " in capsys.readouterr().out


def test_a_split_that_cannot_be_is_a_refused_row(folder, capsys):
    out = folder / "table.csv"
    assert cache([f"config={folder / 'Llama-3.1-8B.json'}", "tp=12", f"out={out}"]) == 0
    (row,) = table(out)
    assert (row["status"], row["device_bytes"], row["total_bytes"]) == ("refused", "", str(2**30))
    assert row["reason"] == "tp must divide num_q_heads; got num_q_heads=32, num_kv_heads=8, tp=12"


def test_a_preset_and_a_folder_with_a_config_are_configs(folder, capsys):
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODELS["DeepSeek-V3"].config))
    assert cache(["config=llama3_70b"]) == 0
    assert "2684354560" in capsys.readouterr().out
    assert cache([f"config={folder / 'model'}", "tokens=1", "form=latent"]) == 0
    assert "70272" in capsys.readouterr().out
    assert cache([f"models={folder}", "tokens=1"]) == 0
    assert "model/config.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "give config=FILE or models=FOLDER"),
        (["config=a", "models=b"], "and not both"),
        (["config=nothing"], "config must be a file or a preset .*llama3_70b"),
        (["models=nowhere"], "models must be a folder"),
        (["tokens"], "arguments must be key=value; got 'tokens'"),
        (["size=1"], "key must be one of config, models"),
        (["config=llama3_70b", "tokens=0"], "tokens must be a whole number >= 1"),
        (["config=llama3_70b", f"tokens={'9' * 400}"], "tokens must be at most 1099511627776; got 9{40}$"),
        (["config=llama3_70b", "page=2M", "tp=2000000000000"], "tp must be at most 1099511627776"),
        (["config=tests"], "config must be a folder with a config.json; got 'tests'"),
        (["config=llama3_70b", "tokens=[8k,"], "tokens must be a value or a list"),
        (["config=llama3_70b", "tokens=[8k,,16k]"], "tokens must have no empty items"),
        (["config=llama3_70b", "tp=1.5k"], "tp must be a whole number"),
        (["config=llama3_70b", "kv_dtype=foo8"], "kv_dtype must be one of bf16"),
        (["config=llama3_70b", "kv_dtype=int4_g96"], "valid groups: 16, 32, 64, 128"),
        (["config=llama3_70b", "sources=1"], "sources must be yes or no; got '1'"),
        (["config=llama3_70b", "form=absorbed"], "form must be one of latent, expanded"),
        (["config=llama3_70b", "form=expanded"], "form expanded is for MLA models"),
        (["config=llama3_70b", "out=table.txt"], "out must end in .csv or .json"),
        (["config=llama3_70b", "tp=1", "tp=2"], "tp must be given once"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, why):
    with pytest.raises(ValueError, match=why) as refused:
        cache(arguments)
    assert "\n" not in str(refused.value)


def test_the_command_needs_nothing_heavy_and_exits_with_2_on_a_bad_file(folder):
    (folder / "bad.json").write_text("{}")
    code = not_installed(*HEAVY) + "from experiments.cache import main\nmain()"

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )

    good = run(
        f"config={folder / 'DeepSeek-V3.json'}", "tokens=[8k,128k]", "memory=80GB", "devices=16", "weights=671GB"
    )
    assert (good.returncode, good.stderr) == (0, "")
    assert "9210691584" in good.stdout
    bad = run(f"config={folder / 'bad.json'}")
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: ")
    assert len(bad.stderr.splitlines()) == 1
    assert "model_type" in bad.stderr


def test_help_says_what_there_is(capsys):
    assert cache(["--help"]) == 0
    assert "config=FILE" in capsys.readouterr().out
