"""Rows as columns with exact types: what a field of ``Measurement`` is, its column is.

Parquet is written and read in batches: memory does not grow with the number of rows.
"""

import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from experiments.record import Measurement

BATCH = 4096  # rows in memory at once, and in one row group
_KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def schema() -> pa.Schema:
    """One column per field of ``Measurement``, in its order; nullable where the field may be None."""
    hints = get_type_hints(Measurement)
    return pa.schema([_column(f.name, hints[f.name]) for f in fields(Measurement)])


def write_rows(rows: Iterable[Measurement], path: Path) -> None:
    """All rows as Parquet, whose pages zstd compresses."""
    kinds, rest = schema(), iter(rows)
    with pq.ParquetWriter(path, kinds, compression="zstd") as file:
        while some := list(islice(rest, BATCH)):
            file.write_batch(_batch(some, kinds))


def write_kept(source: Path, kept: NDArray[np.bool_], parquet: Path, csv: Path) -> Counter[str]:
    """Rows of a Parquet file where ``kept`` is true, as Parquet and as CSV; how many there are of each status.

    In the CSV a null is an empty cell, and text is quoted, so that an empty text is not a null.
    """
    statuses: Counter[str] = Counter()
    with pq.ParquetFile(source) as file:
        kinds = file.schema_arrow
        with pq.ParquetWriter(parquet, kinds, compression="zstd") as table, pa.csv.CSVWriter(csv, kinds) as sheet:
            start = 0
            for batch in file.iter_batches(BATCH):
                some = batch.filter(pa.array(kept[start : start + len(batch)]))
                start += len(batch)
                statuses.update(some.column("status").to_pylist())
                table.write_batch(some)
                sheet.write_batch(some)
    return statuses


def _column(name: str, hint: Any) -> pa.Field:
    """``int | None`` as a nullable column of int64."""
    parts = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (kind,) = (part for part in parts if part is not type(None))
    return pa.field(name, _KINDS[kind], nullable=type(None) in parts)


def _batch(rows: Sequence[Measurement], kinds: pa.Schema) -> pa.RecordBatch:
    cells = attrgetter(*kinds.names)  # all of a row at once: a call per cell would be most of the time
    columns = zip(*map(cells, rows), strict=True)
    return pa.record_batch([_array(values, f.type) for f, values in zip(kinds, columns, strict=True)], schema=kinds)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):  # a record may hold 3 where 3.0 is meant, and Arrow takes small integers only
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)
