"""Several seeds as one number with an interval, and whether two variants differ by more than seeds do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` seeds; ``half``: Student's t interval reaches so far on either side, None for a single seed."""

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Of at least one value."""
        n, mean = len(values), sum(values) / len(values)
        if n < 2:
            return cls(mean, None, n)
        variance = sum((value - mean) ** 2 for value in values) / (n - 1)
        return cls(mean, float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * (variance / n) ** 0.5, n)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside; never so for one seed."""
        return self.half is not None and abs(self.mean) > self.half


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> Interval | None:
    """``one`` minus ``other``, seed by seed: both saw the same batches. None if they share no seed."""
    shared = sorted(one.keys() & other.keys())
    return Interval.of([one[seed] - other[seed] for seed in shared]) if shared else None
