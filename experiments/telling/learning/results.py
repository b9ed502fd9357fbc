"""Rows of trainings, sorted: those that may be compared stand together, a standing per variant."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from experiments.learned import Training
from experiments.telling.frame import family_order
from experiments.telling.learning.over_seeds import Interval, difference

ENOUGH = 0.95  # recall of the baseline, each seed's, from which on others are compared with it
ALIKE = ("task", "setting", "device")  # of rows that are compared


@dataclass(frozen=True)
class Standing:
    """A variant's seeds on one task. ``versus``: its score minus the baseline's on the same seeds."""

    rows: tuple[Training, ...]
    versus: Interval | None

    @property
    def one(self) -> Training:
        """Any of the rows: what is asked of it is the same in all."""
        return self.rows[0]

    @property
    def score(self) -> Interval:
        """What the task is judged by."""
        return Interval.of([score(row) for row in self.rows])

    @property
    def solved(self) -> bool:
        """Whether it recalls enough with every seed."""
        return self.one.task == "recall" and min(map(score, self.rows)) >= ENOUGH

    def at(self, point: int) -> list[float]:
        """The score of every seed at a point of the curve."""
        return [score_of(row.task, *row.curve[point][1:]) for row in self.rows if row.curve]


@dataclass(frozen=True)
class Result:
    """One task under one setting. ``missing``: trainings without an outcome; ``mixed``: seeds whose data differ."""

    task: str
    standings: tuple[Standing, ...]
    missing: tuple[Training, ...]
    mixed: tuple[int, ...]

    @property
    def any(self) -> Training:
        """A row, for what all have in common."""
        return (*(row for standing in self.standings for row in standing.rows), *self.missing)[0]

    @property
    def baseline(self) -> Standing | None:
        """The variant that the others are held against."""
        return next((one for one in self.standings if one.one.attention == self.any.baseline), None)


def score(row: Training) -> float:
    """Of a training that ended well."""
    assert row.loss is not None
    assert row.accuracy is not None
    return score_of(row.task, row.loss, row.accuracy)


def score_of(task: str, loss: float, accuracy: float) -> float:
    """Recall: the share of values that was right. Text: bits per byte, fewer of which are better."""
    return accuracy if task == "recall" else loss / math.log(2)


def results(rows: Sequence[Training]) -> list[Result]:
    """One per task and setting; recall first."""

    def setting(row: Training) -> tuple[str, ...]:
        return tuple(getattr(row, name) for name in ALIKE)

    return [_result(list(group)) for _, group in groupby(sorted(rows, key=setting), key=setting)]


def obstacle(found: Sequence[Result]) -> str | None:
    """Why nothing is ranked; None if it may be."""
    for result in found:
        if result.mixed:
            return f"{result.task}: variants saw different data under seeds {', '.join(map(str, result.mixed))}"
        if result.baseline is None:
            return f"{result.task}: {result.any.baseline} has no training that ended well"
        if result.task == "recall" and (worst := min(score(row) for row in result.baseline.rows)) < ENOUGH:
            return (
                f"recall is too hard at these settings: {result.any.baseline} reaches {worst:.1%} with its worst seed "
                f"and must reach {ENOUGH:.0%} with each; raise learning.recall.steps, or ask for fewer pairs"
            )
        if any(standing.score.half is None for standing in result.standings):
            return f"{result.task}: one seed has no interval; ask for more with learning.seeds"
    return None


def _result(rows: list[Training]) -> Result:
    ended = [row for row in rows if row.status == "ok"]
    by: dict[str, dict[int, Training]] = {}
    for row in ended:
        by.setdefault(row.attention, {})[row.seed] = row
    base = {seed: score(row) for seed, row in by.get(rows[0].baseline, {}).items()}
    standings = [
        Standing(
            tuple(seeds[seed] for seed in sorted(seeds)), difference({s: score(r) for s, r in seeds.items()}, base)
        )
        for _, seeds in sorted(by.items(), key=lambda item: family_order(item[0]))
    ]
    data: dict[int, set[str | None]] = {}
    for row in ended:
        data.setdefault(row.seed, set()).add(row.data)
    mixed = tuple(sorted(seed for seed, hashes in data.items() if len(hashes) > 1))
    return Result(rows[0].task, tuple(standings), tuple(row for row in rows if row.status != "ok"), mixed)
