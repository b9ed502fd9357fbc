"""Achieved bandwidth over context against what this machine was measured to read."""

from pathlib import Path

from matplotlib.axes import Axes

from experiments.telling.figures.behind import Behind
from experiments.telling.figures.canvas import Drawn, save
from experiments.telling.figures.panels import over_context
from experiments.telling.figures.style import INK, Style
from experiments.telling.frame import distinct, plain
from experiments.telling.setting import Setting
from experiments.telling.words import number

HEADING = "Achieved bandwidth over context"
BEHIND = Behind(
    (
        ("GB/s", lambda row: number(row["bandwidth_gbps"])),
        ("read ceiling", lambda row: number(row["read_ceiling_gbps"])),
    )
)


def draw(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; decimal GB/s of logical bytes, with the measured read ceiling as a line."""
    ceilings = extremes(setting, "read_ceiling_gbps")

    def ceiling_lines(ax: Axes) -> list[float]:
        for value, name in ceilings:
            ax.axhline(value, color=INK, linewidth=1.2)
            ax.annotate(
                f"{name}read ceiling {number(value)} GB/s",
                xy=(0.02, value),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=9,
            )
        return [value for value, _ in ceilings]

    label = "bandwidth (GB/s, logical bytes)"
    panels = over_context(HEADING, setting, styles, "bandwidth_gbps", label, ceiling_lines)
    save(panels.figure, folder, stem)
    roof = ", ".join(f"{name}read ceiling {number(v)} GB/s" for v, name in ceilings) or "no read ceiling recorded"
    best = max((c.last[1] for found in panels.curves for c in found if c.last), default=None)
    reach = f"best last point {number(best)} GB/s" if best is not None else "no point"
    alt = f"{HEADING}, log-log, {setting.title}. {roof}; {reach}."
    return Drawn(stem, HEADING, alt, panels.remarks, BEHIND.table(setting))


def extremes(setting: Setting, column: str) -> list[tuple[float, str]]:
    """The measured ceiling, or the lowest and the highest of several, each with the word that says which."""
    values = [v for v in distinct(plain(setting.rows[column])) if v > 0]
    if len(values) < 2:
        return [(v, "") for v in values]
    return [(values[0], f"lowest of {len(values)} "), (values[-1], f"highest of {len(values)} ")]
