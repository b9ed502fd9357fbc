"""What is drawn, judged from the artists and the pixels: every value once, nothing invented, nothing left open."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.telling.decision import decide_all
from experiments.telling.figures import bandwidth, cache, canvas, latency, roofline
from experiments.telling.figures import support as matrix
from experiments.telling.figures.endings import spread
from experiments.telling.figures.style import styles
from experiments.telling.support import support
from tests.experiments.telling.drawing import Draw, colour, points
from tests.experiments.telling.rows import MATMUL_TFLOPS, READ_GBPS, failed, pages, row, rule, unbuildable

CONTEXTS = (1024, 8192, 131072)


@pytest.mark.parametrize("module", [latency, cache, bandwidth, roofline])
def test_a_config_that_could_not_be_built_does_not_stop_a_figure(draw: Draw, module: Any) -> None:
    for rows in ([row("mha"), unbuildable("gqa", "no")], [unbuildable("gqa", "no")]):
        _, drawn = draw(module, pages(*rows)[0])
        assert any("gaps table has the reason" in r for r in drawn.remarks)


def test_a_line_breaks_where_a_point_is_missing(draw: Draw) -> None:
    rows = [row("mha", "step", c) for c in CONTEXTS] + [row("gqa", "step", c) for c in (1024, 131072)]
    figure, _ = draw(latency, pages(*rows)[0])
    gqa = next(
        ln for ln in figure.axes[1].lines if ln.get_color() == colour("gqa") and len(np.asarray(ln.get_xdata())) > 1
    )
    assert [math.isnan(y) for y in np.asarray(gqa.get_ydata())] == [False, True, False]


def test_values_are_drawn_where_they_were_measured_with_their_interval(draw: Draw) -> None:
    figure, _ = draw(
        latency, pages(row("mha", "step", 2048, us=50.0, latency_us_ci_low=40.0, latency_us_ci_high=70.0))[0]
    )
    step = figure.axes[1]
    assert points(step, colour("mha")) == [(2048, 50.0)]
    (whisker,) = [c for c in step.collections if hasattr(c, "get_segments")]
    assert [list(p) for p in whisker.get_segments()[0]] == [[2048, 40.0], [2048, 70.0]]


def test_quarantined_points_are_hollow_and_off_the_line(draw: Draw) -> None:
    rows = [row("mha", "step", c) for c in (1024, 4096)]
    doubtful = row("mha", "step", 2048, us=7.0, status="quarantined", reason="too fast")
    figure, drawn = draw(latency, pages(*rows, doubtful)[0])
    assert points(figure.axes[1], colour("mha"), filled=False) == [(2048, 7.0)]
    assert [x for x, _ in points(figure.axes[1], colour("mha"))] == [1024, 4096]
    assert any("quarantined" in r for r in drawn.remarks)


def test_cold_and_warm_rows_are_two_lines(draw: Draw) -> None:
    figure, _ = draw(latency, pages(row(context=1024, temperature="warm"), row(context=2048))[0])
    lines = [
        np.asarray(ln.get_ydata()) for ln in figure.axes[1].lines if ln.get_transform() == figure.axes[1].transData
    ]
    assert [int(np.sum(~np.isnan(y))) for y in lines] == [1, 1]
    assert {"mha", "mha, warm"} <= {t.get_text() for t in figure.axes[1].texts}


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
    assert points(figure.axes[0], colour("mla")) == [pytest.approx((60.0, 60_000 / 20.0 / 1e6))]
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
    assert points(figure.axes[0], colour("mla")) == [(1024, 1024 * 1152), (2048, 2048 * 1152)]
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
    assert [t.get_text() for t in paged.texts] == ["oom", *("\N{EN DASH}",) * 3]
    assert "Fastest: mha 50 % by sdpa on contiguous, gqa 75 % by eager on contiguous." in drawn.alt


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


def test_a_device_named_in_another_script_or_with_dollars_can_be_drawn(tmp_path: Path) -> None:
    (page,) = pages(row(device="東京 $A$ 100"))
    with canvas.look():
        cache.draw(page, styles(page.variants), tmp_path, "stem")
    assert (tmp_path / "stem.svg").read_text(encoding="utf-8").startswith("<?xml")
