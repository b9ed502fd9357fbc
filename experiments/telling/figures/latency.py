"""Decode latency over context, kernel and whole step side by side."""

from pathlib import Path

from experiments.telling.figures.behind import Behind
from experiments.telling.figures.canvas import Drawn, save
from experiments.telling.figures.curve import Curve
from experiments.telling.figures.panels import SCOPES, over_context
from experiments.telling.figures.style import Style
from experiments.telling.setting import Setting
from experiments.telling.words import latency, number
from variants.contract.tokens import format_tokens

HEADING = "Decode latency over context"
BEHIND = Behind((("latency", lambda row: latency(row, " us")),))


def draw(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; us per layer and decode step, p50 with its confidence interval where one was measured."""
    how = "predicted" if setting.predicted else "p50"
    panels = over_context(HEADING, setting, styles, "latency_us_p50", f"latency per layer (µs, {how})")
    save(panels.figure, folder, stem)
    ends = "; ".join(f"{scope}: {_ends(found)}" for scope, found in zip(SCOPES, panels.curves, strict=True))
    alt = f"{HEADING}, log-log, {setting.title}. Last points: {ends}."
    return Drawn(stem, HEADING, alt, panels.remarks, BEHIND.table(setting))


def _ends(found: list[Curve]) -> str:
    said = [f"{c.name} {number(c.last[1])} us at {format_tokens(c.last[0])}" for c in found if c.last]
    return ", ".join(said) or "none"
