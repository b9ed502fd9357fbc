"""The bench door: what it runs, writes and returns, and what it refuses in one line."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import bench as door
from experiments.benching import compare, points
from experiments.measuring import bench as ceilings_of
from experiments.measuring import device as devices
from experiments.measuring import timing
from tests.experiments.builders import Answer, Scripted, Street, ceilings, device
from variants.contract.dtype import Dtype


@pytest.fixture
def knock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """The door of a machine with small caches whose clock always says 100 us."""
    monkeypatch.setattr(devices, "find_device", lambda kind: device())
    monkeypatch.setattr(timing, "make_timer", lambda *_: Scripted(itertools.repeat(100.0)))
    monkeypatch.setattr(ceilings_of, "measure_ceilings", lambda *_: ceilings(cold=30.0))
    monkeypatch.setattr(ceilings_of, "measure_matmul", lambda *_: 1.0)
    street = Street(tmp_path, monkeypatch, capfd)
    return lambda *arguments: street.knock(door.main, *arguments)


def test_a_missed_target_is_three_and_the_file_says_which(knock: Callable[..., Answer], tmp_path: Path) -> None:
    answer = knock("--smoke", "--only", "attend/mqa/fp32/*", "--out", "found/bench.json", "--threads", "1")
    assert answer.code == 3
    found = json.loads((tmp_path / "found" / "bench.json").read_text())
    assert [(r["point"], r["metric"], r["ok"]) for r in found["results"]] == [
        ("attend/mqa/fp32/256", "speedup_vs_best_torch", True),  # equally fast is fast enough there
        ("attend/mqa/fp32/256", "roofline_fraction", False),
    ]
    assert found["threads"] == 1
    assert found["command"] == (
        "python -m experiments.bench --smoke --only 'attend/mqa/fp32/*' --out found/bench.json --threads 1"
    )
    heading, *lines = answer.out.splitlines()
    assert heading.split() == ["point", "metric", "value", "target", "ok"]
    assert [text.split()[1] for text in lines] == ["speedup_vs_best_torch", "roofline_fraction"]


def test_all_targets_met_is_zero(knock: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(points.ATTEND, ("mqa", Dtype.F32), (0.0, 1.0))
    assert knock("--smoke", "--only", "attend/mqa/fp32/*", "--threads", "1").code == 0


def test_a_smoke_run_writes_nothing_unasked(knock: Callable[..., Answer], tmp_path: Path) -> None:
    assert knock("--smoke", "--only", "pool/mla/*", "--threads", "1").code == 0
    assert list(tmp_path.iterdir()) == []


def test_context_is_that_of_attend(knock: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(compare, "compare", lambda asked, *_: seen.extend(p.name for p in asked))
    assert knock("--context", "32k", "--only", "attend/mha/*", "--threads", "1").code == 0
    assert seen == ["attend/mha/fp32/32k", "attend/mha/bf16/32k"]
    assert Path("results", "bench.json").is_file()


def test_an_interrupted_run_leaves_the_older_file(
    knock: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    older = tmp_path / "results" / "bench.json"
    older.parent.mkdir()
    older.write_text("older")
    monkeypatch.setattr(compare, "compare", stop)
    assert knock().code == 130
    assert [(p.name, p.read_text()) for p in older.parent.iterdir()] == [("bench.json", "older")]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--only", "attend/gqa4/*"], "no point is called 'attend/gqa4/*'; there are attend/mha/fp32/16k"),
        (["--context", "many"], "--context must be a whole number"),
        (["--loud"], "unrecognized arguments: --loud (see --help)"),
        (["--threads", "two"], "argument --threads: invalid int value: 'two' (see --help)"),
        (["--threads", "0"], "--threads must be a whole number >= 1; got 0"),
    ],
)
def test_bad_input_is_one_line(knock: Callable[..., Answer], arguments: list[str], refusal: str) -> None:
    assert knock(*arguments).refusal.startswith(refusal)


def test_steps_need_transformers_and_the_rest_does_not(
    knock: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "find_spec", lambda name: None)
    assert "transformers, which is not installed" in knock().refusal
    monkeypatch.setattr(compare, "compare", lambda *_: None)
    assert knock("--only", "attend/*,growth/*,pool/*").code == 0
