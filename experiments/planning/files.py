"""From a file of points to a file of predictions, a piece at a time: memory does not grow with the file."""

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from experiments.planning.columns import SHAPE, Piece, pieces
from experiments.planning.predict import predict_shapes
from experiments.planning.profile import DeviceProfile

ADDED = ("latency_us", "bound", "floor_us")
GIVEN = "given_"  # before the name of a column that the points have under a name that we add


def predict_file(profile: DeviceProfile, points: Path, out: Path) -> int:
    """Write ``points`` with the columns of ``ADDED`` to ``out`` and return how many there are.

    Columns beside the shape are kept; one that is called like an added one is kept as ``given_...``, so that a table of
    measured latencies becomes one of measured against predicted. Raises ValueError or OSError, with ``out`` untouched.
    """
    if not out.parent.is_dir():
        raise FileNotFoundError(f"out must lie in a folder that is there; there is no folder {out.parent}")
    if out.exists() and out.samefile(points):
        raise ValueError(f"out must be another file than points; got {out} for both")
    count = 0
    with _whole(out) as file:
        writer = csv.writer(file, lineterminator="\n")
        for piece in pieces(points, SHAPE):
            if not count:
                writer.writerow([*_header(piece, points), *ADDED])
            writer.writerows(_rows(profile, piece))
            count += len(piece.rows)
    return count


def _header(piece: Piece, points: Path) -> list[str]:
    names = [GIVEN + name if name in ADDED else name for name in piece.header]
    if len(set(names)) < len(names):
        raise ValueError(f"{points}: the first row has {GIVEN}... and the column it would be given to; rename one")
    return names


def _rows(profile: DeviceProfile, piece: Piece) -> Iterator[list[str]]:
    told = predict_shapes(profile, piece.shapes())
    numbers = zip(told.latency_us.tolist(), told.bound, told.floor_us.tolist(), strict=True)
    return (
        [*cells, f"{us:.4f}", bound, f"{floor:.4f}"]
        for cells, (us, bound, floor) in zip(piece.cells, numbers, strict=True)
    )


@contextmanager
def _whole(out: Path) -> Iterator[TextIO]:
    """A file that appears under its name only when everything has been written to it."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
