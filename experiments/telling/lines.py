"""Times over the prefix, scope by scope, and how they grow beside what bytes and FLOPs say."""

from dataclasses import dataclass

from experiments.telling.frame import family_order
from experiments.telling.growth import Rates, cumulative, exponents, fit_rates, fixed_cost
from experiments.telling.setting import Setting
from experiments.telling.tables import Row
from variants.contract.cost import Floor, Work, roofline

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
        """Roofline floors in us; none where ceilings are unknown."""
        return [roof.us for roof in self._roofs]

    @property
    def reached(self) -> Rates | None:
        """What projections and attention take beside their floors, where FLOPs are the floor at every prefix."""
        if {roof.bound for roof in self._roofs} != {"compute"}:
            return None
        return fit_rates(self.contexts, self.us, self.floors)

    @property
    def _roofs(self) -> list[Floor]:
        """By one pair of ceilings: those of single rows may have been measured again between."""
        reads, rates = ([row[c] for row in self.rows if row[c]] for c in ("read_ceiling_gbps", "matmul_ceiling_tflops"))
        if not (reads and rates and all(row["io_bytes"] for row in self.rows)):
            return []
        works = (Work(row["io_bytes"], row["flops"]) for row in self.rows)
        return [roofline(work, max(reads), max(rates)) for work in works]


@dataclass(frozen=True)
class Growth:
    """Between two neighbouring contexts: exponents measured and counted, and the fixed cost's share at the first.

    ``counted`` has all FLOPs at the ceiling, ``reached`` has those of projections and of attention each at the rate
    that the line's kernels reach; None where that cannot be told.
    """

    line: Line
    start: int
    stop: int
    measured: float
    counted: float
    reached: float | None
    fixed: float

    @property
    def overhead_bound(self) -> bool:
        """Whether too much of the time is a fixed cost for the counts to say how it grows."""
        return self.fixed > FIXED

    @property
    def agrees(self) -> bool:
        """Whether the time grows as the counts do, at the rates that are reached."""
        return abs(self.measured - (self.counted if self.reached is None else self.reached)) <= AGREES

    def __str__(self) -> str:
        mark = "*" if self.overhead_bound else "" if self.agrees else " !"
        said = [self.measured, self.counted, *([] if self.reached is None else [self.reached])]
        return " / ".join(f"{exponent:.2f}" for exponent in said) + mark


def lines(setting: Setting) -> list[Line]:
    """Every (variant, scope) with an ok row at two contexts or more; of two temperatures the one with more rows."""
    groups: dict[tuple[str, str], dict[str | None, list[Row]]] = {}
    for row in setting.records:
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
    floors, reached = line.floors, line.reached
    if not floors:
        return []
    fixed = fixed_cost(line.us, floors) if reached is None else reached.fixed
    slopes = [exponents(line.contexts, times) for times in (line.us, floors)]
    slopes.append(exponents(line.contexts, floors if reached is None else reached.times))
    return [
        Growth(
            line,
            line.contexts[i],
            line.contexts[i + 1],
            float(measured),
            float(counted),
            None if reached is None else float(at_rates),
            fixed / line.us[i],
        )
        for i, (measured, counted, at_rates) in enumerate(zip(*slopes, strict=True))
    ]


def added_up(line: Line) -> list[float]:
    """Seconds of all steps of a line from its first context on."""
    return [float(us) / 1e6 for us in cumulative(line.contexts, line.us)]
