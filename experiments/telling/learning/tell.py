"""From a folder of trainings to a folder with a report: one page and its figures, all or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from experiments.learned import LEARNED, read
from experiments.telling.figures.canvas import Drawn
from experiments.telling.folder import FIGURES, PAGE, report_folder
from experiments.telling.learning.figure import draw_against, draw_curves_of
from experiments.telling.learning.page import page, verdict
from experiments.telling.learning.results import Result, obstacle, results


@dataclass(frozen=True)
class Told:
    """What a report came to: its page, and the sentences to print."""

    page: Path
    summary: str


def tell(runs: Path, out: Path, command: str) -> Told:
    """Read the trainings in ``runs`` and write the report into ``out``, replacing an earlier one.

    Raises ValueError, before anything is written, if there is no readable training, or ``out`` holds something else.
    """
    rows, warnings = read(runs)
    if not rows:
        first = f"; the first: {warnings[0]}" if warnings else ""
        raise ValueError(f"{runs / LEARNED} must hold at least one readable training; it has none{first}")
    settings = _together(results(list(rows.values())))
    with report_folder(out) as folder:
        figures = [_draw(alike, folder / FIGURES, number) for number, alike in enumerate(settings, start=1)]
        text = page(settings, figures, command, warnings)
        (folder / PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")
    said = [line for alike in settings for line in verdict(alike)]
    return Told(out / PAGE, "\n".join([*(f"warning: {w}" for w in warnings), *said]))


def _together(found: Sequence[Result]) -> list[list[Result]]:
    """Tasks of one decoder on one device stand side by side: one section of the page each."""

    def decoder(it: Result) -> tuple[str, ...]:
        row = it.any
        return tuple(map(str, (row.device, row.baseline, row.hidden_size, row.layers, row.heads)))

    return [list(group) for _, group in groupby(sorted(found, key=decoder), key=decoder)]


def _draw(alike: Sequence[Result], folder: Path, number: int) -> list[Drawn]:
    shown = [it for it in alike if it.standings]
    if not shown:
        return []
    ahead = f"{number:02d}-" if number > 1 else ""
    ranked = obstacle(alike) is None
    return [draw_against(shown, folder, f"{ahead}learned", ranked), draw_curves_of(shown, folder, f"{ahead}curves")]
