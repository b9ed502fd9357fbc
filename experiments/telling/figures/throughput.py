"""Tokens per second and device over the batch: of the attention layers alone, and of the whole model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments.telling.figures.axes import batch_axis, value_axis
from experiments.telling.figures.canvas import PREDICTED_GROUND, Drawn, blank, footnote, save
from experiments.telling.figures.curve import NAN, Curve, draw_curves, mark_failures
from experiments.telling.figures.endings import name_curves
from experiments.telling.figures.style import Style
from experiments.telling.throughput import HEADING, Served, Serving
from experiments.telling.words import number, spanned
from variants.contract.tokens import format_tokens

Value = Callable[[Served], tuple[float | None, tuple[float, float] | None]]
ALONE = "attention layers alone: batch / (layers x step)"
WHOLE, GIVEN = "whole model: its other weights are PREDICTED", "whole model: what comes beside, as given"


def draw(it: Serving, looks: Mapping[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; the second panel, on the ground of predictions, only where the other weights are known."""
    panels: list[tuple[str, Value]] = [(ALONE, lambda one: (one.alone, one.interval))]
    if any(one.whole for one in it.served):
        panels.append((WHOLE if it.given_ms is None else GIVEN, lambda one: (one.whole, one.whole_interval)))
    figure, axes = blank(HEADING, it, [title for title, _ in panels])
    found = [_curves(it, looks, value) for _, value in panels]
    failed = [mark_failures(ax, curves) for ax, curves in zip(axes, found, strict=True)]
    for ax, curves in zip(axes, found, strict=True):
        draw_curves(ax, curves)
    for ax in axes:
        batch_axis(ax, it.batches)
        value_axis(ax, [v for panel in found for c in panel for v in c.values], "tokens/s per device", foot=any(failed))
    if len(axes) > 1 and it.given_ms is None:
        axes[1].set_facecolor(PREDICTED_GROUND)
    remarks = _remarks(it, any(failed))
    footnote(figure, remarks)
    name_curves(figure, axes, found)
    save(figure, folder, stem)
    ends = "; ".join(f"{title}: {_ends(panel)}" for (title, _), panel in zip(panels, found, strict=True))
    return Drawn(stem, HEADING, f"{HEADING}, log-log, {it.title}. Last points: {ends}.", tuple(remarks))


def _curves(it: Serving, looks: Mapping[str, Style], value: Value) -> list[Curve]:
    return [_curve(it, name, looks[name], value) for name in it.variants]


def _curve(it: Serving, name: str, style: Style, value: Value) -> Curve:
    mine = {one.batch: value(one) for one in it.served if one.variant == name and one.fits}
    large = [(one.batch, value(one)[0]) for one in it.served if one.variant == name and not one.fits]
    at = [mine.get(batch, (None, None)) for batch in it.batches]
    y = tuple(NAN if rate is None else rate for rate, _ in at)
    low, high = (tuple(NAN if ends is None else ends[end] for _, ends in at) for end in (0, 1))
    failed = tuple(batch for absent, batch in it.absent if absent == name)
    return Curve(name, style, False, it.batches, y, low, high, tuple((b, v) for b, v in large if v), failed)


def _remarks(it: Serving, failed: bool) -> list[str]:
    at = f"At {format_tokens(it.context)} cached tokens. "
    how = "Computed from bytes, FLOPs and ceilings; nothing was timed."
    n = f", n = {spanned(counts)} samples" if (counts := [one.samples for one in it.served if one.samples]) else ""
    said = [at + (how if it.predicted else f"By the median step{n}; band and whisker: its confidence interval.")]
    if it.room and not all(one.fits for one in it.served):
        said.append(f"Hollow: one layer alone; the caches of all layers do not fit. {it.room.said}.")
    return said + (["x on the axis: tried, no value; the gaps table has the reason."] if failed else [])


def _ends(found: Sequence[Curve]) -> str:
    return ", ".join(f"{c.name} {number(c.last[1])} at batch {c.last[0]}" for c in found if c.last) or "none"
