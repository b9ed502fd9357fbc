"""A figure with one panel per scope, a curve per variant, context along the foot: what latency and bandwidth share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.telling.figures.axes import context_axis, value_axis
from experiments.telling.figures.canvas import blank, footnote
from experiments.telling.figures.curve import Curve, curves, draw_curves, mark_failures
from experiments.telling.figures.endings import name_curves
from experiments.telling.figures.style import Style
from experiments.telling.frame import distinct, plain
from experiments.telling.setting import Setting
from experiments.telling.words import spanned

SCOPES = ("attend", "step")
ABOUT = {"attend": "attend: the kernel alone", "step": "step: projections, append, attend, output"}


@dataclass(frozen=True)
class Panels:
    """A drawn figure with its curves (one list per scope) and the remarks for its caption."""

    figure: Figure
    curves: tuple[list[Curve], ...]
    remarks: tuple[str, ...]


def over_context(
    heading: str,
    setting: Setting,
    styles: dict[str, Style],
    column: str,
    label: str,
    extra: Callable[[Axes], Sequence[float]] | None = None,
) -> Panels:
    """Draw ``column`` over context for both scopes; ``extra`` may add to each panel and returns the values it needs."""
    figure, axes = blank(heading, setting, [ABOUT[s] for s in SCOPES])
    found, remarks, values, failed = [], [], [], False
    for ax, scope in zip(axes, SCOPES, strict=True):
        rows = setting.rows[setting.rows["scope"] == scope]
        panel, left_out = curves(rows, column, setting.contexts(scope), styles)
        found.append(panel)
        remarks += left_out
        draw_curves(ax, panel)
        failed |= mark_failures(ax, panel)
        values += [v for c in panel for v in c.values] + (list(extra(ax)) if extra else [])
        if not any(c.last for c in panel):
            ax.text(0.5, 0.5, "no value to draw", transform=ax.transAxes, ha="center", va="center")
    for ax in axes:
        context_axis(ax, setting.contexts())
        value_axis(ax, values, label, foot=failed, head=extra is not None)
    remarks += _signs(found, failed)
    footnote(figure, [counted(setting, bands=column == "latency_us_p50"), *remarks])
    name_curves(figure, axes, found)
    return Panels(figure, tuple(found), tuple(remarks))


def counted(setting: Setting, bands: bool) -> str:
    """What the statistic is and over how many samples."""
    if setting.predicted:
        return "Computed from bytes, FLOPs and ceilings; nothing was timed."
    samples, rounds = (distinct(plain(setting.rows[c])) for c in ("samples", "rounds"))
    if not samples:
        return "No point was timed."
    n = f"n = {spanned(samples)} samples" + (f" in {spanned(rounds)} rounds" if rounds else "")
    return f"Median per point, {n}{'; band and whisker: confidence interval of the median' if bands else ''}."


def _signs(found: Sequence[Sequence[Curve]], failed: bool) -> list[str]:
    """Explain only the signs that are there."""
    signs = ["x on the axis: tried, no value; the gaps table has the reason."] if failed else []
    if any(c.hollow for panel in found for c in panel):
        signs.append("Hollow: quarantined, timed but not to be believed.")
    if any(c.thin for panel in found for c in panel):
        signs.append("Thin: warm rows, which may come from the processor's own caches.")
    return signs
