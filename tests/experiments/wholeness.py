"""What must be true of a run's folder after a kill, and once the run is complete."""

from collections import Counter
from pathlib import Path

import numpy as np

from experiments.record import Measurement
from experiments.records import CHECKS, RECORDS, load
from experiments.telling.frame import tidy


class Kept:
    """What a folder has held so far: nothing of it may ever change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[Path, bytes] = {}

    def look(self) -> None:
        """Whatever was in a file of rows is there still, byte for byte, and all samples that have a name are whole."""
        for path, before in self.seen.items():
            assert path.read_bytes().startswith(before), path
        self.seen = {path: path.read_bytes() for path in self.folder.rglob(RECORDS)}
        for path in self.folder.rglob("*.npy"):
            assert np.load(path, allow_pickle=False).size > 0, path
        for row in rows(self.folder):
            assert row.samples is None or samples(self.folder, row) == row.samples, row


def rows(folder: Path) -> tuple[Measurement, ...]:
    """All rows of a folder; none if it is not there yet."""
    return load(folder).rows if any(folder.rglob(RECORDS)) else ()


def samples(folder: Path, row: Measurement) -> int:
    """How many samples lie beside a row."""
    return int(np.load(folder / row.series / "samples" / f"{row.key}.npy", allow_pickle=False).size)


def complete(folder: Path, keys: set[str]) -> None:
    """To a reader every row of the run is there once and is ok, and no file is there that the run does not need."""
    table = tidy(load(folder), folder).table
    assert Counter(table["key"]) == dict.fromkeys(keys, 1)
    assert set(table["status"]) == {"ok"}
    needed = {RECORDS, CHECKS, ".lock"}
    assert [p for p in folder.rglob("*") if p.is_file() and p.name not in needed and p.suffix != ".npy"] == []


def measured_once(folder: Path) -> None:
    """No key has been measured well twice."""
    assert set(Counter(row.key for row in rows(folder) if row.status == "ok").values()) == {1}
