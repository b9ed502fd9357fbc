"""How distillation went: the mean loss of all layers at every step, a curve per variant."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from experiments.scored import LOSSES, Scored
from experiments.telling.figures.axes import value_axis
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import outside_legend
from experiments.telling.figures.style import apart
from experiments.telling.judging.figure import Title, title
from experiments.telling.judging.numbers import Judged
from experiments.telling.words import number

HEADING = "Loss of distillation"
STEM = "quality-losses"
MARKS = 8  # on a curve
REMARK = "Mean over layers; a step is one window of text, and windows differ, so that curves are ragged."


def read_losses(folder: Path, rows: Sequence[Scored]) -> dict[str, NDArray[np.float64]]:
    """The mean over layers of each trained row's losses, by key, where its file is there and of as many steps."""
    found = {}
    for row in rows:
        for path in sorted(folder.rglob(f"{LOSSES}/{row.key}.npy"))[:1]:
            curve = np.load(path, allow_pickle=False)
            if curve.shape == (row.layers, row.steps):
                found[row.key] = curve.mean(axis=0)
    return found


def draw(
    found: Sequence[Judged], base: Scored, losses: Mapping[str, NDArray[np.float64]], folder: Path
) -> Drawn | None:
    """Save the figure; None where no curve is there."""
    trained = {it.label: losses[it.after.key] for it in found if it.after and it.after.key in losses}
    if not trained:
        return None
    figure, (ax,) = blank(HEADING, Title(title(found, base)), [""], height=4.2)
    looks = apart(it.label for it in found if it.before is not base)
    for label, curve in trained.items():
        look, every = looks[label], max(1, len(curve) // MARKS)
        ax.plot(np.arange(1, len(curve) + 1), curve, look.marker, color=look.colour, ls=look.linestyle, markevery=every)
    value_axis(ax, [float(loss) for curve in trained.values() for loss in curve], "squared error over squared outputs")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("step of every layer")
    footnote(figure, [REMARK])
    outside_legend(figure, {label: looks[label] for label in trained})
    save(figure, folder, STEM)
    said = "; ".join(f"{label} {number(float(c[0]), 3)} to {number(float(c[-1]), 3)}" for label, c in trained.items())
    return Drawn(STEM, HEADING, f"{HEADING} over steps, log axis, {title(found, base)}. {said}.", (REMARK,))
