"""What a person sees while a run is on: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from experiments.record import CLEAN, Measurement
from variants.contract.tokens import format_tokens


class Progress:
    """One overall bar over all points of a run; rows that are not ok are said at once."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, emoji=False)  # a reason is text, whatever is in it
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("points", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def series(self, *names: str) -> None:
        """One or several series begin, their points in turn."""
        self._bar.update(self._task, description=names[0] + (f" and {len(names) - 1} others" if names[1:] else ""))
        for name in names:
            self._plain(name)

    def point(self, rows: tuple[Measurement, ...]) -> None:
        """A point has ended, however."""
        for row in rows:
            where = f"{row.attention} {row.scope}" + (f" {format_tokens(row.context)}" if row.context else "")
            if row.status == "ok":
                self._plain(f"  {where}: {row.latency_us_p50:.0f} us")
            else:
                self._console.print(
                    f"  {where}: {row.status}: {row.reason}",
                    style="yellow",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
        self._bar.advance(self._task)

    def note(self, text: str) -> None:
        """Something about the whole run."""
        self._console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def summary(self, seen: Counter[str], folder: Path, spent: str) -> None:
        """Rows per status, where they are, and where the time went."""
        counts = ", ".join(f"{number} {status}" for status, number in seen.most_common()) or "none"
        style = "green" if all(status in CLEAN for status in seen) else "yellow"
        told = "\n".join(filter(None, (f"rows: {counts}; in {folder}", spent)))
        self._console.print(told, style=style, markup=False, highlight=False, soft_wrap=True)

    def _plain(self, text: str) -> None:
        if not self._console.is_terminal:
            print(text, file=sys.stderr, flush=True)
