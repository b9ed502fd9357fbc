"""The sliders' arithmetic, run by node, against predicted rows and the planner's capacity."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments.launcher import launch
from experiments.planned import KV_DTYPES, TPS, planner
from experiments.planning.capacity import Devices, alternatives, capacity, preset_weight_bytes
from experiments.planning.formats import parse_format
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import read_config
from experiments.records import load
from experiments.telling.html.render import HERE
from tests.builders import CONF, config
from tests.experiments.builders import composed

NODE = shutil.which("node") or shutil.which("nodejs")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node, which runs the page's arithmetic")
GB = 10**9
ROWS = """
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
const { plan, points } = asked;
const [model] = plan.models;
const of = (list, key, name) => list.find((it) => it[key] === name);
console.log(JSON.stringify(points.map((at) =>
  plannedRow(plan, model, of(model.variants, "name", at.attention), of(plan.devices, "id", at.device), at))));
"""


def by_script(plan: dict[str, Any], points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page would show of each point."""
    assert NODE is not None
    code = (HERE / "arithmetic.js").read_text(encoding="utf-8") + ROWS
    asked = json.dumps({"plan": plan, "points": points})
    done = subprocess.run([NODE, "-e", code], input=asked, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def plan_of(model: str) -> dict[str, Any]:
    plan = planner(CONF)([model])
    assert plan is not None
    return plan


def test_only_models_of_ours_have_sliders() -> None:
    assert planner(CONF)(["no such model"]) is None
    assert [m["name"] for m in plan_of("llama-3-8b")["models"]] == ["Llama-3-8B"]


def test_every_attention_and_every_profile_is_there_without_a_torch_or_a_name() -> None:
    plan = plan_of("Llama-3-8B")
    assert {v["name"] for v in plan["models"][0]["variants"]} == set(config("attention"))
    assert {d["id"] for d in plan["devices"]} == {n for n, raw in config("device").items() if "profile" in raw}


def test_bytes_per_token_are_the_published_ones() -> None:
    plan = plan_of("Llama-3-8B")
    ranks = {v["name"]: v["ranks"] for v in plan["models"][0]["variants"]}
    one = {name: sum(b for b, _ in ranks[name]["1"]["streams"]["bf16"]["kept"]) for name in ranks}
    assert one == {"mha": 16384, "gqa": 4096, "mqa": 512, "mla": 1152, "gla": 1152, "gta": 2176}
    assert sum(b for b, _ in ranks["mla"]["8"]["streams"]["fp8_e4m3"]["kept"]) == 656


def test_what_cannot_be_split_says_why() -> None:
    """SmolLM2 has nine query heads."""
    ranks = {v["name"]: v["ranks"] for v in plan_of("SmolLM2-135M")["models"][0]["variants"]}
    assert "9" in ranks["mla"]["2"]["reason"]
    assert "reason" not in ranks["mla"]["1"]


@needs_node
@pytest.mark.parametrize(
    ("model", "device"),
    [
        ("llama3_8b", "h200"),
        *(pytest.param(*it, marks=pytest.mark.slow) for it in (("deepseek_v3", "a100_sxm"), ("llama3_8b", "cpu"))),
    ],
)
def test_times_are_those_of_predicted_rows(
    model: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = config("model")[model]
    shapes = [(a, tp, kv) for a in config("attention") for tp, kv in ((1, "bf16"), (1, "int8"), (8, "fp8_e4m3"))]
    configs = [
        composed(a, model=raw, tp=tp, dtype="bf16", kv_dtype=kv, batch=[1, 32], context=[512, 8192, 131072])
        for a, tp, kv in shapes
    ]
    for one in configs:
        one.values.update(device=config("device")[device], origin="predicted")
    launch(configs, "the command")
    rows = [row for row in load(Path("results")).rows if row.status == "ok"]
    assert len(rows) > 100
    points = [
        {"attention": r.attention, "device": device, "tp": r.tp, "kv": r.kv_dtype, "batch": r.batch}
        | {"context": r.context, "memory": GB}
        for r in rows
    ]
    for row, shown in zip(rows, by_script(plan_of(raw["name"]), points), strict=True):
        assert shown[row.scope] == pytest.approx(row.latency_us_p50, rel=1e-12), row
        assert row.cache_bytes == row.batch * shown["sequence"] / raw["num_hidden_layers"]
        assert row.scope == "attend" or shown["bound"] == row.bound


@needs_node
@pytest.mark.parametrize("tp", TPS)
@pytest.mark.parametrize("memory", [16, 80, 141])
def test_capacity_is_the_planners(tp: int, memory: int) -> None:
    model = read_config(preset("llama3_8b"), "llama3_8b")
    names = {"MHA": "mha", "GQA-8": "gqa", "MQA": "mqa", "MLA 512+64": "mla", "GLA-2": "gla"}
    weights = preset_weight_bytes("llama3_8b")
    wanted = [(made, name, t) for made, name in names.items() for t in (1024, 131072)]
    expected = []
    for made, _, t in wanted:
        fit = (
            capacity(alternatives(model)[made], parse_format("bf16"), Devices(memory * GB, tp, tp), weights, {t: 1})
            if memory * GB * tp > weights
            else None
        )
        expected.append(fit.sequences if fit else 0)
    points = [
        {"attention": name, "device": "h200", "tp": tp, "kv": "bf16", "batch": 1, "context": t, "memory": memory * GB}
        for _, name, t in wanted
    ]
    assert [row["fit"] for row in by_script(plan_of("Llama-3-8B"), points)] == expected


def test_cache_dtypes_are_those_that_a_layout_has() -> None:
    for variant in plan_of("Llama-3-8B")["models"][0]["variants"]:
        assert all("kept" in variant["ranks"]["1"]["streams"][dtype.value] for dtype in KV_DTYPES), variant["name"]
