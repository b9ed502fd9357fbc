"""Settings: groups of rows whose variants may be compared. Nothing is drawn or divided across two of them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.record import TIMED
from experiments.telling.frame import SETTING, distinct, family_order, plain

LONG = ("device", "host", "versions")  # too long for a file name
IN_TITLE = ["origin", "device", "model", "dtype", "kv_dtype", "batch", "queries", "tp", "backend", "storage", "threads"]


@dataclass(frozen=True)
class Setting:
    """One page of the report: ``values`` of the setting's columns (null as None) and all rows that belong to it.

    ``slug`` is a short ASCII name, unique in the report; ``differs`` says what tells it from the report's others beyond
    what its ``title`` names.
    """

    values: dict[str, Any]
    rows: pd.DataFrame
    slug: str
    differs: str

    @property
    def predicted(self) -> bool:
        """Whether these rows were computed, not measured."""
        return bool(self.values["origin"] == "predicted")

    @property
    def title(self) -> str:
        """Device, model, batch, dtype and who computed: what a figure must say to stand alone."""
        v = self.values
        batch = "unknown batch" if v["batch"] is None else f"batch {v['batch']}"
        parts = [v["device"] or "unknown device", v["model"], batch, _dtypes(v)]
        parts += [f"{v['backend']} on {v['storage']}"]
        parts += [f"{v['threads']} thread{'s' if v['threads'] > 1 else ''}"] if v["threads"] else []
        parts += [f"tp {v['tp']}"] if v["tp"] != 1 else []
        parts += [f"{v['queries']} queries per step"] if v["queries"] not in (1, None) else []
        said = ("PREDICTED, not measured: " if self.predicted else "") + ", ".join(parts)
        return " ".join(said.split())

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
    ids = table["setting"]
    timed = distinct(plain(ids[table["status"].isin(TIMED)]))
    members = {i: {i} for i in timed}
    for untimed in (i for i in distinct(plain(ids)) if i not in members):
        hosts = [i for i in timed if _agrees(json.loads(untimed), json.loads(i))]
        for host in hosts or [untimed]:
            members.setdefault(host, {host}).add(untimed)
    order = sorted(members, key=lambda i: [(v is not None, v) for v in json.loads(i)])
    values = [dict(zip(SETTING, json.loads(i), strict=True)) for i in order]
    varying = [c for c in SETTING if len({json.dumps(v[c]) for v in values}) > 1]
    return [
        Setting(v, table[ids.isin(list(members[i]))], _slug(n, v, varying), _beyond_title(v, varying))
        for n, (i, v) in enumerate(zip(order, values, strict=True), start=1)
    ]


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
