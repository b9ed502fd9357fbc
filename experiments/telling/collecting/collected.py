"""From folders of records to one Parquet file and one CSV file, both whole or not there."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.record import Measurement
from experiments.records import RECORDS, stream
from experiments.telling.collecting.table import write_kept, write_rows
from experiments.telling.newest import Newest

SHOWN = 20  # warnings kept as text: there may be as many as lines


@dataclass
class Collected:
    """What was found: files, rows read, rows kept by status, lines that are no rows, and the first warnings."""

    files: int
    read: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Rows written."""
        return self.statuses.total()

    @property
    def superseded(self) -> int:
        """Rows left out because a newer one of the same point and machine was read."""
        return self.read - self.kept


def collect(places: Sequence[Path], parquet: Path, csv: Path) -> Collected:
    """Write the newest row of every point and machine below ``places`` to both files, in the order read.

    A place is a folder with records below it or one file of records. Rows go through a scratch file beside ``parquet``:
    of them, memory holds one batch. Raises FileNotFoundError for a place without records, ValueError if no line is a
    row, OSError for a file that cannot be read or written; what lay at ``parquet`` and ``csv`` is then as it was.
    """
    told = Collected(len(files := record_files(places)))
    for out in (parquet, csv):
        if out.is_dir():
            raise IsADirectoryError(f"out must name files; {out} is a folder")
    parquet.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{parquet.name}.", dir=parquet.parent) as scratch:
        every, table, sheet = (Path(scratch, name) for name in ("every", "table", "sheet"))
        newest = Newest()
        write_rows(_rows(files, told, newest), every)
        if not told.read:
            raise ValueError(f"runs must hold at least one readable record; {' '.join(told.warnings[:1])}")
        told.statuses = write_kept(every, newest.kept(), table, sheet)
        os.replace(table, parquet)
        os.replace(sheet, csv)
    return told


def record_files(places: Sequence[Path]) -> list[Path]:
    """Every file of records below ``places``, each once, even where one place lies inside another."""
    found: dict[Path, Path] = {}
    for place in places:
        files = [place] if place.is_file() else sorted(place.rglob(RECORDS))
        if not files:
            missing = f"{place} has none" if place.is_dir() else f"there is no {place}"
            raise FileNotFoundError(f"runs must name folders with {RECORDS} files below them; {missing}")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _rows(files: Sequence[Path], told: Collected, newest: Newest) -> Iterator[Measurement]:
    """Rows of all files as they are read, counted on the way."""
    for file in files:
        for found in stream(file, Measurement):
            if isinstance(found, Measurement):
                told.read += 1
                newest.see(found)
                yield found
            else:
                told.skipped += 1
                told.warnings += [found][: SHOWN - len(told.warnings)]
