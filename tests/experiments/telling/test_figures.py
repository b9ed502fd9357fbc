"""What is drawn, judged from the artists and the pixels: every value once, nothing invented, nothing left open."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from experiments.telling.decision import decide_all
from experiments.telling.figures import bandwidth, cache, canvas, latency, roofline
from experiments.telling.figures import support as matrix
from experiments.telling.figures.canvas import Drawn
from experiments.telling.figures.endings import spread
from experiments.telling.figures.style import styles
from experiments.telling.plots import draw_all
from experiments.telling.setting import Setting
from experiments.telling.support import NOT_RUN, support
from tests.experiments.telling.rows import MATMUL_TFLOPS, READ_GBPS, failed, pages, row, rule, unbuildable

CONTEXTS = (1024, 8192, 131072)
Draw = Callable[[Any, Setting], tuple[Figure, Drawn]]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Draw]:
    """Draw a figure module's figure and hand it over instead of saving it."""
    kept: list[Figure] = []

    def drawn(module: Any, page: Setting) -> tuple[Figure, Drawn]:
        monkeypatch.setattr(module, "save", lambda figure, *_: kept.append(figure))
        told = module.draw(page, styles(page.variants), tmp_path, "stem")
        return kept[-1], told

    with canvas.look():
        yield drawn


def _points(ax: Axes, colour: str, filled: bool = True) -> list[tuple[float, float]]:
    """Data points drawn with a marker in a colour, those of the keys beside the axes not counted."""
    found: list[tuple[float, float]] = []
    for line in ax.lines:
        if line.get_transform() == ax.transData and line.get_color() == colour and line.get_marker() != "x":
            points = zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
            found += [p for p in points if not math.isnan(p[1]) and filled == (line.get_fillstyle() != "none")]
    return found


def _crosses(ax: Axes) -> list[float]:
    """Contexts with a failure mark on the axis."""
    foot = [line for line in ax.lines if line.get_marker() == "x" and line.get_markersize() == 7]
    return [float(np.asarray(line.get_xdata())[0]) for line in foot]


def _colour(name: str) -> str:
    return styles([name])[name].colour


def _all_points(ax: Axes) -> list[tuple[float, float]]:
    return [p for name in ("mha", "gqa", "mqa", "mla") for p in _points(ax, _colour(name))]


def test_a_failed_point_is_a_mark_on_the_axis_and_one_never_run_is_a_gap(draw: Draw) -> None:
    rows = [row(a, "step", c, us=c / 10) for a in ("mha", "gqa", "mla") for c in CONTEXTS if (a, c) != ("mla", 131072)]
    figure, drawn = draw(latency, pages(*rows, failed("mla", "step", 131072, "oom", "no memory"))[0])
    step = figure.axes[1]
    assert len(_all_points(step)) == 8
    assert _crosses(step) == [131072]
    assert min(y for _, y in _all_points(step)) > 0
    assert any("tried, no value" in r for r in drawn.remarks)


@pytest.mark.parametrize("module", [latency, cache, bandwidth, roofline])
def test_a_config_that_could_not_be_built_does_not_stop_a_figure(draw: Draw, module: Any) -> None:
    for rows in ([row("mha"), unbuildable("gqa", "no")], [unbuildable("gqa", "no")]):
        _, drawn = draw(module, pages(*rows)[0])
        assert any("gaps table has the reason" in r for r in drawn.remarks)


def test_a_line_breaks_where_a_point_is_missing(draw: Draw) -> None:
    rows = [row("mha", "step", c) for c in CONTEXTS] + [row("gqa", "step", c) for c in (1024, 131072)]
    figure, _ = draw(latency, pages(*rows)[0])
    gqa = next(
        ln for ln in figure.axes[1].lines if ln.get_color() == _colour("gqa") and len(np.asarray(ln.get_xdata())) > 1
    )
    assert [math.isnan(y) for y in np.asarray(gqa.get_ydata())] == [False, True, False]


def test_values_are_drawn_where_they_were_measured_with_their_interval(draw: Draw) -> None:
    figure, _ = draw(
        latency, pages(row("mha", "step", 2048, us=50.0, latency_us_ci_low=40.0, latency_us_ci_high=70.0))[0]
    )
    step = figure.axes[1]
    assert _points(step, _colour("mha")) == [(2048, 50.0)]
    (whisker,) = [c for c in step.collections if hasattr(c, "get_segments")]
    assert [list(p) for p in whisker.get_segments()[0]] == [[2048, 40.0], [2048, 70.0]]


def test_quarantined_points_are_hollow_and_off_the_line(draw: Draw) -> None:
    rows = [row("mha", "step", c) for c in (1024, 4096)]
    doubtful = row("mha", "step", 2048, us=7.0, status="quarantined", reason="too fast")
    figure, drawn = draw(latency, pages(*rows, doubtful)[0])
    assert _points(figure.axes[1], _colour("mha"), filled=False) == [(2048, 7.0)]
    assert [x for x, _ in _points(figure.axes[1], _colour("mha"))] == [1024, 4096]
    assert any("quarantined" in r for r in drawn.remarks)


