"""What a person sees while a run is on: live lines and the time left on a terminal, plain lines elsewhere."""

import heapq
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from experiments.record import CLEAN, Measurement
from variants.contract.cost import Point
from variants.contract.tokens import format_tokens

SLOWEST = 3  # points that the summary names
SPEED_S = 3600.0  # the time left follows from the points of so many seconds; one may take half a minute
OVERALL = "all points"


class Progress:
    """A bar over all points of a run and a line per series at hand; rows that are not ok are said at once.

    A terminal that cannot move its cursor gets plain lines too; NO_COLOR takes the colours away.
    """

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, emoji=False)  # a reason is text, whatever is in it
        self._live = self._console.is_interactive
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._bar = Bar(*columns, console=self._console, disable=not self._live, speed_estimate_period=SPEED_S)
        self._lines: dict[str, TaskID] = {}
        self._task = self._bar.add_task(OVERALL, total=total, said="")
        self._total = total
        self._begun = 0
        self._slowest: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            self._bar.remove_task(line)
        self._bar.stop()

    def series(self, left: Mapping[str, int]) -> None:
        """One or several series begin, their points in turn: how many points each has left."""
        for line in self._lines.values():
            self._bar.remove_task(line)
        self._lines = {name: self._bar.add_task(escape(name), total=n, said="") for name, n in left.items()}
        for name in left:
            self._plain(name)

    @contextmanager
    def timing(self, point: Point, attentions: Sequence[str]) -> Iterator[None]:
        """A point is measured now; the slowest are named in the end."""
        start = time.monotonic()
        yield
        where = f"{', '.join(attentions)} {format_tokens(point.context)}, batch {point.batch}"
        heapq.heappush(self._slowest, (time.monotonic() - start, where))
        self._slowest = heapq.nlargest(SLOWEST + 1, self._slowest)

    def point(self, rows: tuple[Measurement, ...]) -> None:
        """A point has ended, however."""
        self._begun += 1
        for row in rows:
            where = f"{row.attention} {row.scope}" + (f" {format_tokens(row.context)}" if row.context else "")
            said = f"{where}: {row.latency_us_p50:.0f} us" if row.status == "ok" else f"{where}: {row.status}"
            if row.status == "ok":
                self._plain(f"  {said}")
            else:
                self.note(f"  {said}: {row.reason}")
            if row.series in self._lines:
                self._bar.update(self._lines[row.series], said=escape(said))
        if rows and rows[0].series in self._lines:
            self._bar.advance(self._lines[rows[0].series])
        self._bar.advance(self._task)

    def note(self, text: str) -> None:
        """Something that is not as it should be."""
        self._console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def summary(self, seen: Mapping[str, int], there: Mapping[str, int], folder: Path, spent: str) -> None:
        """Rows per status, where they are, what was there before, what is left, and where the time went."""
        rows = f"rows: {counted(seen)}; in {folder}"
        if there:
            rows += f"; {sum(there.values())} rows were already there: {counted(there)}"
        left = self._total - self._begun
        told = [rows, f"{left} of {self._total} points are left" if left > 0 else "", self._slow(), spent]
        style = "green" if all(status in CLEAN for status in [*seen, *there]) and left <= 0 else "yellow"
        self._console.print("\n".join(filter(None, told)), style=style, markup=False, highlight=False, soft_wrap=True)

    def _slow(self) -> str:
        """The slowest points, where there are others."""
        if len(self._slowest) < 2:
            return ""
        named = [f"{seconds:.1f} s {where}" for seconds, where in heapq.nlargest(SLOWEST, self._slowest)]
        return f"slowest points: {'; '.join(named)}"

    def _plain(self, text: str) -> None:
        if not self._live:
            print(text, file=sys.stderr, flush=True)


def counted(rows: Mapping[str, int]) -> str:
    """Numbers by status in words: ``4 ok, 1 error``."""
    return ", ".join(f"{number} {status}" for status, number in Counter(rows).most_common()) or "none"
