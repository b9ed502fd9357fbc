"""What the cache saves and where a step's time goes: told only where rows say so, with the numbers of the rows."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.record import Measurement
from experiments.telling.decision import decide_all
from experiments.telling.figures import canvas
from experiments.telling.figures import parts as parts_figure
from experiments.telling.figures import saving as saving_figure
from experiments.telling.figures.canvas import Drawn
from experiments.telling.figures.style import styles
from experiments.telling.gallery import sections as gallery
from experiments.telling.lines import growths, lines
from experiments.telling.page import Facts, render
from experiments.telling.parts import parts, taken_apart, weights_and_cache
from experiments.telling.saving import saving, told
from experiments.telling.scene import Scene
from experiments.telling.section import Section
from experiments.telling.setting import settings
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING
from tests.experiments.telling.rows import MATMUL_TFLOPS, READ_GBPS, failed, pages, row, rule, table

CONTEXTS = (128, 256, 512, 1024)
WEIGHTS = 1_000_000


def counted(scope: str, context: int) -> dict[str, Any]:
    """Bytes and FLOPs that are memory-bound in a step and compute-bound without a cache."""
    if scope == "step":
        return {"io_bytes": WEIGHTS + 1000 * context, "flops": WEIGHTS}
    return {"io_bytes": WEIGHTS, "flops": WEIGHTS * context + 2000 * context**2}


def floor(scope: str, context: int) -> float:
    """Microseconds by the ceilings of the rows."""
    work = counted(scope, context)
    return float(max(work["io_bytes"] / READ_GBPS / 1e3, work["flops"] / MATMUL_TFLOPS / 1e6))


def timed(scope: str, context: int, over: float = 2.0, fixed: float = 0.0, attention: str = "mha") -> Measurement:
    """A row that takes ``over`` times its floor and ``fixed`` microseconds more."""
    us = fixed + over * floor(scope, context)
    return row(attention, scope, context, us=us, **counted(scope, context))


def family(**given: Any) -> list[Measurement]:
    """All three scopes at all contexts."""
    return [timed(s, c, **given) for s in ("step", "recompute", "prefill") for c in CONTEXTS]


def section(*rows: Measurement) -> Section:
    """The section, without its figures."""
    (page,) = pages(*rows)
    assert told(page)
    return saving(page, 1, [Drawn(n, n, n, ()) for n in ("a", "b")])


def tables(it: Section) -> list[Table]:
    return [block.table for block in it.blocks if block.table]


def test_a_run_without_recompute_has_no_such_section() -> None:
    (page,) = pages(*(timed("step", c) for c in CONTEXTS))
    assert not told(page)
    (one,) = pages(timed("recompute", 128), timed("step", 128))
    assert not told(one)  # one prefix cannot grow


def test_each_prefix_says_what_the_cache_saves_and_what_all_steps_took() -> None:
    rows = [
        row("mha", s, c, us=us * c) for s, us in (("step", 1.0), ("recompute", 8.0), ("prefill", 7.0)) for c in (2, 4)
    ]
    (first, second) = tables(section(*rows))[0].rows
    assert first[:2] == ("mha", "2")
    assert first[4] == second[4] == "8.00x"
    assert second[2].startswith("4.000 [")
    assert second[5].startswith("28.00 [")
    assert second[6:] == ("0.000009000", "0.00007200")  # 2 + 3 + 4 us, and eight times as much


def test_times_that_follow_their_counts_agree_and_it_is_said_how_many() -> None:
    blocks = section(*family()).blocks
    assert blocks[-1].notes == [
        "9 of 9 intervals that no fixed cost dominates agree within 0.15, FLOPs at the rates reached."
    ]
    (line,) = [ln for ln in lines(pages(*family())[0]) if ln.scope == "recompute"]
    exact = np.diff(np.log([floor("recompute", c) for c in CONTEXTS])) / np.log(2)
    assert [g.counted for g in growths(line)] == pytest.approx(list(exact))
    assert [g.measured for g in growths(line)] == pytest.approx(list(exact))


def test_a_fixed_cost_is_found_and_its_intervals_are_starred() -> None:
    rows = [timed("recompute", c, fixed=floor("recompute", 128)) for c in CONTEXTS]
    fits, grown = tables(section(*rows))[1:]
    assert float(fits.rows[0][-3].replace(",", "")) == pytest.approx(floor("recompute", 128), rel=1e-3)
    assert [cell.endswith("*") for cell in grown.rows[0][2:]] == [True, True, False]


def test_a_time_that_grows_otherwise_than_counted_is_named() -> None:
    rows = [row("mha", "recompute", c, us=0.001 * c**2, **counted("recompute", c)) for c in CONTEXTS]
    notes = section(*rows).blocks[-1].notes
    assert notes[0] == "0 of 3 intervals that no fixed cost dominates agree within 0.15, FLOPs at the rates reached."
    assert (
        notes[1]
        == "! Grow otherwise than counted: "
        + ", ".join(f"mha recompute {a} to {b}" for a, b in (("128", "256"), ("256", "512"), ("512", "1k")))
        + "."
    )


def test_attention_far_from_the_matmul_ceiling_has_a_growth_of_its_own() -> None:
    """Projections at half of the ceiling, attention at a tenth: neither exponent of the mixture is the ceiling's."""
    us = [2 * WEIGHTS * c / MATMUL_TFLOPS / 1e6 + 10 * 2000 * c**2 / MATMUL_TFLOPS / 1e6 for c in CONTEXTS]
    rows = [row("mha", "recompute", c, us=t, **counted("recompute", c)) for c, t in zip(CONTEXTS, us, strict=True)]
    it = section(*rows)
    fits, grown = tables(it)[1:]
    assert fits.rows[0][-2:] == ("50 %", "10.0 %")
    mine = np.diff(np.log(us)) / np.log(2)
    flat = np.diff(np.log([floor("recompute", c) for c in CONTEXTS])) / np.log(2)
    assert [cell.split(" / ") for cell in grown.rows[0][2:]] == [
        [f"{a:.2f}", f"{b:.2f}", f"{a:.2f}"] for a, b in zip(mine, flat, strict=True)
    ]
    assert it.blocks[-1].notes == [
        "3 of 3 intervals that no fixed cost dominates agree within 0.15, FLOPs at the rates reached."
    ]


