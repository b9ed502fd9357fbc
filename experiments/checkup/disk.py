"""The folder that rows are written to."""

from dataclasses import dataclass

from experiments.checkup.check import Check, size

COMFORT, LEAST = 2**30, 50 * 2**20  # bytes


@dataclass(frozen=True)
class Disk:
    """``error``: why a file could not be written there; None: it could."""

    folder: str
    free: int
    error: str | None = None


def check(seen: Disk) -> list[Check]:
    """Rows that cannot be kept need not be measured."""
    if seen.error is not None:
        return [
            Check("results folder", "problem", f"{seen.folder}: {seen.error}", "results=FOLDER elsewhere", stops=True)
        ]
    said = f"{seen.folder}: writable, {size(seen.free)} free"
    if seen.free >= COMFORT:
        return [Check("results folder", "ok", said)]
    advice = "free some disk, or results=FOLDER on another: raw samples and figures are kept"
    if seen.free >= LEAST:
        return [Check("results folder", "note", said, advice)]
    return [Check("results folder", "problem", said, advice, stops=True)]
