"""One side of a comparison: its newest rows, and where their raw samples lie."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.record import Measurement
from experiments.records import RECORDS, Loaded, read
from experiments.telling.comparing.steady import unsteady
from experiments.telling.newest import seconds

AGREES = 1e-3  # relative: a row's median against that of the samples beside it


@dataclass(frozen=True)
class Entry:
    """A row and the file it was read from."""

    row: Measurement
    file: Path

    @property
    def machine(self) -> tuple[str | None, str | None]:
        """Rows of one key are repeats only on one machine."""
        return self.row.device, self.row.host

    @property
    def us(self) -> float:
        """Median latency; an ok row has one."""
        assert self.row.latency_us_p50 is not None
        return self.row.latency_us_p50

    def samples(self) -> NDArray[np.float64] | None:
        """Raw samples in us [rounds, replicas]; None where there are none that this row was computed from."""
        try:
            us = np.load(self.file.parent / "samples" / f"{self.row.key}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if us.ndim != 2 or us.dtype.kind != "f" or not us.size or not (np.isfinite(us) & (us > 0)).all():
            return None
        medians = np.array([np.median(us), np.median(np.median(us, axis=1))])
        agree = np.abs(medians / (self.row.latency_us_p50 or np.inf) - 1) <= AGREES
        return np.asarray(us, np.float64) if agree.any() else None


@dataclass(frozen=True)
class Side:
    """The newest row of every point and machine; ``superseded`` older ones were read and left out."""

    name: str
    place: Path
    entries: tuple[Entry, ...]
    superseded: int
    warnings: tuple[str, ...]


def load_side(name: str, place: Path) -> Side:
    """Read a folder with records below it, or one file of records.

    Raises FileNotFoundError or ValueError, naming the option, if there is no readable row.
    """
    files = [place] if place.is_file() else sorted(place.rglob(RECORDS))
    if not files:
        missing = f"{place} has none" if place.is_dir() else f"there is no {place}"
        raise FileNotFoundError(
            f"{name} must be a file of records or a folder with {RECORDS} files below it; {missing}"
        )
    loaded = [(file, read(file)) for file in files]
    entries = [Entry(row, file) for file, one in loaded for row in one.rows]
    unreadable = [f"{name}: {warning}" for _, one in loaded for warning in one.warnings]
    if not entries:
        raise ValueError(f"{name} must hold at least one readable record; {place} has none{_first(loaded)}")
    newest = _newest(entries)
    changed = unsteady(name, ((entry.file, entry.row.started_at) for entry in newest))
    return Side(name, place, newest, len(entries) - len(newest), (*unreadable, *changed))


def _first(loaded: list[tuple[Path, Loaded]]) -> str:
    said = [warning for _, one in loaded for warning in one.warnings]
    return f"; the first: {said[0]}" if said else ""


def _newest(entries: list[Entry]) -> tuple[Entry, ...]:
    """Of rows with one key, origin and machine the one that started last, then the last read; in the order read."""
    by_age = sorted(entries, key=lambda entry: seconds(entry.row.started_at))
    last = {(entry.row.key, entry.row.origin, *entry.machine): entry for entry in by_age}
    kept = {id(entry) for entry in last.values()}
    return tuple(entry for entry in entries if id(entry) in kept)
