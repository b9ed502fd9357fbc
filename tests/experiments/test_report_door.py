"""The report door, end to end: what it writes, what it refuses in one line, and what it does without."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.door import Composed
from experiments.records import RECORDS
from experiments.report import report
from tests.blocking import not_installed
from tests.experiments.telling.rows import failed, row, rule, write

ROOT = Path(__file__).parents[2]
RULE = {
    "scope": "step",
    "batch": None,
    "context": None,
    "tie_ratio": 1.05,
    "kernel_limited_below": 0.5,
    "needs": dict.fromkeys(("memory", "ms_per_token", "ms_to_first_token", "other_ms")),
    "question": dict.fromkeys(("text", "model", "device", "tp", "variants", "own")),
    "baseline": "mha",
    "expected": ["mha", "gqa"],
}
CONTEXTS = (1024, 2048)
NO_TORCH = (
    not_installed("torch")
    + """
import pkgutil, importlib
import experiments.telling
for module in pkgutil.walk_packages(experiments.telling.__path__, "experiments.telling."):
    importlib.import_module(module.name)
from experiments.report import main
main()
"""
)


def _door(*arguments: str, cwd: Path, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "experiments.report"]
    clean = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND", "DISPLAY", "HYDRA_FULL_ERROR")}
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _values(runs: Path, out: Path | None) -> Composed:
    return Composed({"runs": str(runs), "out": out and str(out), "quality": None, "report": RULE}, {})


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_e03_without_torch_or_display_the_door_writes_a_report_named_like_the_run(tmp_path: Path) -> None:
    runs = write(tmp_path / "results" / "runs" / "quick", row("mha", us=200.0), row("gqa", us=100.0))
    asked = _door("runs=results/runs/quick", cwd=tmp_path, code=NO_TORCH, MPLBACKEND="TkAgg", DISPLAY="localhost:64.0")
    assert (asked.returncode, asked.stderr) == (0, "")
    written = _files(tmp_path / "results" / "reports" / "quick")
    assert sorted(written) == [
        *(
            f"figures/{n}.{end}"
            for n in ("bandwidth", "cache", "devices", "evidence", "latency", "roofline")
            for end in ("png", "svg")
        ),
        "report.html",
        "report.md",
    ]
    assert "verdict: choose gqa" in asked.stdout
    assert "report: results/reports/quick/report.md" in asked.stdout
    assert "python -m experiments.report runs=results/runs/quick\n" in written["report.md"].decode()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results"]
    assert sorted(_files(runs)) == [f"gqa/{RECORDS}", f"mha/{RECORDS}"]


@pytest.mark.slow
def test_e08_an_ascii_terminal_and_a_folder_in_another_script(tmp_path: Path) -> None:
    write(tmp_path / "mesures", row("mha", device="Xeon ×→≥ é"), row("gqa", device="Xeon ×→≥ é"))
    ascii_only = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    asked = _door("runs=mesures", "out='résultats/キャッシュ'", cwd=tmp_path, **ascii_only)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "×→≥ é" in (tmp_path / "résultats" / "キャッシュ" / "report.md").read_text(encoding="utf-8")
    assert "Xeon ???" in asked.stdout


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes_and_every_figure_the_page_names(tmp_path: Path) -> None:
    rows = [row(a, s, c) for a in ("mha", "zeta") for s in ("attend", "step") for c in (1024, 2048)]
    runs = write(tmp_path / "runs", *rows)
    for out in ("one", "two"):
        assert report([_values(runs, tmp_path / out)], "again") == 0
    written = _files(tmp_path / "one")
    assert written == _files(tmp_path / "two")
    images = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", written["report.md"].decode())
    assert sorted(path for _, path in images) == sorted(name for name in written if name.endswith(".png"))
    assert all("llama-3-8b, batch 1, bf16" in alt for alt, path in images if "devices" not in path)


@pytest.mark.slow
def test_hash_seed_locale_and_place_leave_no_trace(tmp_path: Path) -> None:
    rows = [row(a, s, c, device="Xeon é") for a in ("mha", "zeta", "mla") for s in ("attend", "step") for c in CONTEXTS]
    environments = (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "TZ": "UTC"},
        {"PYTHONHASHSEED": "77", "LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"},
    )
    written = []
    for place, environment in zip(("one", "zwei ü"), environments, strict=True):
        write(tmp_path / place / "runs", *rows)
        asked = _door("runs=runs", "out=out", cwd=tmp_path / place, code=NO_TORCH, **environment)
        assert (asked.returncode, asked.stderr) == (0, "")
        written.append(_files(tmp_path / place / "out"))
    assert written[0] == written[1]


def test_all_refused_and_a_torn_line_still_make_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [failed(a, "step", c, "refused", "no bf16 here") for a, c in (("gqa", 1024), ("mha", 1024), ("mha", 2048))]
    runs = write(tmp_path / "runs", *rows)
    path = runs / "mha" / RECORDS
    path.write_bytes(path.read_bytes()[:-9])
    assert report([_values(runs, tmp_path / "out")], "again") == 0
    text, printed = (tmp_path / "out" / "report.md").read_text(encoding="utf-8"), capsys.readouterr().out
    assert "2 rows read = 2 refused." in text
    assert text.count("| refused | no bf16 here |") == 2
    assert "verdict: none" in printed
    assert f"warning: mha/{RECORDS}:2: skipped a line" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "runs must name the folder of a run"),
        (("runs=nowhere",), "there is no folder nowhere: run `python -m experiments.run study=quick` first"),
        (("runs=empty",), "empty has none"),
        (("runs=torn",), "at least one readable record"),
        (("runs=good", "report.tie_ratio=0.5"), "report.tie_ratio must be >= 1"),
        (("runs=good", "report.batch=3"), "one of [1]; got 3"),
        (("runs=good", "out=good"), "also holds mha"),
    ],
)
def test_bad_input_is_one_error_with_nothing_written(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "good", row("mha"))
    write(tmp_path / "torn", row("mha"))
    (tmp_path / "torn" / "mha" / RECORDS).write_text("{", encoding="utf-8")
    before = _files(tmp_path)
    given = dict(a.split("=", 1) for a in arguments)
    changed = {k.removeprefix("report."): float(v) for k, v in given.items() if k.startswith("report.")}
    paths = {k: str(tmp_path / given[k]) if k in given else None for k in ("runs", "out")}
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        report([Composed({**paths, "quality": None, "report": {**RULE, **changed}}, {})], "again")
    assert said in str(error.value).replace(f"{tmp_path}/", "")
    assert "\n" not in str(error.value)
    assert _files(tmp_path) == before


@pytest.mark.parametrize("arguments", [("runs=nowhere",), ("runs=nowhere", "report=unknown"), ("rnus=x",)])
def test_the_door_turns_bad_input_into_one_line_and_exit_code_two(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    asked = _door(*arguments, cwd=tmp_path)
    assert asked.returncode == 2
    assert len(asked.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_shipped_rule_is_complete() -> None:
    import yaml

    shipped = yaml.safe_load((ROOT / "conf" / "report" / "default.yaml").read_text(encoding="utf-8"))
    assert shipped.pop("evidence") == "all"
    assert rule(**shipped).expected == ("mha", "gqa", "mqa", "mla")


def test_help_does_not_wait_for_pandas_or_figures(tmp_path: Path) -> None:
    loaded = (
        "import sys, experiments.report; print(sorted({'pandas', 'matplotlib', 'torch', 'jinja2'} & set(sys.modules)))"
    )
    assert _door(cwd=tmp_path, code=loaded).stdout == "[]\n"
