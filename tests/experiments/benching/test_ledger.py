"""The file holds every result with its verdict, the ceilings and the device, and is written whole or not at all."""

import json
from pathlib import Path

import pytest

from experiments.benching.ledger import Ledger, line, write
from experiments.benching.points import BenchPoint, Result
from experiments.benching.race import Latency
from experiments.benching.sizes import SMOKE
from tests.experiments.builders import bench, ceilings, device
from variants.contract.dtype import Dtype

MET, MISSED = Result("a", "roofline_fraction", 0.9, 0.8), Result("a", "nonlinearity", 0.2, 0.15)


def ledger(*results: Result, reuse_bytes: int = 10**9) -> Ledger:
    made = Ledger(started_at="2026-01-01T00:00:00+00:00")
    made.add(results)
    made.latencies.append(Latency("a", "numba_split_kv", 12.5, 24, reuse_bytes))
    return made


def content(made: Ledger) -> dict[str, object]:
    on = bench(device(), roofs=ceilings(cold=31.5))
    on.matmuls = {Dtype.F32: 0.2, Dtype.BF16: 1.5}
    return made.as_json(on, SMOKE, threads=2, command="python -m experiments.bench")


def test_results_stand_beside_device_and_ceilings(capsys: pytest.CaptureFixture[str]) -> None:
    found = content(ledger(MET, MISSED))
    assert found["results"] == [
        {"point": "a", "metric": "roofline_fraction", "value": 0.9, "target": 0.8, "reason": None, "ok": True},
        {"point": "a", "metric": "nonlinearity", "value": 0.2, "target": 0.15, "reason": None, "ok": False},
    ]
    named = ("device", "cores", "threads", "last_level_cache", "read_ceiling_gbps", "read_kernel", "commit", "cold")
    assert {name: found[name] for name in named} == {
        "device": "pretended",
        "cores": 2,
        "threads": 2,
        "last_level_cache": 2**16,
        "read_ceiling_gbps": 31.5,
        "read_kernel": "sum",
        "commit": "commit",
        "cold": True,
    }
    assert found["matmul_ceiling_tflops"] == {"fp32": 0.2, "bf16": 1.5}
    assert found["started_at"] == "2026-01-01T00:00:00+00:00"
    assert str(found["versions"]).startswith("torch 0")
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_one_warm_latency_makes_the_file_say_so() -> None:
    assert content(ledger(reuse_bytes=100))["cold"] is False


def test_all_ok_is_all() -> None:
    assert ledger(MET).all_ok
    assert not ledger(MET, MISSED).all_ok


def test_a_failed_point_has_a_row_for_each_of_its_metrics() -> None:
    made = Ledger()
    made.failed(BenchPoint("attend", "gqa8", Dtype.F32, 1024), "MemoryError: 4 GiB")
    assert [(r.metric, r.value, r.target, r.reason) for r in made.results] == [
        ("roofline_fraction", None, 0.60, "MemoryError: 4 GiB"),
        ("speedup_vs_best_torch", None, 1.5, "MemoryError: 4 GiB"),
        ("speedup_vs_enable_gqa", None, 5.0, "MemoryError: 4 GiB"),
    ]


def test_lines_say_which_way_a_target_holds() -> None:
    assert line(MET).split() == ["a", "roofline_fraction", "0.9", ">=", "0.8", "ok"]
    assert line(MISSED).split() == ["a", "nonlinearity", "0.2", "<=", "0.15", "missed"]
    assert line(Result("a", "pool_ratio", None, 1.15, "no room")).split()[2:] == ["-", "<=", "1.15", "no", "room"]


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "results" / "bench.json"
    write(path, content(ledger(MET)))
    assert json.loads(path.read_text())["results"][0]["ok"] is True
    assert [p.name for p in path.parent.iterdir()] == ["bench.json"]


def test_what_cannot_be_written_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write(path, {"older": True})
    with pytest.raises(ValueError, match="JSON"):
        write(path, {"results": ["x" * 100_000, float("nan")]})
    assert json.loads(path.read_text()) == {"older": True}
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]
