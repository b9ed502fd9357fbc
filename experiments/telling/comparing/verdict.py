"""The ratio of one point's two times, its interval, and what that comes to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.ratio import Interval, ratio_interval, ratio_of_intervals
from experiments.record import Measurement
from experiments.telling.comparing.side import Entry


@dataclass(frozen=True)
class Compared:
    """Two ok rows of one point. ``ratio``: median of b over median of a; above 1, b is slower.

    ``source`` says what the interval was computed from: ``samples``, ``rows`` (no raw samples: the rows' own intervals)
    or None where there is no interval; then nothing is significant.
    """

    a: Measurement
    b: Measurement
    ratio: float
    interval: Interval | None
    source: str | None
    paired: bool

    @property
    def significant(self) -> bool:
        """Whether the interval excludes equal times."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]

    @property
    def verdict(self) -> str:
        """faster, slower or same (no significant difference), said of b; unknown without an interval."""
        if self.interval is None:
            return "unknown"
        return ("slower" if self.ratio > 1 else "faster") if self.significant else "same"

    def beyond(self, threshold: float) -> bool:
        """Whether the difference is significant and larger than ``threshold``, in either direction."""
        return self.significant and max(self.ratio, 1 / self.ratio) > 1 + threshold

    def surely_beyond(self, threshold: float) -> bool:
        """Whether every ratio of the interval is: at its confidence the difference is that large."""
        return self.interval is not None and (
            self.interval[0] > 1 + threshold or self.interval[1] < 1 / (1 + threshold)
        )

    def regressed(self, threshold: float) -> bool:
        """Whether b is slower, significantly, by more than ``threshold``."""
        return self.beyond(threshold) and self.ratio > 1


@dataclass(frozen=True)
class Overall:
    """All compared points together: the geometric mean of their ratios, and how many went which way."""

    ratio: float
    points: int
    slower: int
    faster: int
    same: int
    unknown: int


def compare(a: Entry, b: Entry, confidence: float) -> Compared:
    """Compare two rows that both are ok; other statuses have no time to compare."""
    paired = _interleaved(a, b)
    interval, source = _interval(a, b, confidence, paired)
    return Compared(a.row, b.row, b.us / a.us, interval, source, paired and source == "samples")


def overall(compared: Sequence[Compared]) -> Overall:
    """Geometric mean and counts; at least one point."""
    mean = math.exp(sum(math.log(one.ratio) for one in compared) / len(compared))
    count = {word: sum(one.verdict == word for one in compared) for word in ("slower", "faster", "same", "unknown")}
    return Overall(mean, len(compared), **count)


def _interval(a: Entry, b: Entry, confidence: float, paired: bool) -> tuple[Interval | None, str | None]:
    """From raw samples where both sides have them, else from the intervals that the rows keep."""
    ours, theirs = a.samples(), b.samples()
    if ours is not None and theirs is not None:
        found = ratio_interval(ours, theirs, confidence, paired and len(ours) == len(theirs))
        return found, "samples" if found else None
    kept = [_kept(entry) for entry in (a, b)]
    if kept[0] is None or kept[1] is None:
        return None, None
    found = ratio_of_intervals(kept[0], kept[1], confidence)
    return found, "rows" if found else None


def _kept(entry: Entry) -> tuple[float, Interval, int] | None:
    row = entry.row
    low, high, rounds = row.latency_us_ci_low, row.latency_us_ci_high, row.rounds
    if low is None or high is None or rounds is None or low <= 0:
        return None
    return entry.us, (low, high), rounds


def _interleaved(a: Entry, b: Entry) -> bool:
    """Whether both were measured in the same rounds: series of one run that took turns."""
    took_turns = all(entry.row.interleave in ("resident", "realloc") for entry in (a, b))
    one_run = a.file != b.file and a.file.parent.parent == b.file.parent.parent
    return took_turns and one_run and a.row.rounds == b.row.rounds and a.row.command == b.row.command
