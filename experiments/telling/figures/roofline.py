"""The roofline: how much arithmetic each byte carries, and how close to the machine's measured roof it gets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.record import TIMED
from experiments.telling.figures.axes import intensity_axis, value_axis
from experiments.telling.figures.behind import Behind, ratio
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import NAME_SIZE, keys, outside_legend
from experiments.telling.figures.panels import ABOUT, SCOPES
from experiments.telling.figures.style import INK, Style
from experiments.telling.frame import records
from experiments.telling.setting import Setting
from experiments.telling.words import number, percent

HEADING = "Roofline"
BEHIND = Behind(
    (
        ("FLOP/byte", lambda row: ratio(row["flops"], row["io_bytes"])),
        ("TFLOP/s", lambda row: ratio(row["flops"], row["latency_us_p50"], 1e6)),
        ("of roofline", lambda row: percent(row["roofline_fraction"])),
    )
)
MOST_INSIDE = 8  # names that fit above the slope of the roof
COLUMNS = [
    "label",
    "scope",
    "context",
    "status",
    "key",
    "flops",
    "io_bytes",
    "tflops",
    "latency_us_p50",
    "roofline_fraction",
]
SMALLEST, LARGEST = 4.0, 9.0  # marker sizes in points, from the shortest to the longest context


def draw(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; FLOP per logical byte against achieved TFLOP/s, under the measured read and matmul ceilings."""
    figure, axes = blank(HEADING, setting, [ABOUT[s] for s in SCOPES])
    rows = [_placed(r) for r in records(setting.rows[COLUMNS]) if r["scope"] in SCOPES and r["status"] in TIMED]
    shown = [r for r in rows if r["x"] and r["y"]]
    roofs = _roofs(records(setting.rows[["read_ceiling_gbps", "matmul_ceiling_tflops"]]))
    xs = [r["x"] for r in shown] + [1e3 * tflops / gbps for gbps, tflops in roofs]
    values = [r["y"] for r in shown] + [tflops for _, tflops in roofs]
    for ax, scope in zip(axes, SCOPES, strict=True):
        intensity_axis(ax, xs)
        _scatter(ax, [r for r in shown if r["scope"] == scope], styles, setting.contexts())
        _draw_roofs(ax, roofs)
        value_axis(ax, values, "achieved TFLOP/s")
    remarks = _remarks(setting, rows, shown, roofs)
    footnote(figure, remarks)
    _legend(figure, axes[0], {name: styles[name] for name in setting.variants})
    save(figure, folder, stem)
    return Drawn(stem, HEADING, _alt(setting, shown, roofs), tuple(remarks), BEHIND.table(setting))


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    flops, moved, us = row["flops"], row["io_bytes"], row["latency_us_p50"]
    known = flops and moved and flops > 0 and moved > 0
    achieved = row["tflops"] if row["tflops"] is not None else flops and flops / us / 1e6
    return {**row, "x": flops / moved if known else None, "y": achieved if achieved and achieved > 0 else None}


def _roofs(rows: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """(GB/s, TFLOP/s) pairs measured together: the only one, or the lowest and the highest of several."""
    pairs = sorted({(r["read_ceiling_gbps"], r["matmul_ceiling_tflops"]) for r in rows if None not in r.values()})
    pairs = [p for p in pairs if min(p) > 0]
    return pairs if len(pairs) < 2 else [pairs[0], pairs[-1]]


def _scatter(ax: Axes, rows: Sequence[dict[str, Any]], styles: dict[str, Style], contexts: Sequence[int]) -> None:
    """Points only: a line from one intensity to the next would mean nothing."""
    grow = (LARGEST - SMALLEST) / max(len(contexts) - 1, 1)
    rank = {context: SMALLEST + grow * n for n, context in enumerate(contexts)} if len(contexts) > 1 else {}
    groups: dict[tuple[str, bool, int], list[dict[str, Any]]] = {}
    for row in rows:
        size = round(rank.get(row["context"], LARGEST))  # few sizes, so few artists
        groups.setdefault((row["label"], row["status"] == "quarantined", size), []).append(row)
    for (label, hollow, size), members in groups.items():
        style = styles[label]
        fill: Any = {"fillstyle": "none", "markeredgewidth": 1.4} if hollow else {}
        x, y = [r["x"] for r in members], [r["y"] for r in members]
        ax.plot(x, y, style.marker, color=style.colour, linestyle="", ms=size, **fill)


def _draw_roofs(ax: Axes, roofs: Sequence[tuple[float, float]]) -> None:
    low, high = ax.get_xlim()
    for gbps, tflops in roofs:
        ridge = 1e3 * tflops / gbps
        ax.plot([low, ridge, high], [gbps * low / 1e3, tflops, tflops], color=INK, linewidth=1.2, scalex=False)


def _legend(figure: Figure, ax: Axes, shown: dict[str, Style]) -> None:
    """Above the slope of the roof, where no cold point can lie; beside the axes if there are many names."""
    if len(shown) > MOST_INSIDE:
        outside_legend(figure, shown, lines=False)
    else:
        ax.legend(handles=keys(shown, lines=False), loc="upper left", frameon=False, fontsize=NAME_SIZE)


def _remarks(
    setting: Setting,
    rows: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    roofs: Sequence[tuple[float, float]],
) -> list[str]:
    said = [f"Roof {'of the profile' if setting.predicted else 'as measured'}: {_roof(r)}." for r in roofs] or [
        "No ceilings recorded, so there is no roof."
    ]
    if len(setting.contexts()) > 1:
        said.append("Markers grow with context; a warm row may lie above the roof, which is that of main memory.")
    if any(r["status"] == "quarantined" for r in shown):
        said.append("Hollow: quarantined, timed but not to be believed.")
    lost = [r for r in rows if not (r["x"] and r["y"])]
    if lost:
        names = ", ".join(f"{r['label']} (row {r['key']})" for r in lost[:6])
        said.append(f"{len(lost)} of {len(rows)} points not shown (bytes or FLOPs <= 0 or not recorded): {names}")
    untimed = int((~setting.rows["status"].isin(TIMED)).sum())
    if untimed:
        said.append(f"{untimed} rows have no time and so no place here; the gaps table has the reasons.")
    return said


def _roof(roof: tuple[float, float]) -> str:
    gbps, tflops = roof
    ridge = number(1e3 * tflops / gbps, 3)
    return f"{number(gbps)} GB/s read, {number(tflops)} TFLOP/s matmul, ridge at {ridge} FLOP/byte"


def _alt(setting: Setting, shown: Sequence[dict[str, Any]], roofs: Sequence[tuple[float, float]]) -> str:
    best: dict[str, dict[str, Any]] = {}
    for row in shown:
        if row["roofline_fraction"] is not None:
            held = best.setdefault(row["label"], row)
            best[row["label"]] = max(held, row, key=lambda r: r["roofline_fraction"])
    reach = ", ".join(f"{label} {percent(r['roofline_fraction'])}" for label, r in sorted(best.items()))
    roof = "; ".join(map(_roof, roofs)) or "no roof recorded"
    return f"{HEADING}, log-log, {setting.title}. {roof}. Best share of the roofline: {reach or 'not recorded'}."
