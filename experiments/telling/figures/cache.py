"""Cache bytes per sequence and layer over context: arithmetic, so every point whose bytes are known is drawn."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from experiments.record import TIMED
from experiments.telling.figures.axes import byte_axis, context_axis
from experiments.telling.figures.behind import Behind
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.curve import Curve, curves, draw_curves, mark_failures
from experiments.telling.figures.endings import name_curves
from experiments.telling.figures.style import Style
from experiments.telling.frame import plain
from experiments.telling.setting import Setting
from experiments.telling.words import count, exact_bytes
from variants.contract.tokens import format_tokens

HEADING = "Cache per sequence and layer"
BEHIND = Behind((("bytes per sequence and layer", lambda row: count(row["bytes_per_sequence"])),), timed=False)


def draw(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; logical bytes of one sequence in one layer (padding and page tables not counted)."""
    figure, (ax,) = blank(HEADING, setting, ["logical bytes: padding not counted"])
    rows = _one_per_point(setting.rows)
    found, remarks = curves(rows, "bytes_per_sequence", setting.contexts(), styles)
    draw_curves(ax, found)
    failed = mark_failures(ax, found)
    if failed:
        remarks.append("x on the axis: no value and no bytes known; the gaps table has the reason.")
    if _cross_untimed(ax, setting, styles):
        remarks.append("x on a line: bytes known by arithmetic, but the point gave no time; see the gaps table.")
    context_axis(ax, setting.contexts())
    byte_axis(ax, [v for c in found for v in c.values], "bytes per sequence and layer", failed)
    footnote(figure, remarks)
    name_curves(figure, [ax], [found])
    save(figure, folder, stem)
    alt = f"{HEADING}, log-log, {setting.title}. Longest: {_ends(found)}."
    return Drawn(stem, HEADING, alt, tuple(remarks), BEHIND.table(setting))


def _one_per_point(rows: pd.DataFrame) -> pd.DataFrame:
    """Scopes, temperatures and outcomes share one cache: one row per variant, context and number of bytes."""
    known = rows[rows["bytes_per_sequence"].notna()]
    points = known.drop_duplicates(["label", "context", "bytes_per_sequence"]).assign(status="ok", temperature=None)
    points["repeat"] = points.groupby(["label", "context"], dropna=False).cumcount()
    at = set(zip(plain(known["label"]), plain(known["context"]), strict=True))
    unknown = [pair not in at for pair in zip(plain(rows["label"]), plain(rows["context"]), strict=True)]
    failed = rows[pd.Series(unknown, index=rows.index, dtype=bool)].drop_duplicates(["label", "context"])
    return pd.concat([points, failed.assign(repeat=0)])


def _cross_untimed(ax: Axes, setting: Setting, styles: dict[str, Style]) -> bool:
    rows = setting.rows[setting.rows["bytes_per_sequence"].notna() & setting.rows["context"].notna()]
    timed = rows[rows["status"].isin(TIMED)]
    seen = set(zip(plain(timed["label"]), plain(timed["context"]), strict=True))
    points = zip(*(plain(rows[c]) for c in ("label", "context", "bytes_per_sequence")), strict=True)
    crossed = sorted({p for p in points if p[:2] not in seen and min(p[1:]) > 0})
    for label, context, size in crossed:
        ax.plot(context, size, "x", color=styles[label].colour, ms=10, markeredgewidth=1.8)
    return bool(crossed)


def _ends(found: list[Curve]) -> str:
    said = [f"{c.name} {exact_bytes(c.last[1])} at {format_tokens(int(c.last[0]))}" for c in found if c.last]
    return ", ".join(said) or "none"
