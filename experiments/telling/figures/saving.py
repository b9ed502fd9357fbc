"""What the cache saves, drawn: a step with and without it over the prefix, and the same steps added up."""

from pathlib import Path

import pandas as pd

from experiments.telling.figures.axes import context_axis, value_axis
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.curve import Curve, curves, draw_curves, mark_failures
from experiments.telling.figures.endings import name_curves
from experiments.telling.figures.panels import counted
from experiments.telling.figures.style import Style
from experiments.telling.lines import added_up, lines
from experiments.telling.setting import Setting
from experiments.telling.words import number
from variants.contract.tokens import format_tokens

STEP, ADDED = "A step with and without the cache", "Generation with and without the cache"
PANELS = {"step": "step: reads the cache", "recompute": "recompute: all rows again, no cache"}


def draw_step(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; us per layer and step, p50 with its confidence interval."""
    remark = counted(setting, bands=True)
    return _draw(setting, styles, folder, stem, STEP, ("latency_us_p50", "latency per layer (µs, p50)", "us"), [remark])


def draw_added(setting: Setting, styles: dict[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure; seconds per layer of all steps from the shortest measured prefix on."""
    remark = "One step per token from the shortest prefix measured; between prefixes on straight lines."
    return _draw(setting, styles, folder, stem, ADDED, ("added_s", "all steps so far, per layer (s)", "s"), [remark])


def _draw(
    setting: Setting,
    styles: dict[str, Style],
    folder: Path,
    stem: str,
    heading: str,
    said: tuple[str, str, str],
    remarks: list[str],
) -> Drawn:
    column, label, unit = said
    figure, axes = blank(heading, setting, list(PANELS.values()))
    rows = setting.rows if column in setting.rows else _with_sums(setting)
    contexts = sorted({c for scope in PANELS for c in setting.contexts(scope)})
    found: list[list[Curve]] = []
    failed = False
    for ax, scope in zip(axes, PANELS, strict=True):
        panel, left_out = curves(rows[rows["scope"] == scope], column, setting.contexts(scope), styles)
        found.append(panel)
        remarks = [*remarks, *left_out]
        draw_curves(ax, panel)
        failed |= mark_failures(ax, panel)
    for ax in axes:
        context_axis(ax, contexts)
        ax.set_xlabel("prefix (tokens, 1k = 1024)")
        value_axis(ax, [v for panel in found for c in panel for v in c.values], label, foot=failed)
    footnote(figure, remarks)
    name_curves(figure, axes, found)
    save(figure, folder, stem)
    ends = "; ".join(f"{scope}: {_ends(panel, unit)}" for scope, panel in zip(PANELS, found, strict=True))
    return Drawn(stem, heading, f"{heading}, log-log, {setting.title}. Last points: {ends}.", ())


def _with_sums(setting: Setting) -> pd.DataFrame:
    """The rows of lines, and on each how long all steps up to it took; not the first, where nothing has added up."""
    sums = {
        row["key"]: seconds
        for line in lines(setting)
        for row, seconds in zip(line.rows[1:], added_up(line)[1:], strict=True)
    }
    rows = setting.rows[setting.rows["key"].isin(list(sums))]
    return rows.assign(added_s=[sums[key] for key in rows["key"]])


def _ends(found: list[Curve], unit: str) -> str:
    said = [f"{c.name} {number(c.last[1])} {unit} at {format_tokens(c.last[0])}" for c in found if c.last]
    return ", ".join(said) or "none"
