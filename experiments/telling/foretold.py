"""Predicted against measured: how far the planner's time of a point is from what the clock said there."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import distinct, family_order
from experiments.telling.scene import Scene
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Table
from experiments.telling.words import number, percent, tokens

HEADING = "Predicted against measured"
ABOUT = (
    "Each measured row beside what the profile of its device in conf/device predicts for the same bytes and FLOPs. The "
    "error is |predicted / measured - 1|."
)
BAND = 0.25  # of the predicted time, either way
FEWEST = 2  # one point compares nothing


@dataclass(frozen=True)
class Pair:
    """One point: us as predicted and as measured, with the ends of its interval where there are any."""

    variant: str
    scope: str
    context: int
    predicted: float
    measured: float
    low: float | None
    high: float | None
    key: str

    @property
    def error(self) -> float:
        """Relative to the measured time."""
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Held:
    """The pairs of one setting."""

    setting: Setting
    pairs: tuple[Pair, ...]

    @property
    def title(self) -> str:
        """The setting's."""
        return self.setting.title

    @property
    def predicted(self) -> bool:
        """The rows were measured; what was predicted is one of the axes."""
        return False

    @property
    def scopes(self) -> list[str]:
        """Those of the pairs, ``attend`` first."""
        return distinct(pair.scope for pair in self.pairs)

    @property
    def said(self) -> str:
        """``median error attend 4.0 % (n = 8), step 11 % (n = 8); 90 % of all within 25 %``."""
        each = ", ".join(f"{scope} {_median([p for p in self.pairs if p.scope == scope])}" for scope in self.scopes)
        inside = sum(abs(pair.measured / pair.predicted - 1) <= BAND for pair in self.pairs) / len(self.pairs)
        return f"median error {each}; {percent(inside)} of all points inside the band"


def held(scene: Scene) -> list[Held]:
    """Measured settings with at least two rows that could be predicted."""
    found = []
    for page in scene.pages:
        rows = [] if page.predicted else [r for r in page.records if r["status"] == "ok"]
        told = scene.foretell(rows)
        pairs = tuple(
            Pair(
                *(row["label"], row["scope"], row["context"], told[row["key"]], row["latency_us_p50"]),
                *(row["latency_us_ci_low"], row["latency_us_ci_high"], row["key"]),
            )
            for row in rows
            if row["key"] in told
        )
        if len(pairs) >= FEWEST:
            found.append(Held(page, pairs))
    return found


def foretold(found: Sequence[Held], figures: Sequence[Drawn]) -> Section:
    """One block per setting."""
    blocks = [
        Block(f"{it.title}:" if n else ABOUT, _table(it), [f"{it.said[0].upper()}{it.said[1:]}."], drawn)
        for n, (it, drawn) in enumerate(zip(found, figures, strict=True))
    ]
    return Section(HEADING, None, blocks)


def _median(pairs: Sequence[Pair]) -> str:
    return f"{percent(median(pair.error for pair in pairs))} (n = {len(pairs)})"


def _table(it: Held) -> Table:
    order = sorted(it.pairs, key=lambda p: (family_order(p.variant), p.scope, p.context))
    lines = (
        (
            *(p.variant, p.scope, tokens(p.context), number(p.predicted), number(p.measured)),
            *(percent(p.error), p.key),
        )
        for p in order
    )
    return Table(("variant", "scope", "context", "predicted, us", "measured, us p50", "error", "row"), tuple(lines))
