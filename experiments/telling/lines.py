"""Times over the prefix, scope by scope, and how they grow beside what bytes and FLOPs say."""

from dataclasses import dataclass

from experiments.telling.frame import family_order, records
from experiments.telling.growth import cumulative, exponents, fixed_cost
from experiments.telling.setting import Setting
from experiments.telling.tables import Row
from variants.contract.cost import Work, roofline

SCOPES = ("step", "recompute", "prefill")
AGREES = 0.15  # between a measured exponent and the one that is counted
FIXED = 0.15  # share of the time: with more of it a growth exponent is about the fixed cost, not about the counts


@dataclass(frozen=True)
class Line:
    """A variant in one scope: its ok rows by rising context, all of one temperature."""

    label: str
    scope: str
    rows: tuple[Row, ...]

    @property
    def contexts(self) -> list[int]:
        """Cached tokens, or rows of the prefix."""
        return [row["context"] for row in self.rows]

    @property
    def us(self) -> list[float]:
        """Medians."""
        return [row["latency_us_p50"] for row in self.rows]

    @property
    def floors(self) -> list[float]:
        """Roofline floors in us by one pair of ceilings: those of single rows may have been measured again between."""
        reads, rates = ([row[c] for row in self.rows if row[c]] for c in ("read_ceiling_gbps", "matmul_ceiling_tflops"))
        if not (reads and rates and all(row["io_bytes"] for row in self.rows)):
            return []
        works = (Work(row["io_bytes"], row["flops"]) for row in self.rows)
        return [roofline(work, max(reads), max(rates)).us for work in works]


@dataclass(frozen=True)
class Growth:
    """Between two neighbouring contexts: exponents measured and counted, and the fixed cost's share at the first."""

    line: Line
    start: int
    stop: int
    measured: float
    counted: float
    fixed: float

    @property
    def overhead_bound(self) -> bool:
        """Whether too much of the time is a fixed cost for the counts to say how it grows."""
        return self.fixed > FIXED

    @property
    def agrees(self) -> bool:
        """Whether the time grows as the counts do."""
        return abs(self.measured - self.counted) <= AGREES

    def __str__(self) -> str:
        mark = "*" if self.overhead_bound else "" if self.agrees else " !"
        return f"{self.measured:.2f} / {self.counted:.2f}{mark}"


def lines(setting: Setting) -> list[Line]:
    """Every (variant, scope) with an ok row at two contexts or more; of two temperatures the one with more rows."""
    groups: dict[tuple[str, str], dict[str | None, list[Row]]] = {}
    for row in records(setting.rows):
        if row["scope"] in SCOPES and row["status"] == "ok" and row["repeat"] == 0:
            groups.setdefault((row["label"], row["scope"]), {}).setdefault(row["temperature"], []).append(row)
    found = []
    for (label, scope), by_temperature in groups.items():
        rows = {row["context"]: row for row in max(by_temperature.values(), key=len)}  # of a doubled point the last
        if len(rows) > 1:
            found.append(Line(label, scope, tuple(rows[context] for context in sorted(rows))))
    return sorted(found, key=lambda line: (family_order(line.label), SCOPES.index(line.scope)))


def growths(line: Line) -> list[Growth]:
    """Every interval of a line; none where its ceilings are unknown."""
    floors = line.floors
    if not floors:
        return []
    fixed = fixed_cost(line.us, floors)
    pairs = zip(exponents(line.contexts, line.us), exponents(line.contexts, floors), strict=True)
    return [
        Growth(line, line.contexts[i], line.contexts[i + 1], float(measured), float(counted), fixed / line.us[i])
        for i, (measured, counted) in enumerate(pairs)
    ]


def added_up(line: Line) -> list[float]:
    """Seconds of all steps of a line from its first context on."""
    return [float(us) / 1e6 for us in cumulative(line.contexts, line.us)]