def test_rows_of_two_temperatures_are_not_joined_in_one_line() -> None:
    warm = row("mha", "recompute", 2048, temperature="warm", **counted("recompute", 2048))
    (page,) = pages(*family(), warm)
    assert [ln.contexts for ln in lines(page) if ln.scope == "recompute"] == [list(CONTEXTS)]


def _render(*rows: Measurement, folder: Path) -> str:
    told_ = table(*rows)
    split = settings(told_.table)
    decisions = decide_all(split, rule())
    figures = [[Drawn(n, n, n, ()) for n in ("cache", "latency", "bandwidth", "roofline")]] * len(split)
    none = [None] * len(split)
    sections = gallery(Scene(split, rule(), folder, {}))
    return render(Facts(told_, split, decisions, figures, none, none, rule(), "cmd", sections))


def test_the_page_has_the_sections_their_rows_and_their_figures(tmp_path: Path) -> None:
    page = _render(*family(attention="gqa"), *step_in_parts(), folder=tmp_path)
    assert page.count("### What the cache saves\n") == 1
    assert page.count("### Where a step's time and bytes go\n") == 1
    for stem in ("saving-step", "saving-added", "parts"):
        assert f"(figures/{stem}.png)" in page
        assert (tmp_path / f"{stem}.png").stat().st_size > 0
        assert (tmp_path / f"{stem}.svg").stat().st_size > 0
    assert "`recompute` has none and projects and attends all rows of the prefix again" in page
    assert "9 of 9 intervals that no fixed cost dominates agree within 0.15, FLOPs at the rates reached." in page
    gaps = page.split("### Gaps")[1].split("###")[0]
    assert "nothing to absorb" not in gaps  # the section says it


def test_a_page_without_such_rows_is_as_it_was(tmp_path: Path) -> None:
    page = _render(*(row(a, "step", c) for a in ("mha", "gqa") for c in CONTEXTS), folder=tmp_path)
    assert "What the cache saves" not in page
    assert "Where a step's time and bytes go" not in page
    assert list(tmp_path.iterdir()) == []


def _kept(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[Figure]:
    kept: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, *_: kept.append(figure))
    return kept


def _drawn(figure: Figure, panel: int) -> list[tuple[float, float]]:
    ax = figure.axes[panel]
    found = [line for line in ax.lines if line.get_transform() == ax.transData]
    return [p for line in found for p in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)]


