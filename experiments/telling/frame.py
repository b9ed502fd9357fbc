"""Records as one tidy table: a row per measurement, every column kept, nothing averaged.

A *setting* is what must be equal before two variants may be compared (machine, model, dtypes, batch, storage, backend).
A *line* is a setting, a variant, a scope and a temperature: everything except the context.
"""

import json
import types
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd

from experiments.record import TIMED, Measurement
from experiments.records import Loaded
from experiments.telling.newest import IDENTITY, seconds

SETTING = (
    "origin",
    "device",
    "host",
    "threads",
    "versions",
    "model",
    "layers",
    "dtype",
    "kv_dtype",
    "batch",
    "queries",
    "tp",
    "cp",
    "backend",
    "storage",
    "order",
    "page_size",
    "seed",
)
HOW = ("backend", "storage", "order", "page_size")  # of these a variant may take its best
COMMON = tuple(column for column in SETTING if column not in HOW)
VARIANT = (
    "attention",
    "kind",
    "form",
    "num_q_heads",
    "num_kv_heads",
    "d_qk",
    "d_v",
    "scale",
    "window",
    "tp_mode",
)
LINE = (*SETTING, *VARIANT, "scope", "temperature")
FAMILY = ("mha", "gqa", "mqa", "mla")  # shown in this order, by falling cache size of the grouped three


@dataclass(frozen=True)
class Tidy:
    """The table and what was left out of it. ``read`` = len(table) + superseded."""

    table: pd.DataFrame
    read: int
    superseded: int
    warnings: tuple[str, ...]


def tidy(loaded: Loaded, folder: Path) -> Tidy:
    """Build the table; of rows with one key the newest ``started_at`` wins, then the last read.

    Added columns: ``setting`` and ``line`` (identities, as JSON text, so that null is a group of its own), ``label``
    (the variant's name on plots), ``repeat`` (rows of one line and context that have different keys; never averaged),
    ``bytes_per_sequence`` and ``bytes_per_token`` (one layer). Warnings are relative to ``folder``, so that the same
    records give the same report wherever they lie.
    """
    table = _typed(loaded.rows)
    newest = _newest(table)
    newest["setting"] = identity(newest, SETTING)
    newest["line"] = identity(newest, LINE)
    newest["label"] = _labels(newest)
    newest["repeat"] = newest.groupby(["line", "context"], dropna=False).cumcount()
    newest["bytes_per_sequence"] = newest["cache_bytes"] / newest["batch"]
    newest["bytes_per_token"] = newest["bytes_per_sequence"] / newest["context"].where(newest["context"] > 0)
    superseded = len(table) - len(newest)
    warnings = [w.replace(f"{folder}/", "") for w in loaded.warnings]
    return Tidy(newest, len(table), superseded, (*warnings, *_notices(newest, superseded)))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain mappings, null as None."""
    columns = {str(name): plain(table[name]) for name in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def plain(column: "pd.Series[Any]") -> list[Any]:
    """The values of a column as Python objects, null as None."""
    return [None if null else value for value, null in zip(column.tolist(), column.isna(), strict=True)]


def distinct(values: Iterable[Any]) -> list[Any]:
    """The different non-null values, sorted."""
    return sorted({v for v in values if v is not None})


def family_order(name: str) -> tuple[int, str]:
    """Sort key of variants: the known family first, then by name."""
    head = name.split(" ")[0]
    return (FAMILY.index(head) if head in FAMILY else len(FAMILY), name)


def _typed(rows: Sequence[Measurement]) -> pd.DataFrame:
    """Nullable dtypes throughout: a null must not turn bytes into floats."""
    hints = get_type_hints(Measurement)
    return pd.DataFrame(
        {f.name: pd.array([getattr(r, f.name) for r in rows], dtype=_dtype(hints[f.name])) for f in fields(Measurement)}
    )


def _dtype(hint: Any) -> Any:
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return "Float64" if float in kinds else "Int64" if int in kinds else "string"


def _newest(table: pd.DataFrame) -> pd.DataFrame:
    when = pd.Series([seconds(text) for text in plain(table["started_at"])], index=table.index, dtype="float64")
    order = when.sort_values(kind="stable").index  # stable: of equal times the last read stays last
    by_age = table.loc[order]
    last = ~identity(by_age, IDENTITY).duplicated(keep="last")
    return by_age[last].sort_index().reset_index(drop=True)


def identity(table: pd.DataFrame, columns: Sequence[str]) -> "pd.Series[str]":
    """The values of some columns as one JSON text per row, so that null is a value like others."""
    values = zip(*(plain(table[c]) for c in columns), strict=True)
    return pd.Series([json.dumps(v, ensure_ascii=False) for v in values], index=table.index, dtype="string")


def _labels(table: pd.DataFrame) -> "pd.Series[str]":
    """The attention's name, plus what tells two variants of that name apart within a setting (``mla (absorbed)``)."""
    telling: dict[str, set[str]] = {}
    for (_, attention), rows in table.groupby([identity(table, COMMON), "attention"], dropna=False):
        varying = {c for c in VARIANT[1:] if len(distinct(plain(rows[c]))) > 1}
        telling.setdefault(str(attention), set()).update(varying)
    labels = [_label(row, telling[row["attention"]]) for row in records(table[list(VARIANT)])]
    return pd.Series(labels, index=table.index, dtype="string")


def _label(row: dict[str, Any], telling: set[str]) -> str:
    words = [_word(c, row[c]) for c in VARIANT[1:] if c in telling and row[c] is not None]
    return f"{row['attention']} ({', '.join(words)})" if words else str(row["attention"])


def _word(column: str, value: Hashable) -> str:
    return str(value) if column in ("kind", "form", "tp_mode") else f"{column} {value}"


def _notices(table: pd.DataFrame, superseded: int) -> list[str]:
    notices = []
    if superseded:
        notices.append(f"{superseded} older rows superseded by a newer row of the same key and machine")
    repeats = table[table["repeat"] > 0]
    if len(repeats):
        keys = ", ".join(plain(repeats["key"])[:5])
        notices.append(f"{len(repeats)} rows repeat a point under another key and are drawn apart (e.g. {keys})")
    timed = table[table["status"].isin(TIMED)]
    copying = timed[timed["audits"].str.contains("transient=note", regex=False).fillna(False)]
    if len(copying):
        kernels = ", ".join(distinct(plain(copying["kernel"])))
        notices.append(
            f"{len(copying)} rows are of kernels that allocate more than a tenth of the cache in a call, "
            f"as one that copies or expands keys and values does; kernels: {kernels}"
        )
    for _, rows in timed.groupby("setting", dropna=False):
        commits = distinct(plain(rows["commit"]))
        if len(commits) > 1:
            notices.append(f"rows of one setting come from {len(commits)} commits: {', '.join(commits)}")
    return notices
