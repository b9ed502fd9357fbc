"""The table behind a figure of rows: what it draws, line by line, so that it can be read without being seen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.telling.frame import family_order
from experiments.telling.setting import Setting
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, number, tokens

MOST = 500  # rows behind one figure; records.jsonl has all
Column = tuple[str, Callable[[Row], str]]


@dataclass(frozen=True)
class Behind:
    """Which columns a figure's table has. ``timed``: of each scope, and with the status where there is no time."""

    columns: tuple[Column, ...]
    timed: bool = True

    def table(self, setting: Setting) -> Table:
        """The setting's rows; of more than ``MOST`` the first, and how many more there are."""
        rows = [row for row in setting.records if row["context"] is not None]
        if not self.timed:
            rows = list({(row["label"], row["context"], row["bytes_per_sequence"]): row for row in rows}.values())
        rows.sort(key=lambda row: (family_order(row["label"]), row["scope"], row["context"], row["repeat"]))
        where: tuple[Column, ...] = (
            ("variant", lambda row: row["label"]),
            *((("scope", lambda row: row["scope"]),) if self.timed else ()),
            ("context", lambda row: tokens(row["context"])),
        )
        lines = [tuple(say(row) for _, say in where) + self._cells(row) for row in rows[:MOST]]
        if len(rows) > MOST:
            more = f"and {len(rows) - MOST} more rows, which the records hold"
            lines.append((more, *("" for _ in range(len(where) + len(self.columns) - 1))))
        return Table(tuple(title for title, _ in (*where, *self.columns)), tuple(lines))

    def _cells(self, row: Row) -> tuple[str, ...]:
        if self.timed and row["latency_us_p50"] is None:
            return (row["status"], *(NOTHING for _ in self.columns[1:]))
        return tuple(say(row) for _, say in self.columns)


def ratio(above: Any, below: Any, unit: float = 1.0) -> str:
    """``above / below / unit``, or that it is not known."""
    return number(above / below / unit) if above is not None and below else NOTHING
