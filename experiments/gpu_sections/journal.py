"""Rows as they come: a line on the terminal, a line in the log, and a bundle made anew after each section."""

import io
import json
import os
import tarfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.gpu_sections.rig import Row
from experiments.record import CLEAN, utc_now

LOG, BUNDLE, ROWS = "gpu.log", "bundle.tar.gz", "rows.jsonl"


@dataclass
class Journal:
    """Writes into ``folder``. Rows of sections that do not run again are taken over from the bundle there is."""

    folder: Path
    commit: str
    rerun: Collection[str] = ()
    started_at: str = field(default_factory=utc_now)
    rows: list[Row] = field(default_factory=list)
    older: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.older = [row for row in read(self.folder / BUNDLE) if row["section"] not in self.rerun]
        (self.folder / LOG).write_text("", encoding="utf-8")

    def add(self, section: str, row: Row) -> None:
        """Print a row and write it through to the disk."""
        whole = {"section": section, **row, "started_at": self.started_at, "commit": self.commit}
        self.rows.append(whole)
        print(text(section, row), flush=True)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(_line(whole))
            file.flush()
            os.fsync(file.fileno())

    def bundle(self) -> None:
        """Write the bundle whole, in the place of the one before."""
        rows = "".join(map(_line, [*self.older, *self.rows]))
        path = self.folder / BUNDLE
        fresh = path.with_name(f".{BUNDLE}")
        with tarfile.open(fresh, "w:gz") as tar:
            for name, content in ((ROWS, rows), (LOG, (self.folder / LOG).read_text(encoding="utf-8"))):
                held = tarfile.TarInfo(f"gpu/{name}")
                held.size = len(content.encode())
                tar.addfile(held, io.BytesIO(content.encode()))
        fresh.replace(path)

    @property
    def clean(self) -> bool:
        """Whether every row of this run is measured or refused for a reason, and every target met."""
        return all(row["status"] in CLEAN and row.get("met", True) for row in self.rows)


def read(path: Path) -> list[Row]:
    """Rows of a bundle; none where there is no bundle."""
    if not path.exists():
        return []
    with tarfile.open(path) as tar:
        file = tar.extractfile(f"gpu/{ROWS}")
        return [] if file is None else [json.loads(line) for line in file]


def text(section: str, row: Row) -> str:
    """A row as one line to read."""
    rest = {name: value for name, value in row.items() if name not in ("case", "status") and value is not None}
    return f"{section:<8} {row['case']:<40} {row['status']:<9} " + " ".join(f"{k}={_short(v)}" for k, v in rest.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(row: Row) -> str:
    """Strict JSON: what is not finite becomes text."""
    finite = {k: str(v) if isinstance(v, float) and v - v != 0 else v for k, v in row.items()}
    return json.dumps(finite, allow_nan=False) + "\n"
