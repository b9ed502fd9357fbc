"""Settings: groups of rows whose variants may be compared. Nothing is drawn or divided across two of them.

Rows of one backend are a setting per storage. Where several backends ran in one place they are one setting together, in
which every variant is shown by the best that any of them, on any storage, made of it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.record import TIMED
from experiments.telling.frame import COMMON, HOW, SETTING, distinct, family_order, identity, plain, records

POINT = ["label", "scope", "context"]
LONG = ("device", "host", "versions")  # too long for a file name
IN_TITLE = [
    "origin",
    "device",
    "model",
    "dtype",
    "kv_dtype",
    "batch",
    "queries",
    "tp",
    "cp",
    "backend",
    "storage",
    "threads",
]


@dataclass(frozen=True, eq=False)  # tables have no truth value: a setting equals itself alone
class Setting:
    """One page of the report: ``values`` of the setting's columns (null as None) and the ``rows`` that belong to it.

    Of several backends (``values`` name none then) ``rows`` holds the best of each point and ``tried`` all there are;
    else the two are the same. ``slug`` is a short ASCII name, unique in the report; ``differs`` says what tells it from
    the report's others beyond what its ``title`` names.
    """

    values: dict[str, Any]
    rows: pd.DataFrame
    tried: pd.DataFrame
    slug: str
    differs: str

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """``rows`` as plain mappings."""
        return records(self.rows)

    @cached_property
    def points(self) -> Mapping[tuple[str, int | None], Sequence[dict[str, Any]]]:
        """``records`` by scope and context, in their order."""
        found: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
        for row in self.records:
            found.setdefault((row["scope"], row["context"]), []).append(row)
        return found

    @property
    def predicted(self) -> bool:
        """Whether these rows were computed, not measured."""
        return bool(self.values["origin"] == "predicted")

    @property
    def several(self) -> bool:
        """Whether these rows are the best of several backends."""
        return self.values["backend"] is None

    @property
    def title(self) -> str:
        """Device, model, batch, dtype and who computed: what a figure must say to stand alone."""
        v = self.values
        batch = "unknown batch" if v["batch"] is None else f"batch {v['batch']}"
        parts = [v["device"] or "unknown device", v["model"], batch, _dtypes(v)]
        parts += [self._computed]
        parts += [f"{v['threads']} thread{'s' if v['threads'] > 1 else ''}"] if v["threads"] else []
        parts += [f"{split} {v[split]}" for split in ("tp", "cp") if v[split] != 1]
        parts += [f"{v['queries']} queries per step"] if v["queries"] not in (1, None) else []
        said = ("PREDICTED, not measured: " if self.predicted else "") + ", ".join(parts)
        return " ".join(said.split())

    @property
    def _computed(self) -> str:
        if not self.several:
            return f"{self.values['backend']} on {self.values['storage']}"
        timed = distinct(plain(self.tried.loc[self.tried["status"].isin(TIMED), "backend"]))
        return f"best of {', '.join(timed)}" if timed else "no backend"

    @property
    def variants(self) -> list[str]:
        """Labels of the variants that have a row here, in family order."""
        return sorted(distinct(plain(self.rows["label"])), key=family_order)

    def contexts(self, scope: str | None = None) -> list[int]:
        """Contexts (cached tokens) that any row of ``scope`` has, rising."""
        rows = self.rows if scope is None else self.rows[self.rows["scope"] == scope]
        return distinct(plain(rows["context"]))


def settings(table: pd.DataFrame) -> list[Setting]:
    """Split a tidy table into its settings.

    A row without a time may lack what only a measurement knows (threads, order). It joins every setting that its
    other columns agree with, so that a refused variant shows up next to those that ran.
    """
    found: dict[str, pd.DataFrame] = {}
    for common, rows in _groups(table, COMMON).items():
        several = rows["backend"].nunique() > 1
        found |= {_whole(common): rows} if several else _groups(rows, SETTING)
    placed = {row for rows in found.values() if rows["status"].isin(TIMED).any() for row in rows.index}
    found = {i: r for i, r in found.items() if r["status"].isin(TIMED).any() or not placed.issuperset(r.index)}
    order = sorted(found, key=lambda i: [(v is not None, v) for v in json.loads(i)])
    values = [dict(zip(SETTING, json.loads(i), strict=True)) for i in order]
    varying = [c for c in SETTING if len({json.dumps(v[c]) for v in values}) > 1]
    return [
        Setting(v, _shown(v, found[i]), found[i], _slug(n, v, varying), _beyond_title(v, varying))
        for n, (i, v) in enumerate(zip(order, values, strict=True), start=1)
    ]


def _groups(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Rows by what they have in ``columns`` (as JSON text); those without a time join those that they agree with."""
    ids = identity(table, columns)
    timed = distinct(plain(ids[table["status"].isin(TIMED)]))
    members = {i: {i} for i in timed}
    for untimed in (i for i in distinct(plain(ids)) if i not in members):
        hosts = [i for i in timed if _agrees(json.loads(untimed), json.loads(i))]
        for host in hosts or [untimed]:
            members.setdefault(host, {host}).add(untimed)
    return {i: table[ids.isin(list(joined))] for i, joined in members.items()}


def _whole(common: str) -> str:
    """The identity of a setting of several backends: none of what they differ in."""
    values = dict(zip(COMMON, json.loads(common), strict=True)) | dict.fromkeys(HOW)
    return json.dumps([values[c] for c in SETTING], ensure_ascii=False)


def _shown(values: dict[str, Any], tried: pd.DataFrame) -> pd.DataFrame:
    """All rows of one backend; of several the fastest of each point, or one that says why there is none."""
    if values["backend"] is not None:
        return tried
    fastest = tried.sort_values("latency_us_p50", kind="stable")  # rows without a time come last
    ok = fastest[fastest["status"] == "ok"].drop_duplicates([*POINT, "temperature"])
    without = fastest[~identity(fastest, POINT).isin(identity(ok, POINT).tolist())]
    tell = without.sort_values("status", key=lambda status: status == "refused", kind="stable").drop_duplicates(POINT)
    return pd.concat([ok, tell]).sort_index().assign(repeat=0)


def _agrees(partial: Sequence[Any], full: Sequence[Any]) -> bool:
    return all(p is None or p == f for p, f in zip(partial, full, strict=True))


def _beyond_title(values: dict[str, Any], varying: Sequence[str]) -> str:
    return ", ".join(_say(c, values[c]) for c in varying if c not in IN_TITLE)


def _say(column: str, value: Any) -> str:
    if value is None:
        return f"no {column}"
    return str(value) if column in ("origin", "model", "dtype", "backend", "storage") else f"{column} {value}"


def _slug(number: int, values: dict[str, Any], varying: Sequence[str]) -> str:
    """A file name's start; empty for the only setting."""
    if not varying:
        return ""
    said = " ".join(_say(c, values[c]) for c in varying if c not in LONG and values[c] is not None)
    words = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")[:48].strip("-")
    return f"{number:02d}-{words}" if words else f"{number:02d}"


def _dtypes(values: dict[str, Any]) -> str:
    dtype, kv = values["dtype"], values["kv_dtype"]
    return str(dtype) if dtype == kv else f"{dtype} with {kv} cache"
