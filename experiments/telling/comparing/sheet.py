"""A comparison as a CSV file: one line per point, of whatever side, so that nothing is lost to a summary."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.record import Measurement
from experiments.telling.comparing.match import POINT
from experiments.telling.comparing.result import Result
from experiments.telling.comparing.side import Entry
from experiments.telling.comparing.verdict import Compared

OF_A_SIDE = (
    "key",
    "status",
    "reason",
    "device",
    "host",
    "threads",
    "versions",
    "commit",
    "kernel",
    "rounds",
    "samples",
)
COLUMNS = (
    *POINT,
    "origin",
    "found_in",
    "a_us",
    "b_us",
    "ratio",
    "ci_low",
    "ci_high",
    "ci_from",
    "paired",
    "verdict",
    "regression",
    "beside_race",  # b/a against the other series of its race, and the interval of that
    "beside_race_low",
    "beside_race_high",
    *(f"{side}_{column}" for side in ("a", "b") for column in OF_A_SIDE),
)


def write(result: Result, path: Path) -> None:
    """Write the file whole or not at all; folders above it are made. Raises OSError if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            sheet = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            sheet.writeheader()
            sheet.writerows(_lines(result))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _lines(result: Result) -> Iterator[dict[str, Any]]:
    beside = {(one.a.key, one.b.key): one for one in result.shared.beside}
    for one in result.compared:
        low, high = one.interval or (None, None)
        yield {
            **_point(one.a, one.b),
            "ratio": one.ratio,
            "ci_low": low,
            "ci_high": high,
            "ci_from": one.source,
            "paired": one.paired,
            "verdict": one.verdict,
            "regression": one.regressed(result.question.threshold),
            **_beside(beside.get((one.a.key, one.b.key))),
        }
    for a, b in result.not_ok:
        yield _point(a.row, b.row)
    yield from (_alone(entry, "a") for entry in result.matched.only_a)
    yield from (_alone(entry, "b") for entry in result.matched.only_b)


def _beside(one: Compared | None) -> dict[str, Any]:
    low, high = (one.interval if one else None) or (None, None)
    return {"beside_race": one and one.ratio, "beside_race_low": low, "beside_race_high": high}


def _point(a: Measurement, b: Measurement) -> dict[str, Any]:
    return {**_named(a), "found_in": "both", **_side("a", a), **_side("b", b)}


def _alone(entry: Entry, side: str) -> dict[str, Any]:
    return {**_named(entry.row), "found_in": side, **_side(side, entry.row)}


def _named(row: Measurement) -> dict[str, Any]:
    return {column: getattr(row, column) for column in (*POINT, "origin")}


def _side(side: str, row: Measurement) -> dict[str, Any]:
    columns = {f"{side}_{column}": getattr(row, column) for column in OF_A_SIDE}
    return {**columns, f"{side}_us": row.latency_us_p50}
