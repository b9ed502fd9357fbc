"""Where rows live: append-only files of JSON lines, of measurements one per series."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from experiments.columns import Row
from experiments.record import Measurement

RECORDS = "records.jsonl"
CHECKS = "checks.jsonl"  # of a run as a whole, in its own folder
Kind = TypeVar("Kind", bound=Row)


class SeriesLog:
    """The append-only file of one series; every append is flushed and synced before it returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / RECORDS

    def append(self, *rows: Measurement) -> None:
        """Add rows; a torn last line left by a killed run is closed first so that it spoils nothing else."""
        append(self.path, *rows)


def append(path: Path, *rows: Row) -> None:
    """Add rows to a file, which is made with its folder if it is not there, and bring them to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_lines(path, *(row.to_json() for row in rows))


def append_lines(path: Path, *lines: str) -> None:
    """Add lines and bring them to the disk: all of them, or none if that fails (the disk is full).

    A torn last line, left by a process that was killed, is closed first so that it spoils no other.
    """
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and not _ends_with_newline(file)
        text = ("\n" * torn + "".join(line + "\n" for line in lines)).encode()
        try:
            while text:
                text = text[file.write(text) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


@dataclass(frozen=True)
class Loaded:
    """Rows read from a run folder, and one line for each thing that could not be read."""

    rows: tuple[Measurement, ...]
    warnings: tuple[str, ...]


def load(folder: Path) -> Loaded:
    """Read every ``records.jsonl`` below ``folder``, in file order; unreadable lines are skipped with a warning.

    Raises FileNotFoundError if the folder holds no records at all.
    """
    paths = sorted(folder.rglob(RECORDS))
    if not paths:
        raise FileNotFoundError(f"no {RECORDS} below {folder}")
    parts = [read(path) for path in paths]
    return Loaded(tuple(row for part in parts for row in part.rows), tuple(w for part in parts for w in part.warnings))


def read(path: Path) -> Loaded:
    """Read one file of records, in file order; unreadable lines are skipped with a warning."""
    rows: list[Measurement] = []
    warnings: list[str] = []
    for found in stream(path, Measurement):
        if isinstance(found, Measurement):
            rows.append(found)
        else:
            warnings.append(found)
    return Loaded(tuple(rows), tuple(warnings))


def last_of_each(folder: Path, name: str, kind: type[Kind]) -> tuple[dict[str, Kind], list[str]]:
    """The rows in files of a name below a folder by key, the last of each, and a warning for each line that is none."""
    rows: dict[str, Kind] = {}
    warnings = []
    for path in sorted(folder.rglob(name)):
        for found in stream(path, kind):
            if isinstance(found, str):
                warnings.append(found)
            else:
                rows[found.key] = found
    return rows, warnings


def stream(path: Path, kind: type[Kind]) -> Iterator[Kind | str]:
    """The rows of one file, one after the other; a warning in the place of each line that is none."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                yield kind.from_json(raw.decode())
            except ValueError as error:
                torn = " (torn last line of an interrupted run)" if not raw.endswith(b"\n") else ""
                yield f"{path}:{number}: skipped a line: {error}{torn}"


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