def test_cold_and_warm_rows_are_two_lines(draw: Draw) -> None:
    figure, _ = draw(latency, pages(row(context=1024, temperature="warm"), row(context=2048))[0])
    lines = [
        np.asarray(ln.get_ydata()) for ln in figure.axes[1].lines if ln.get_transform() == figure.axes[1].transData
    ]
    assert [int(np.sum(~np.isnan(y))) for y in lines] == [1, 1]
    assert {"mha", "mha, warm"} <= {t.get_text() for t in figure.axes[1].texts}


def test_nothing_above_zero_is_lost_to_a_zero_on_a_log_axis(draw: Draw) -> None:
    values = [1.0, 2.0, 3.0, 4.0, 0.0, 6.0, 7.0, 8.0]
    rows = [row("mha", "attend", 1024 << i, bandwidth_gbps=v, key=f"k{i}") for i, v in enumerate(values)]
    figure, drawn = draw(bandwidth, pages(*rows)[0])
    attend = figure.axes[0]
    shown = _points(attend, _colour("mha"))
    (left, right), (low, high) = attend.get_xlim(), attend.get_ylim()
    assert sorted(y for _, y in shown) == [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    assert all(left < x < right and low < y < high for x, y in shown)
    assert any(
        "1 of 8 points of mha not shown (<= 0 on a log axis): attend at 16k (row k4)" in r for r in drawn.remarks
    )


def test_a_context_of_zero_is_left_out_and_named(draw: Draw) -> None:
    figure, drawn = draw(cache, pages(row(context=0, cache_bytes=0, key="zero"), row(context=1024))[0])
    assert [x for x, _ in _points(figure.axes[0], _colour("mha"))] == [1024]
    assert any("1 of 2" in r and "zero" in r for r in drawn.remarks)


@pytest.mark.parametrize(("contexts", "ticks"), [((1024, 2048, 4096), ["1k", "2k", "4k"]), ((1000,), ["1000"])])
def test_context_ticks_are_powers_of_two_or_the_only_context(
    draw: Draw, contexts: tuple[int, ...], ticks: list[str]
) -> None:
    figure, _ = draw(latency, pages(*(row(context=c) for c in contexts))[0])
    axis = figure.axes[1].xaxis
    low, high = figure.axes[1].get_xlim()
    assert [axis.get_major_formatter()(t) for t in axis.get_majorticklocs() if low <= t <= high] == ticks


def test_the_read_ceiling_is_a_line_at_its_value(draw: Draw) -> None:
    figure, drawn = draw(bandwidth, pages(row(scope="attend", read_ceiling_gbps=31.5))[0])
    level = [np.asarray(ln.get_ydata()) for ln in figure.axes[0].lines if len(np.asarray(ln.get_xdata())) == 2]
    assert any((y == 31.5).all() for y in level)
    assert "read ceiling 31.50 GB/s" in drawn.alt


def test_two_different_ceilings_are_both_shown_and_never_averaged(draw: Draw) -> None:
    _figure, drawn = draw(bandwidth, pages(row(read_ceiling_gbps=30.0), row("gqa", read_ceiling_gbps=34.0))[0])
    assert "lowest of 2 read ceiling 30.00 GB/s" in drawn.alt
    assert "highest of 2 read ceiling 34.00 GB/s" in drawn.alt


def test_a_roofline_point_stands_at_its_intensity_and_rate(draw: Draw) -> None:
    point = row("mla", "attend", us=20.0, io_bytes=1000, flops=60_000, tflops=None)
    figure, drawn = draw(roofline, pages(point)[0])
    assert _points(figure.axes[0], _colour("mla")) == [pytest.approx((60.0, 60_000 / 20.0 / 1e6))]
    roof = next(ln for ln in figure.axes[0].lines if len(np.asarray(ln.get_xdata())) == 3)
    ridge = MATMUL_TFLOPS * 1e3 / READ_GBPS
    assert np.asarray(roof.get_xdata())[1] == pytest.approx(ridge)
    assert np.asarray(roof.get_ydata())[0] == pytest.approx(READ_GBPS * np.asarray(roof.get_xdata())[0] / 1e3)
    assert any("ridge at 50.0 FLOP/byte" in r for r in drawn.remarks)


def test_a_roofline_counts_and_names_what_it_cannot_place(draw: Draw) -> None:
    _, drawn = draw(roofline, pages(row("mha", flops=0, key="nothing"), row("gqa"))[0])
    assert any("1 of 2 points not shown" in r and "nothing" in r for r in drawn.remarks)


def test_cache_bytes_are_drawn_once_per_point_even_where_nothing_ran(draw: Draw) -> None:
    rows = [row("mla", s, 1024, batch=4) for s in ("attend", "step")]
    refused = failed("mla", "step", 2048, "too_large", "no memory", batch=4)
    figure, drawn = draw(cache, pages(*rows, refused)[0])
    assert _points(figure.axes[0], _colour("mla")) == [(1024, 1024 * 1152), (2048, 2048 * 1152)]
    assert any("gave no time" in r for r in drawn.remarks)


def test_a_support_matrix_shows_shares_hatches_refusals_and_frames_each_best(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (decision,) = decide_all(
        pages(
            row("mha", backend="eager", us=2.0, roofline_fraction=0.25),
            row("mha", backend="sdpa", us=1.0, roofline_fraction=0.5),
            row("gqa", backend="eager", us=3.0, roofline_fraction=0.75),
            failed("gqa", "step", 1024, "refused", "no", backend="sdpa"),
            failed("mha", "step", 1024, "oom", "no memory", backend="eager", storage="paged"),
        ),
        rule(),
    )
    kept: list[Figure] = []
    monkeypatch.setattr(matrix, "save", lambda figure, *_: kept.append(figure))
    with canvas.look():
        drawn = matrix.draw(support(decision, rule()), tmp_path, "stem")  # type: ignore[arg-type]  # there is one
    contiguous, paged = kept[0].axes[:2]
    assert [ax.get_title(loc="left") for ax in (contiguous, paged)] == ["contiguous", "paged"]
    said = {t.get_position(): t.get_text() for t in contiguous.texts}
    assert said == {(0.5, 0.5): "25 %", (1.5, 0.5): "75 %", (0.5, 1.5): "50 %", (1.5, 1.5): ""}
    boxes: list[Any] = list(contiguous.patches)
    assert [p.get_xy() for p in boxes if p.get_hatch()] == [(1, 1)]
    assert sorted((int(p.get_x()), int(p.get_y())) for p in boxes if not p.get_fill()) == [(0, 1), (1, 0)]
    assert [t.get_text() for t in paged.texts] == ["oom", NOT_RUN, NOT_RUN, NOT_RUN]
    assert "Fastest: mha 50 % by sdpa on contiguous, gqa 75 % by eager on contiguous." in drawn.alt


def test_a_page_draws_only_its_own_machine(draw: Draw) -> None:
    rows = [row("mha", "step", c, us=u, device=d) for d, u in (("A", 10.0), ("B", 90.0)) for c in (1024, 2048)]
    for page, us in zip(pages(*rows), (10.0, 90.0), strict=True):
        figure, _ = draw(latency, page)
        assert {y for _, y in _points(figure.axes[1], _colour("mha"))} == {us}


def test_predicted_figures_look_predicted(draw: Draw) -> None:
    measured, predicted = (draw(latency, pages(row(origin=o))[0])[0] for o in ("measured", "predicted"))
    assert measured.axes[0].get_facecolor() != predicted.axes[0].get_facecolor()
    assert "PREDICTED" in predicted.get_suptitle()
    labels = [figure.axes[0].get_ylabel() for figure in (measured, predicted)]
    assert labels == ["latency per layer (µs, p50)", "latency per layer (µs, predicted)"]


def test_more_names_than_fit_become_a_legend(draw: Draw) -> None:
    few, _ = draw(latency, pages(*(row(f"v{i}", us=1.0 + i) for i in range(5)))[0])
    many, _ = draw(latency, pages(*(row(f"v{i}", us=1.0 + i) for i in range(30)))[0])
    assert not few.legends
    assert len(many.legends[0].get_texts()) == 30


@pytest.mark.parametrize("wanted", [[0.5, 0.5, 0.5], [0.0, 0.01, 0.02], [1.0, 0.99, 0.98, 0.2], [0.9, 0.1]])
def test_names_are_spread_in_order_inside_the_axes(wanted: list[float]) -> None:
    placed = spread(wanted, 0.1, 0.05, 0.95)
    assert all(0.05 - 1e-9 <= p <= 0.95 + 1e-9 for p in placed)
    ranked = sorted(placed)
    assert all(b - a >= 0.1 - 1e-9 for a, b in itertools.pairwise(ranked))
    by_wish = [p for _, p in sorted(zip(wanted, placed, strict=True))]
    assert by_wish == sorted(by_wish)


def test_a_single_point_can_be_seen_and_no_figure_stays_open(tmp_path: Path) -> None:
    draw_all(pages(row("mla", "step", 1024)), tmp_path)
    wanted = np.array([int(_colour("mla")[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    for name in ("latency", "cache", "bandwidth", "roofline"):
        pixels = imread(tmp_path / f"{name}.png")[..., :3]
        assert int((np.abs(pixels - wanted).max(axis=-1) < 0.02).sum()) > 40, name
        assert pixels.shape[1] >= 6 * 150  # 6 inches at 150 dpi or more
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".png"] * 4 + [".svg"] * 4
    assert plt.get_fignums() == []


def test_a_device_named_in_another_script_or_with_dollars_can_be_drawn(tmp_path: Path) -> None:
    (page,) = pages(row(device="東京 $A$ 100"))
    with canvas.look():
        cache.draw(page, styles(page.variants), tmp_path, "stem")
    assert (tmp_path / "stem.svg").read_text(encoding="utf-8").startswith("<?xml")
