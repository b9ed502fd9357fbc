"""Where a step's time and bytes go: its parts, each timed alone, beside the step as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import family_order, records
from experiments.telling.markdown import Markdown
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Row, Table
from experiments.telling.words import count, latency, number, percent, times, tokens
from variants.contract.dtype import Dtype
from variants.contract.scopes import PARTS

HEADING = "Where a step's time and bytes go"
ALONE = tuple(part for part in PARTS if part != "attend")  # scopes that only a step taken apart has


@dataclass(frozen=True)
class Taken:
    """One variant's step at one context, taken apart: ok rows by part, and the row of the step where there is one."""

    label: str
    context: int
    parts: Mapping[str, Row]
    step: Row | None

    @property
    def us(self) -> float:
        """Medians of the parts, added up."""
        return sum(float(row["latency_us_p50"]) for row in self.parts.values())


def taken_apart(setting: Setting) -> list[Taken]:
    """Every (variant, context) of which some part was timed alone; of a repeated point the last."""
    groups: dict[tuple[str, int], dict[str, Row]] = {}
    for row in setting.records:
        if row["status"] == "ok" and row["scope"] in (*PARTS, "step"):
            groups.setdefault((row["label"], row["context"]), {})[row["scope"]] = row
    return [
        Taken(label, context, {part: by[part] for part in PARTS if part in by}, by.get("step"))
        for (label, context), by in sorted(groups.items(), key=lambda g: (g[0][1], family_order(g[0][0])))
        if any(part in by for part in ALONE)
    ]


def parts(setting: Setting, n: int, figure: Drawn) -> Section:
    """The section of a setting in which some step was taken apart."""
    found = taken_apart(setting)
    without = [row for row in records(setting.tried) if (row["scope"], row["status"]) == ("absorb", "refused")]
    notes = [*_compared(found), *_absent(without)]
    return Section(HEADING, n, [Block(_ABOUT, _table(found), notes, figure)], frozenset(row["key"] for row in without))


_ABOUT = Markdown(
    "Each part of a decode step timed alone, cold, on the inputs that it has in the step: `project` makes queries and "
    "entries from x, `absorb` (MLA) takes queries into the latent's width and attended latents out of it, `append` "
    "writes the new entries, `attend` reads the cache, `output` projects back. Bytes are logical, of the whole batch: "
    "every weight once per step, the cache once."
)


def _table(found: Sequence[Taken]) -> Table:
    header = (
        "variant",
        "context",
        "part",
        "us p50 [CI] n",
        "of the sum",
        "bytes",
        "of weights",
        "of the cache",
        "GB/s",
    )
    rows = [line for taken in found for line in _lines(taken)]
    return Table(header, tuple(rows))


def _lines(taken: Taken) -> list[tuple[str, ...]]:
    at = (taken.label, tokens(taken.context))
    lines = []
    for part, row in taken.parts.items():
        share = percent(row["latency_us_p50"] / taken.us)
        sizes = (count(row["io_bytes"]), *map(count, weights_and_cache(part, row)))
        lines.append((*at, part, latency(row), share, *sizes, number(row["bandwidth_gbps"])))
    both = [weights_and_cache(part, row) for part, row in taken.parts.items()]
    moved = _sum([row["io_bytes"] for row in taken.parts.values()])
    sums = (count(moved), *(count(_sum([pair[i] for pair in both])) for i in (0, 1)))
    rate = None if moved is None else moved / taken.us / 1e3
    lines.append((*at, "sum of parts", number(taken.us), "100 %", *sums, number(rate)))
    if taken.step is not None:
        said = (latency(taken.step), percent(taken.step["latency_us_p50"] / taken.us), count(taken.step["io_bytes"]))
        lines.append((*at, "step", *said, *sums[1:], number(taken.step["bandwidth_gbps"])))
    return lines


def _sum(known: Sequence[int | None]) -> int | None:
    """Added up, unless one of them is not recorded."""
    return None if None in known else sum(n for n in known if n is not None)


def weights_and_cache(part: str, row: Row) -> tuple[int | None, int | None]:
    """Bytes of weights and of the cache that a part reads or writes, None where the row does not say.

    The rest are x, y, q and o.
    """
    if part == "append":
        return 0, row["io_bytes"]
    if part != "attend":
        return row["weight_bytes"], 0
    heads = (row["batch"], row["queries"], row["num_q_heads"], row["d_qk"], row["d_v"])
    if None in (*heads, row["io_bytes"], row["cache_bytes"]):
        return None, row["cache_bytes"]
    batch, queries, num_q_heads, d_qk, d_v = heads
    q_and_o = batch * queries * num_q_heads * (d_qk + d_v)
    return row["io_bytes"] - row["cache_bytes"] - Dtype.parse(row["dtype"]).bytes(q_and_o), row["cache_bytes"]


def _compared(found: Sequence[Taken]) -> list[str]:
    """Per variant: what the parts come to beside the step. They need not agree: each part starts alone and cold."""
    said = []
    for taken in found:
        if taken.step is None:
            said.append(f"{taken.label} at {tokens(taken.context)}: the step as a whole has no ok row.")
            continue
        ratio = taken.us / taken.step["latency_us_p50"]
        told = f"{times(ratio)} as long as" if ratio >= 1 else f"{percent(ratio)} of"
        said.append(f"{taken.label} at {tokens(taken.context)}: the parts alone take {told} the step.")
    return said


def _absent(rows: Sequence[Row]) -> list[str]:
    """Who has no such part, once per reason."""
    by: dict[str, set[str]] = {}
    for row in rows:
        by.setdefault(row["reason"], set()).add(row["label"])
    return [f"absorb of {', '.join(sorted(who, key=family_order))}: {reason}." for reason, who in by.items()]
