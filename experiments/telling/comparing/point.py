"""What names a point in a table: only the columns in which the points differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.record import Measurement
from experiments.telling.words import tokens

NAMING = (
    "attention",
    "form",
    "storage",
    "page_size",
    "backend",
    "model",
    "dtype",
    "kv_dtype",
    "tp",
    "cp",
    "scope",
    "temperature",
    "origin",
    "batch",
    "queries",
    "context",
)


@dataclass(frozen=True)
class Naming:
    """``common``: what all rows share, in words. ``columns``: what tells them apart, ``key`` if nothing else does."""

    common: str
    columns: tuple[str, ...]

    def cells(self, row: Measurement) -> tuple[str, ...]:
        """A row's values of the columns."""
        return tuple(said(column, getattr(row, column)) for column in self.columns)

    def words(self, row: Measurement) -> str:
        """The same in one string: ``mla absorbed step 8k``."""
        return " ".join(cell for cell in self.cells(row) if cell)


def naming(rows: Sequence[Measurement], apart: Sequence[str] = ()) -> Naming:
    """How to name these rows. Columns in ``apart`` differ between the sides and name no point."""
    asked = [column for column in NAMING if column not in apart]
    differ = [column for column in asked if len({getattr(row, column) for row in rows}) > 1]
    columns = differ or ["attention", "scope", "context"]
    same = [f"{column} {said(column, getattr(rows[0], column))}" for column in asked if column not in columns]
    keys = {tuple(getattr(row, column) for column in columns): row.key for row in rows}
    if len(keys) < len({row.key for row in rows}) and not apart:
        columns = [*columns, "key"]
    return Naming(", ".join(text for text in same if not text.endswith(" ")), tuple(columns))


def said(column: str, value: object) -> str:
    """A value in a table's cell; nothing for null."""
    if column == "context" and isinstance(value, int):
        return tokens(value)
    return "" if value is None else str(value)
