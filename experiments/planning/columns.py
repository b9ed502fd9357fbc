"""Tables of points as CSV: read in pieces, every cell checked, and a bad one named by row and column."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from experiments.planning.load import NAMED, Floats, Shapes

SHAPE = ("layout", "q_heads", "kv_heads", "batch", "context")
PIECE = 2_000  # rows held at a time
MOST = 10**9
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True)
class Piece:
    """Some rows of a table: ``cells`` by row, ``rows`` their numbers as a spreadsheet counts them (the header is 1)."""

    path: Path
    header: Sequence[str]
    rows: Sequence[int]
    cells: Sequence[Sequence[str]]

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        at = self.header.index(name)
        return [row[at] for row in self.cells]

    def shapes(self) -> Shapes:
        """The points; ValueError naming row and column for anything that is not a shape."""
        layout = self.column("layout")
        if not set(layout) <= set(NAMED):
            bad = next(i for i, name in enumerate(layout) if name not in NAMED)
            raise self.wrong(bad, "layout", f"must be one of {', '.join(NAMED)}", layout[bad])
        made = Shapes(np.array(layout), *(self._whole(name) for name in SHAPE[1:]))
        shared = np.isin(made.layout, [name for name, named in NAMED.items() if named.shared])
        self._refuse(shared & (made.kv_heads != 1), "kv_heads", "must be 1 for a layout with one shared latent")
        self._refuse(made.q_heads % made.kv_heads != 0, "kv_heads", "must divide q_heads")
        return made

    def positive(self, name: str) -> Floats:
        """A column of numbers > 0."""
        cells = self.column(name)
        try:
            values = np.array(cells, dtype=np.float64)
        except ValueError:
            bad = next(i for i, cell in enumerate(cells) if not _is_number(cell))
            raise self.wrong(bad, name, "must be a number > 0", cells[bad]) from None
        self._refuse(~(np.isfinite(values) & (values > 0)), name, "must be a number > 0")
        return values

    def wrong(self, index: int, name: str, expected: str, got: object) -> ValueError:
        """The error that names a cell."""
        return ValueError(f"{self.path}: row {self.rows[index]}, column {name} {expected}; got {got!r:.80}")

    def _whole(self, name: str) -> Floats:
        cells, expected = self.column(name), f"must be a whole number from 1 to {MOST}"
        # three quick questions to all cells at once; only a table that fails one is searched cell by cell
        if not (_DIGITS.issuperset("".join(cells)) and all(cells) and max(map(len, cells)) <= len(str(MOST))):
            bad = next(i for i, c in enumerate(cells) if not (c and set(c) <= _DIGITS and len(c) <= len(str(MOST))))
            raise self.wrong(bad, name, expected, cells[bad])
        values = np.array(cells, dtype=np.float64)
        self._refuse((values < 1) | (values > MOST), name, expected)
        return values

    def _refuse(self, bad: NDArray[np.bool_], name: str, expected: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise self.wrong(first, name, expected, self.column(name)[first])


def pieces(path: Path, wanted: Sequence[str], size: int = PIECE) -> Iterator[Piece]:
    """The table at ``path``, ``size`` rows at a time; columns beside ``wanted`` are kept as they are.

    Empty lines are skipped. Raises ValueError in one line for what is no such table, OSError if it cannot be read.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = _rows(file, path)
        _, header = next(lines, (0, []))
        names = [name.strip() for name in header]
        missing = [name for name in wanted if name not in names]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if missing or doubled:
            problem = f"needs the column {missing[0]}" if missing else f"has two columns {doubled[0]!r}"
            raise ValueError(f"{path}: the first row {problem}; wanted {', '.join(wanted)}; got {', '.join(names)!r}")
        seen = False
        while held := list(islice(lines, size)):
            seen = True
            numbers, cells = zip(*held, strict=True)
            ragged = next((i for i, row in enumerate(cells) if len(row) != len(names)), None)
            if ragged is not None:
                got = f"must have {len(names)} cells, as the header; got {len(cells[ragged])}"
                raise ValueError(f"{path}: row {numbers[ragged]} {got}")
            yield Piece(path, names, numbers, cells)
        if not seen:
            raise ValueError(f"{path}: holds no points, only a header")


def _rows(file: TextIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows without the empty ones; what is no CSV or no text is a ValueError that says where."""
    reader = csv.reader(file, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}: row {reader.line_num} is no CSV: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: must be UTF-8 text; row {reader.line_num + 1} or later is not") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
