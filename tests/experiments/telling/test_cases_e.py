"""Public bug reports on plots and reports (CASES.md, section e), one test per case.

More of them stand beside what they are about: E03 and E08 in test_report_door, E14 in test_words and comparing,
E16 and E17 in comparing, E19 in test_cases_a.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import psutil
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from experiments.record import Measurement
from experiments.records import SeriesLog
from experiments.telling.decision import decide_all
from experiments.telling.figures import bandwidth, cache, latency, roofline
from experiments.telling.figures.style import styles
from experiments.telling.plots import draw_all
from experiments.telling.tell import tell
from tests.builders import ROOT
from tests.experiments.telling.drawing import Draw, all_points, colour, crosses, points
from tests.experiments.telling.rendering import text_of
from tests.experiments.telling.rows import failed, pages, row, rule, table

CONTEXTS = (1024, 8192, 131072)
RUNS = (99.2, 99.2, 10.0, 99.2, 10.0)  # mean 63.52, a time that was never measured


def test_e01_nothing_above_zero_is_lost_to_a_zero_on_a_log_axis(draw: Draw) -> None:
    values = [1.0, 2.0, 3.0, 4.0, 0.0, 6.0, 7.0, 8.0]
    rows = [row("mha", "attend", 1024 << i, bandwidth_gbps=v, key=f"k{i}") for i, v in enumerate(values)]
    figure, drawn = draw(bandwidth, pages(*rows)[0])
    attend = figure.axes[0]
    shown = points(attend, colour("mha"))
    (left, right), (low, high) = attend.get_xlim(), attend.get_ylim()
    assert sorted(y for _, y in shown) == [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    assert all(left < x < right and low < y < high for x, y in shown)
    assert any(
        "1 of 8 points of mha not shown (<= 0 on a log axis): attend at 16k (row k4)" in r for r in drawn.remarks
    )


@pytest.mark.parametrize("module", [cache, latency, bandwidth])
def test_e01_a_context_of_zero_is_left_out_and_named(draw: Draw, module: Any) -> None:
    figure, drawn = draw(module, pages(row(context=0, cache_bytes=0, key="zero"), row(context=1024))[0])
    assert [x for x, _ in points(figure.axes[-1], colour("mha"))] == [1024]
    assert any("1 of 2" in r and "zero" in r for r in drawn.remarks)


def test_e01_a_latency_of_zero_is_no_record() -> None:
    with pytest.raises(ValueError, match="latency_us_p50 must be > 0"):
        row(us=0.0)


def test_e04_runs_of_one_point_are_drawn_apart_and_never_averaged(draw: Draw) -> None:
    """Our choice of the case's two: no statistic over runs at all; the caption says what one row's own is."""
    figure, drawn = draw(latency, pages(*(row(us=us, key=f"k{i}") for i, us in enumerate(RUNS)))[0])
    step = figure.axes[1]
    assert sorted(y for _, y in points(step, colour("mha"))) == sorted(RUNS)
    assert {"mha", "mha #2", "mha #5"} <= {t.get_text() for t in step.texts}
    assert "Median per point, n = 30 samples in 5 rounds" in " ".join(figure.get_supxlabel().split("\n"))
    assert "63.5" not in drawn.alt


def test_e04_a_report_says_that_a_point_was_repeated_and_lists_every_run() -> None:
    text = text_of(*(row(us=us, key=f"k{i}") for i, us in enumerate(RUNS)), row("gqa"))
    assert "4 rows repeat a point under another key and are drawn apart (e.g. k1, k2, k3, k4)" in text
    lines = [line for line in text.splitlines() if line.startswith("| mha | 1k | 16,384 |")]
    assert [f"{us:.2f} [" in line for us, line in zip(RUNS, lines, strict=True)] == [True] * 5
    assert "63.5" not in text


def test_e04_runs_that_differ_in_a_setting_are_never_one_series() -> None:
    split = pages(*(row(storage="paged", page_size=p, us=u) for p, u in ((16, 1.0), (64, 9.0))))
    assert [list(page.rows["latency_us_p50"]) for page in split] == [[1.0], [9.0]]


@pytest.mark.slow
def test_e05_ten_thousand_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[int] = []
    save = Figure.savefig

    def counted(figure: Figure, *args: Any, **given: Any) -> None:
        labels.append(len(figure.findobj(Text)))
        save(figure, *args, **given)

    monkeypatch.setattr(Figure, "savefig", counted)
    rows = [row(f"v{i}", "attend", 64 * n, us=n + i, key=f"{i}-{n}") for n in range(1, 1001) for i in range(10)]
    SeriesLog(tmp_path / "runs" / "all").append(*rows)
    text = tell(tmp_path / "runs", tmp_path / "out", rule(), "again").page.read_text(encoding="utf-8")
    assert "10000 rows read = 10000 ok." in text
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 5e6
    assert len(labels) >= 8
    assert max(labels) < 2000


def test_e06_a_single_point_can_be_seen_and_no_figure_stays_open(tmp_path: Path) -> None:
    draw_all(pages(row("mla", "step", 1024)), tmp_path)
    wanted = np.array([int(colour("mla")[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    for name in ("latency", "cache", "bandwidth", "roofline"):
        pixels = imread(tmp_path / f"{name}.png")[..., :3]
        assert int((np.abs(pixels - wanted).max(axis=-1) < 0.02).sum()) > 40, name
        assert pixels.shape[1] >= 6 * 150  # 6 inches at 150 dpi or more
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".png"] * 4 + [".svg"] * 4
    assert plt.get_fignums() == []


def test_e06_one_point_beside_a_line_of_five_is_drawn_and_named(draw: Draw) -> None:
    figure, _ = draw(latency, pages(row("mla"), *(row("gqa", context=1024 << i) for i in range(5)))[0])
    step = figure.axes[1]
    assert len(points(step, colour("mla"))) == 1
    assert len(points(step, colour("gqa"))) == 5
    assert {"mla", "gqa"} <= {t.get_text() for t in step.texts}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_e07_no_record_holds_a_number_that_json_has_not(number: float) -> None:
    with pytest.raises(ValueError, match="bandwidth_gbps must be finite"):
        row(bandwidth_gbps=number)


def test_e07_what_was_not_measured_is_null_in_the_records_and_na_in_the_report() -> None:
    bare: dict[str, Any] = dict.fromkeys(("bandwidth_gbps", "latency_us_ci_low", "latency_us_ci_high"))
    crashed = failed("mla", "step", 1024, "crash", "signal 9")
    text = text_of(row("mha", samples=1, **bare), crashed, row("gqa"))
    assert "100.0 [no CI] n=1 | n/a | n/a / 80 %" in text
    assert re.findall(r"(?i)\b(nan|inf|infinity|null)\b", text) == []
    assert json.loads(crashed.to_json(), parse_constant=pytest.fail)["latency_us_p50"] is None


@pytest.mark.slow
def test_e10_sixty_figures_leave_nothing_open_and_little_behind(tmp_path: Path) -> None:
    """In a process of their own: one that has run a thousand other tests grows by what those have left in pieces."""
    script = f"from tests.experiments.telling.test_cases_e import sixty; sixty({str(tmp_path)!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    grown, left_open = told.stdout.split()
    assert int(grown) < 50e6
    assert left_open == "0"
    assert len(list(tmp_path.glob("*.png"))) == 60


def sixty(folder: str) -> None:
    """Draw them and print by how many bytes the last 48 let the process grow, and how many are open."""
    split = pages(*(row(a, s, c, seed=n) for n in range(15) for a in ("mha", "mla") for s, c in SMALL))
    draw_all(split[:3], Path(folder))  # fonts and caches are there
    before = psutil.Process().memory_info().rss
    draw_all(split[3:], Path(folder))
    print(psutil.Process().memory_info().rss - before, len(plt.get_fignums()))


SMALL = (("attend", 1024), ("step", 2048))


def test_e11_twenty_four_series_have_looks_of_their_own_and_keep_them() -> None:
    names = [f"{a} (window {w})" for a in ("mha", "gqa", "mqa", "mla") for w in range(6)]
    looks = styles(names)
    assert len({(s.colour, s.marker, s.dash) for s in looks.values()}) == 24
    assert [looks[n].colour for n in names] == [styles([n.split()[0]])[n.split()[0]].colour for n in names]


def test_e11_a_page_of_two_variants_draws_them_as_the_page_of_all_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []

    def keep(page: Any, look_of: dict[str, Any], *_: Any) -> None:
        drawn.append({label: look_of[label] for label in page.variants})

    for module in (bandwidth, cache, latency, roofline):
        monkeypatch.setattr(module, "draw", keep)
    every = [row(f"v{i}", batch=1) for i in range(24)]
    draw_all(pages(*every, row("v3", batch=8), row("v17", batch=8)), tmp_path)
    whole, pair = drawn[0], drawn[-1]
    assert (len(whole), sorted(pair)) == (24, ["v17", "v3"])
    assert pair == {label: whole[label] for label in pair}


def _with_a_failure() -> list[Measurement]:
    """MLA failed at 128k, MQA never ran."""
    rows = [row(a, "step", c, us=c / 10) for a in ("mha", "gqa", "mla") for c in CONTEXTS if (a, c) != ("mla", 131072)]
    return [*rows, failed("mla", "step", 131072, "oom", "no memory")]


def test_e12_a_failed_point_is_a_mark_on_the_axis_and_one_never_run_is_a_gap(draw: Draw) -> None:
    figure, drawn = draw(latency, pages(*_with_a_failure())[0])
    step = figure.axes[1]
    assert len(all_points(step)) == 8
    assert crosses(step) == [131072]
    assert min(y for _, y in all_points(step)) > 0
    assert any("tried, no value" in r for r in drawn.remarks)


def test_e12_the_report_lists_what_failed_and_what_never_ran_and_ranks_the_rest() -> None:
    text = text_of(*_with_a_failure(), expected=("mha", "gqa", "mqa", "mla"), context="128k")
    assert "has the shortest step of 2 compared" in text
    assert "| 1 | mla | step | 128k | oom | no memory |" in text
    assert "Never run, though the rule expects them: mqa." in text
    assert "8 of 9" in text


def test_e13_rows_without_a_page_size_are_a_group_of_their_own() -> None:
    rows = [row(context=c, page_size=p, storage="s") for c in CONTEXTS for p in (None, 16)]
    split = pages(*rows)
    assert sorted(str(p.values["page_size"]) for p in split) == ["16", "None"]
    assert sum(len(p.rows) for p in split) == len(rows) == 6
    text = text_of(*rows)
    assert "6 rows read = 6 ok." in text
    assert "Setting 2: " in text


NUMBERS = dict.fromkeys(("threads", "seed", "layers", "page_size", "window", "num_q_heads", "num_kv_heads", "d_qk"), 7)
WORDS = dict.fromkeys(("order", "form", "kind", "host", "versions", "device", "tp_mode", "kernel", "commit"), "é")


@pytest.mark.parametrize(("column", "known"), {**NUMBERS, **WORDS, "temperature": "warm", "scale": 0.5}.items())
def test_e13_no_column_that_is_null_in_a_row_loses_the_row(column: str, known: Any) -> None:
    given: list[dict[str, Any]] = [{column: value, "context": c} for c in (1024, 2048) for value in (None, known)]
    rows = [row(**it) for it in given]
    assert len(table(*rows).table) == 4
    assert sorted(key for page in pages(*rows) for key in page.rows["key"]) == sorted(r.key for r in rows)


def test_e17_a_page_draws_only_its_own_machine(draw: Draw) -> None:
    rows = [row("mha", "step", c, us=u, device=d) for d, u in (("A", 10.0), ("B", 90.0)) for c in (1024, 2048)]
    for page, us in zip(pages(*rows), (10.0, 90.0), strict=True):
        figure, _ = draw(latency, page)
        assert {y for _, y in points(figure.axes[1], colour("mha"))} == {us}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"device": "Xeon", "threads": 2}, {"device": "NVIDIA H200", "threads": None}),
        ({"threads": 1}, {"threads": 8}),
        ({"versions": "torch 2.13.0"}, {"versions": "torch 2.9.0"}),
    ],
)
def test_e17_a_report_of_two_machines_names_both_and_divides_neither_by_the_other(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    times = ((ours, "mha", 100.0), (ours, "gqa", 50.0), (theirs, "mha", 7.0), (theirs, "gqa", 10.0))
    rows = [row(a, us=us, **machine) for machine, a, us in times]
    decisions = decide_all(pages(*rows), rule())
    assert sorted(d.verdict for d in decisions) == ["choose gqa", "choose mha"]
    text = text_of(*rows)
    environment = text.split("### Environment")[1].split("###")[0]
    assert [str(v) in environment for v in (*ours.values(), *theirs.values()) if v] == [True] * len(
        [v for v in (*ours.values(), *theirs.values()) if v]
    )
    assert "They are not compared with each other" in text
    assert [said for said in ("14.3x", "5.00x", "7.14x", "10.0x") if said in text] == []
