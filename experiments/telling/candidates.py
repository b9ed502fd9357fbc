"""Who competes at a setting's decision point, and who does not and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from experiments.telling.doubt import Doubt, Doubts, doubt_of
from experiments.telling.frame import distinct, family_order
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.words import computed_by, latency
from variants.contract.tokens import format_tokens

NO_DOUBTS: Doubts = MappingProxyType({})
ENOUGH = 2  # a comparison takes two


@dataclass(frozen=True)
class Share:
    """The share of its roofline that a variant reaches in a scope at the decision point, and the row that says so."""

    scope: str
    fraction: float
    key: str


@dataclass(frozen=True)
class Candidate:
    """A variant's ok row at the decision point: us per layer with its interval, and cache bytes of the whole batch.

    ``said`` are its time and key in words; ``shares`` what it reaches of its roofline at this point and temperature, by
    the kernel alone and in the scope that decides. Of a mix of points these are means by their shares, and ``keys`` has
    the row of every point. ``doubt``: how far nine of ten such predictions are off at most, where that is known;
    ``outside`` says how this shape lies beyond those that were held out.
    """

    variant: str
    us: float
    low: float | None
    high: float | None
    bytes: int | None
    said: str
    shares: tuple[Share, ...]
    keys: tuple[str, ...]
    doubt: float | None = None
    outside: str | None = None

    @property
    def size(self) -> float:
        """Bytes for ranking; unknown ranks last."""
        return math.inf if self.bytes is None else self.bytes

    @property
    def key(self) -> str:
        """The row it rests on, of a mix the first."""
        return self.keys[0]

    @property
    def row(self) -> str:
        """The rows it rests on."""
        return f"row{'s' if len(self.keys) > 1 else ''} {', '.join(self.keys)}"


@dataclass(frozen=True)
class Absent:
    """A variant that does not compete, why, and its row's status (null if it has no row at the point).

    ``size``: bytes of its row's caches and weights, infinite where nobody knows.
    """

    variant: str
    why: str
    status: str | None
    size: float = math.inf


Rows = list[dict[str, Any]]


def scope_rows(setting: Setting, scope: str) -> Rows:
    """The setting's rows of a scope, as plain mappings."""
    return [row for row in setting.records if row["scope"] == scope]


def point_rows(setting: Setting, scope: str, context: int | None) -> Rows:
    """Those of one context."""
    return list(setting.points.get((scope, context), ()))


def decision_context(rows: Rows, rule: Rule) -> int | None:
    """The rule's context; else the largest at which two variants can be compared, else the largest with a value."""
    if rule.context is not None:
        return rule.context.sizes[-1]
    by_context: dict[int, Rows] = {}
    for row in rows:
        if row["context"] is not None:
            by_context.setdefault(row["context"], []).append(row)
    known = {c: len(_same_temperature(members)[1]) for c, members in by_context.items()}
    for enough in (ENOUGH, 1, 0):
        contexts = [c for c, candidates in known.items() if candidates >= enough]
        if contexts:
            return max(contexts)
    return None


def at_point(
    setting: Setting, scope: str, context: int | None, doubts: Doubts = NO_DOUBTS
) -> tuple[str | None, list[Candidate]]:
    """The temperature compared and the candidates in it: cold or warm, whichever has more (cold if equally many).

    A warm time against a cold one would be a comparison of caches, so the two are never put side by side: neither as
    times nor as shares, a warm row's roof being another.
    """
    temperature, chosen = _same_temperature(point_rows(setting, scope, context))
    beside = [] if scope == "attend" else latest(point_rows(setting, "attend", context), temperature)
    return temperature, [_candidate(row, beside, setting.several, doubts) for row in chosen]


def latest(rows: Rows, temperature: str | None) -> Rows:
    """Each variant's ok row of a temperature, in family order; a repeat comes later in the table."""
    found = {row["label"]: row for row in rows if (row["status"], row["temperature"]) == ("ok", temperature)}
    return [found[label] for label in sorted(found, key=family_order)]


def _same_temperature(rows: Rows) -> tuple[str | None, Rows]:
    groups: dict[str | None, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["status"] == "ok":
            groups.setdefault(row["temperature"], {})[row["label"]] = row  # a repeat comes later in the table
    if not groups:
        return None, []
    temperature = max(groups, key=lambda t: (len(groups[t]), t == "cold", t == "warm"))
    return temperature, sorted(groups[temperature].values(), key=lambda r: family_order(r["label"]))


def _candidate(row: dict[str, Any], beside: Rows, several: bool, doubts: Doubts) -> Candidate:
    doubt = doubt_of(doubts, row["device"], row["kernel"]) if row["origin"] == "predicted" else None
    low, high = row["latency_us_ci_low"], row["latency_us_ci_high"]
    known = low is not None and high is not None
    rounds = f" in {row['rounds']} rounds" if row["rounds"] is not None else ""
    by = f" by {computed_by(row)}" if several else ""
    looked_at = [*(r for r in beside if r["label"] == row["label"]), row]
    return Candidate(
        row["label"],
        row["latency_us_p50"],
        low if known else None,
        high if known else None,
        row["cache_bytes"],
        f"p50 {latency(row, ' us')}{rounds}{by}, row {row['key']}",
        tuple(
            Share(r["scope"], r["roofline_fraction"], r["key"]) for r in looked_at if r["roofline_fraction"] is not None
        ),
        (row["key"],),
        doubt.p90 if doubt else None,
        _outside(row, doubt) if doubt else None,
    )


def absence(variant: str, rows: Sequence[dict[str, Any]], context: int | None) -> Absent:
    """Why a variant, of whose scope these are all ``rows``, has no part in a comparison at ``context``."""
    here = [r for r in rows if r["context"] in (context, None)]  # a config that could not be built fails everywhere
    failed = [r for r in here if r["status"] != "ok"]
    if failed:
        row = failed[-1]
        return Absent(variant, f"{row['status']}, {row['reason']} (row {row['key']})", row["status"], _takes(row))
    if here:
        other = here[-1]
        return Absent(variant, f"is {other['temperature'] or 'of no stated temperature'} (row {other['key']})", "ok")
    others = distinct(r["context"] for r in rows if r["status"] == "ok")
    elsewhere = f"; it has ok rows at {', '.join(map(format_tokens, others))}" if others else ""
    return Absent(variant, f"not run at this point{elsewhere}" if rows else "no row in this setting", None)


def _outside(row: dict[str, Any], doubt: Doubt) -> str | None:
    if not row["num_q_heads"] or not row["num_kv_heads"]:
        return None
    group, (low, high) = row["num_q_heads"] / row["num_kv_heads"], doubt.rows
    return (
        None if low <= group <= high else f"{group:g} query heads per cached head, where {low} to {high} were held out"
    )


def _takes(row: dict[str, Any]) -> float:
    cache, weights = row["allocated_bytes"] or row["cache_bytes"], row["weight_bytes"]
    return math.inf if cache is None else cache + (weights or 0)
