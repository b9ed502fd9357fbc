"""The tables of the report: measured points, environment, gaps. Cells are plain text; the page escapes them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from experiments.record import TIMED
from experiments.telling.frame import distinct, family_order, plain, records
from experiments.telling.setting import Setting
from experiments.telling.words import NOTHING, computed_by, count, exact_bytes, latency, number, percent, tokens
from variants.contract.tokens import format_tokens

Row = dict[str, Any]
TEMPERATURES = ("cold", "warm", None)


@dataclass(frozen=True)
class Table:
    """A header and rows of cells."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


POINTS = (
    "attention",
    "context",
    "cache B/token",
    "cache per sequence",
    "allocated, whole batch",
    "attend us p50 [CI] n",
    "step us p50 [CI] n",
    "GB/s",
    "% of roofline",
    "bound",
    "temperature",
    "kernel",
)


def points(setting: Setting) -> Table:
    """One line per variant and context, attend and step side by side; cells of both scopes read ``attend / step``."""
    groups: dict[tuple[str, int | None], list[Row]] = {}
    for row in setting.records:
        groups.setdefault((row["label"], row["context"]), []).append(row)
    order = sorted(groups, key=lambda g: (family_order(g[0]), g[1] or 0))
    return Table(POINTS, tuple(line for place in order for line in _point_lines(*place, groups[place])))


def environment(pages: Sequence[Setting]) -> Table:
    """What each setting ran on and with; one column per setting."""
    names = ("", *(f"setting {n}" for n in range(1, len(pages) + 1))) if len(pages) > 1 else ("", "this setting")
    return Table(names, tuple((name, *(_several(p, columns) for p in pages)) for name, columns in _ENVIRONMENT))


def gaps(pages: Sequence[Setting], explained: Collection[str]) -> Table:
    """Every row without a believable value, with the reason it gives; those whose keys are ``explained`` apart."""
    header = ("setting", "attention", "scope", "context", "status", "reason", "row")
    seen: set[str] = set()
    lines = []
    for n, page in enumerate(pages, start=1):
        untold = (page.tried["status"] != "ok") & ~page.tried["key"].isin(explained)
        for row in _in_order(records(page.tried[untold])):
            identity = f"{row['line']}{row['context']}{row['key']}"
            if identity not in seen:  # an untimed row may belong to several settings, but it is one gap
                seen.add(identity)
                by = f" by {computed_by(row)}" if page.several else ""
                place = (str(n), f"{row['label']}{by}", row["scope"], tokens(row["context"]))
                lines.append((*place, row["status"], row["reason"], row["key"]))
    return Table(header, tuple(lines))


def not_run(pages: Sequence[Setting]) -> Table:
    """Contexts that other variants of a setting have and this one has no row for, ok or not."""
    lines = []
    for n, page in enumerate(pages, start=1):
        have = set(zip(*(plain(page.rows[c]) for c in ("label", "scope", "context")), strict=True))
        for scope in distinct(plain(page.rows["scope"])):
            for label in page.variants:
                missing = [c for c in page.contexts(scope) if (label, scope, c) not in have]
                if missing:
                    lines.append((str(n), label, scope, _listed(missing)))
    return Table(("setting", "attention", "scope", "contexts without a row"), tuple(lines))


def coverage(page: Setting) -> tuple[int, int]:
    """Points of a setting with an ok row, and points there would be if every variant had every context and scope."""
    rows = page.rows
    ok = rows[rows["status"] == "ok"]
    have = set(zip(*(plain(ok[c]) for c in ("label", "scope", "context")), strict=True))
    wanted = sum(len(page.contexts(scope)) for scope in distinct(plain(rows["scope"]))) * len(page.variants)
    return len(have), wanted


_ENVIRONMENT = (
    ("device", ("device",)),
    ("host", ("host",)),
    ("threads", ("threads",)),
    ("versions", ("versions",)),
    ("commit", ("commit",)),
    ("origin", ("origin",)),
    ("model", ("model",)),
    ("layers", ("layers",)),
    ("dtype / cache dtype", ("dtype", "kv_dtype")),
    ("batch", ("batch",)),
    ("queries per step", ("queries",)),
    ("tensor parallel", ("tp",)),
    ("context parallel", ("cp",)),
    ("backend", ("backend",)),
    ("storage / order / page size", ("storage", "order", "page_size")),
    ("seed", ("seed",)),
    ("read ceiling, GB/s", ("read_ceiling_gbps",)),
    ("matmul ceiling, TFLOP/s", ("matmul_ceiling_tflops",)),
    ("interleave", ("interleave",)),
    ("studies", ("study",)),
)


def _several(page: Setting, columns: Sequence[str]) -> str:
    timed = page.tried[page.tried["status"].isin(TIMED)]
    rows = timed if len(timed) else page.tried
    return " / ".join(", ".join(_shown(v) for v in distinct(plain(rows[c]))) or NOTHING for c in columns)


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _point_lines(label: str, context: int | None, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    attend, step = ([r for r in _in_order(rows) if r["scope"] == scope] for scope in ("attend", "step"))
    return [_point_line(label, context, a, s) for a, s in zip_longest(attend, step)]


def _point_line(label: str, context: int | None, attend: Row | None, step: Row | None) -> tuple[str, ...]:
    pair = (attend, step)
    known = next((r for r in pair if r and r["cache_bytes"] is not None), None) or attend or step or {}
    return (
        label,
        tokens(context),
        count(known.get("bytes_per_token")),
        exact_bytes(known.get("bytes_per_sequence")),
        exact_bytes(known.get("allocated_bytes")),
        _time(attend),
        _time(step),
        _both(pair, "bandwidth_gbps", number),
        _both(pair, "roofline_fraction", percent),
        _both(pair, "bound", str),
        _both(pair, "temperature", str),
        _both(pair, "kernel", str),
    )


def _time(row: Row | None) -> str:
    if row is None:
        return "not run"
    return latency(row) if row["status"] == "ok" else f"{row['status']} (see gaps)"


def _both(pair: tuple[Row | None, Row | None], column: str, say: Any) -> str:
    said = [say(r[column]) if r and r["status"] == "ok" and r[column] is not None else NOTHING for r in pair]
    return said[0] if said[0] == said[1] else " / ".join(said)


def _in_order(rows: Sequence[Row]) -> list[Row]:
    def place(row: Row) -> tuple[Any, ...]:
        scope, temperature = row["scope"], TEMPERATURES.index(row["temperature"])
        return (family_order(row["label"]), scope, row["context"] or 0, temperature, row["repeat"])

    return sorted(rows, key=place)


def _listed(contexts: Sequence[int], most: int = 12) -> str:
    said = ", ".join(format_tokens(c) for c in contexts[:most])
    return said if len(contexts) <= most else f"{said} and {len(contexts) - most} more"
