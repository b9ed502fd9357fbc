"""Rows that their folder cannot take - it is full, read-only, or gone - go elsewhere, and where is said."""

import errno
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.measuring.timed import Measured
from experiments.runfolder import store


def store_or_rescue(folder: Path, measured: Sequence[Measured]) -> Iterator[Measured]:
    """Store a point's rows series by series, giving each once it is on the disk.

    Raises OSError, saying where the rows are that ``folder`` did not take, or which ones are lost.
    """
    for number, one in enumerate(measured):
        try:
            if not folder.is_dir():  # it is not made again behind the back of who removed it
                raise FileNotFoundError(errno.ENOENT, "the folder of this run is gone", str(folder))
            store(folder, one.rows, one.samples)
        except OSError as error:
            raise OSError(f"{folder} cannot be written: {error}; {_rescued(measured[number:])}") from error
        yield one


def _rescued(measured: Sequence[Measured]) -> str:
    """Put what is left into a new folder for temporary files, and say so."""
    rows = [row for one in measured for row in one.rows]
    try:
        place = Path(tempfile.mkdtemp(prefix="kvariants-rescued-"))
        for one in measured:
            store(place, one.rows, one.samples)
    except OSError as error:
        lost = ", ".join(f"{row.attention} {row.scope} {row.context}" for row in rows)
        return f"{len(rows)} rows are lost, for temporary files cannot be written either ({error}): {lost}"
    return f"{len(rows)} rows are in {place}: move its folders below the run's, or measure these points again"
