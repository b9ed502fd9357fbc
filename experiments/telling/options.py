"""What each variant is: module, heads, widths and bytes, as the rows have them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.telling.frame import distinct, family_order, plain
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, count, percent

_OPTIONS = ("variant", "module and form", "heads q:kv", "d_qk/d_v", "cache B/token/layer")
_OPTION_COLUMNS = ("kind", "form", "num_q_heads", "num_kv_heads", "d_qk", "d_v", "bytes_per_token")


def options(rows: pd.DataFrame) -> Table:
    """What each variant is, as far as the rows say; several values of a column are all named."""
    coded = bool(rows["kv_error"].notna().any())
    lines = []
    for label in sorted(distinct(plain(rows["label"])), key=family_order):
        mine = rows[rows["label"] == label]
        said = {c: span(distinct(plain(mine[c]))) for c in _OPTION_COLUMNS}
        kind = " ".join(said[c] for c in ("kind", "form") if said[c] != NOTHING) or NOTHING
        heads = f"{said['num_q_heads']}:{said['num_kv_heads']}"
        error = (_coding_errors(mine),) if coded else ()
        lines.append((label, kind, heads, f"{said['d_qk']}/{said['d_v']}", said["bytes_per_token"], *error))
    return Table((*_OPTIONS, *(("attended values off by codes",) if coded else ())), tuple(lines))


def _coding_errors(rows: pd.DataFrame) -> str:
    """The largest relative error that each cache dtype of codes causes, against a cache of the weights' dtype."""
    worst = rows.dropna(subset=["kv_error"]).groupby("kv_dtype")["kv_error"].max()
    return ", ".join(f"{dtype}: {percent(error)}" for dtype, error in worst.items()) or NOTHING


def span(values: Sequence[Any]) -> str:
    """The only value, or the first and the last."""
    said = [count(v) if isinstance(v, float) else str(v) for v in values]
    return (said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}") if said else NOTHING
