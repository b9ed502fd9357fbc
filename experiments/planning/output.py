"""Rows of a table as a file: CSV or JSON."""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path


def check_out(out: Path) -> None:
    """Raise ValueError unless the file's ending names a format that ``write`` knows."""
    if out.suffix not in (".csv", ".json"):
        raise ValueError(f"out must end in .csv or .json; got {str(out)!r}")


def write(rows: Iterable[object], out: Path, columns: Sequence[str]) -> None:
    """CSV or JSON by the file's ending; ``columns`` are the rows' fields."""
    check_out(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    plain = [{name: getattr(row, name) for name in columns} for row in rows]
    if out.suffix == ".json":
        out.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(plain)