def test_both_panels_show_the_medians_and_then_their_sums(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = _kept(monkeypatch, saving_figure)
    rows = [row("mha", s, c, us=us * c) for s, us in (("step", 1.0), ("recompute", 8.0)) for c in (2, 4)]
    (page,) = pages(*rows)
    with canvas.look():
        saving_figure.draw_step(page, styles(["mha"]), tmp_path, "s")
        drawn = saving_figure.draw_added(page, styles(["mha"]), tmp_path, "a")
    assert [_drawn(kept[0], p) for p in (0, 1)] == [[(2, 2.0), (4, 4.0)], [(2, 16.0), (4, 32.0)]]
    drawn_sums = [point for point in _drawn(kept[1], 1) if not np.isnan(point[1])]
    assert drawn_sums == [pytest.approx((4, 72e-6))]  # at the first prefix nothing has added up
    assert "recompute: mha 0.00007200 s at 4" in drawn.alt


# the parts of a step

US = {"project": 30.0, "absorb": 10.0, "append": 1.0, "attend": 50.0, "output": 20.0}


def step_in_parts(**given: Any) -> list[Measurement]:
    """MLA with all parts, MHA with none to absorb; the step a little faster than its parts."""
    shape = {"num_q_heads": 4, "d_qk": 8, "d_v": 8, "cache_bytes": 4096, **given}
    rows = []
    for attention in ("mha", "mla"):
        for part, us in US.items():
            if (attention, part) == ("mha", "absorb"):
                rows.append(failed("mha", "absorb", 1024, "refused", "there is nothing to absorb", key="none"))
                continue
            size = {"append": 64, "attend": 4096 + 2 * 64}.get(part, 1000)
            weights = {"append": 0, "attend": 2700}.get(part, 900)
            rows.append(row(attention, part, 1024, us=us, io_bytes=size, weight_bytes=weights, **shape))
        rows.append(row(attention, "step", 1024, us=100.0, io_bytes=7288, **shape))
    return rows


def test_every_byte_of_a_part_is_of_weights_of_the_cache_or_an_edge() -> None:
    (page,) = pages(*step_in_parts())
    (mla,) = [t for t in taken_apart(page) if t.label == "mla"]
    assert {p: weights_and_cache(p, r) for p, r in mla.parts.items()} == {
        "project": (900, 0),
        "absorb": (900, 0),
        "append": (0, 64),
        "attend": (0, 4096),  # 2 x 4 x 16 bytes more are q and o
        "output": (900, 0),
    }
    unpacking = {**mla.parts["attend"], "io_bytes": 4096 + 2 * 64 + 500}
    assert weights_and_cache("attend", unpacking) == (500, 4096)


@pytest.mark.parametrize("column", ["io_bytes", "weight_bytes", "cache_bytes", "num_q_heads"])
def test_e13_bytes_that_a_row_lacks_are_not_counted_as_none(column: str) -> None:
    unknown: dict[str, Any] = {column: None}
    lacking = [replace(r, **unknown) if r.scope in ("attend", "output") else r for r in step_in_parts()]
    (page,) = pages(*lacking)
    it = parts(page, 1, Drawn("f", "f", "f", ())).blocks[0].table
    assert it is not None
    (whole,) = [line for line in it.rows if line[0] == "mla" and line[2] == "sum of parts"]
    assert NOTHING in whole[5:8]


def test_the_sum_of_parts_stands_beside_the_step_and_is_not_forced() -> None:
    (page,) = pages(*step_in_parts())
    it = parts(page, 1, Drawn("f", "f", "f", ()))
    (only,) = tables(it)
    mla = [line for line in only.rows if line[0] == "mla"]
    assert [line[2] for line in mla] == ["project", "absorb", "append", "attend", "output", "sum of parts", "step"]
    assert mla[-2][3:8] == ("111.0", "100 %", "7,288", "2,700", "4,160")
    assert mla[-1][4:8] == ("90 %", "7,288", "2,700", "4,160")
    assert list(it.blocks[0].notes) == [
        "mha at 1k: the parts alone take 1.01x as long as the step.",
        "mla at 1k: the parts alone take 1.11x as long as the step.",
        "absorb of mha: there is nothing to absorb.",
    ]
    assert it.explained == {"none"}


def test_a_step_alone_is_not_taken_apart() -> None:
    (page,) = pages(row("mha", "step"), row("mha", "attend"))
    assert taken_apart(page) == []


def test_bars_are_stacked_from_zero_in_the_order_of_the_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = _kept(monkeypatch, parts_figure)
    (page,) = pages(*step_in_parts())
    with canvas.look():
        drawn = parts_figure.draw(page, tmp_path, "p")
    bars = [b for b in kept[0].axes[0].patches if b.get_height() > 0]  # type: ignore[attr-defined]
    mla = [(b.get_y(), b.get_height()) for b in bars if b.get_x() > 0.5]  # type: ignore[attr-defined]
    assert mla == [(0, 30), (30, 10), (40, 1), (41, 50), (91, 20)]
    (mha_step, mla_step) = (list(np.asarray(line.get_ydata())) for line in kept[0].axes[0].lines)
    assert (mha_step, mla_step) == ([100, 100], [100, 100])
    assert kept[0].axes[0].get_ylim()[0] == 0
    assert re.search(r"mla: project 30.00, absorb 10.00, .*; step 100.0 us", drawn.alt)
