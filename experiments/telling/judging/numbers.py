"""What the rows of one run say of each variant, and how sure that is: windows are compared pair by pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t

from experiments.scored import Scored

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Against:
    """A perplexity over the original's, and Student's interval over windows; None with a single window."""

    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Judged:
    """A variant: the row of its conversion, and of what it was after distillation where that is one."""

    before: Scored
    after: Scored | None

    @property
    def label(self) -> str:
        """What it is called."""
        return self.before.label

    @property
    def rows(self) -> list[Scored]:
        """One or both."""
        return [self.before] if self.after is None else [self.before, self.after]

    @property
    def last(self) -> Scored:
        """The best that was made of it, by effort and not by result."""
        return self.rows[-1]


def original(rows: Sequence[Scored]) -> Scored:
    """The row that all others are held against; ValueError where there is none, or several."""
    found = [row for row in rows if row.method == "original"]
    if len(found) != 1:
        raise ValueError(f"rows of quality need one row of the original; got {len(found)}")
    return found[0]


def comparable(rows: Sequence[Scored]) -> list[Scored]:
    """Those that were scored on the same windows as the original that was scored last, of the same checkpoint.

    Of a variant's rows in one state of training the last counts, and of several trainings the one of most steps.
    ValueError where there is no original.
    """
    last = [row for row in rows if row.method == "original"][-1:]
    if not last:
        raise ValueError("rows of quality need one row of the original; got 0")
    mine = [row for row in rows if _setting(row) == _setting(last[0])]
    found: dict[tuple[str, bool], Scored] = {}
    for row in mine:
        state = (row.label, row.steps > 0)
        if state not in found or row.steps >= found[state].steps:
            found[state] = row
    return list(found.values())


def _setting(row: Scored) -> tuple[object, ...]:
    return row.checkpoint, row.note, row.layers, row.dtype, row.corpus, row.window, len(row.nll)


def front(found: Sequence[Judged]) -> list[Judged]:
    """Variants that no other beats by bytes and perplexity, as last trained: fewest bytes first."""
    placed = [(it.last.bytes_per_token, it.last.perplexity, it) for it in found]
    best = [
        (size, worse, it)
        for size, worse, it in placed
        if not any(a <= size and b <= worse and (a, b) != (size, worse) for a, b, _ in placed)
    ]
    return [it for _, _, it in sorted(best, key=lambda one: one[:2])]


def judged(rows: Sequence[Scored]) -> list[Judged]:
    """Variants in the order of the bytes that they cache, most first; the original among them."""
    before = {row.label: row for row in rows if not row.steps}
    after = {row.label: row for row in rows if row.steps}
    found = [Judged(row, after.get(label)) for label, row in before.items()]
    return sorted(found, key=lambda it: (-it.before.bytes_per_token, it.label))


def against(row: Scored, base: Scored) -> Against:
    """How much worse a row foretells the same windows; ValueError if they are not the same number."""
    apart = [mine - theirs for mine, theirs in zip(row.nll, base.nll, strict=True)]
    mean = math.fsum(apart) / len(apart)
    if len(apart) < 2:
        return Against(math.exp(mean), None)
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in apart) / (len(apart) - 1))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(apart) - 1)) * deviation / math.sqrt(len(apart))
    return Against(math.exp(mean), (math.exp(mean - half), math.exp(mean + half)))
