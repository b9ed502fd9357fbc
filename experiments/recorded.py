"""What lies below a run's folder already: which rows need not be measured again, and how often each was tried.

Every file of records counts, at any depth: those of other shards and of other launchers' jobs too. Of one key in one
file the last row counts, whatever the clock said when it was written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Self

from experiments.record import BROKEN, CLEAN, UNTRIED, Measurement
from experiments.records import RECORDS, stream


@dataclass(frozen=True)
class Wanted:
    """A row that a run would write: its key, and the machine and libraries that it would be measured with.

    ``instead``: the key that it has where bytes asked for cold cannot be proved so, and it says ``warm``.
    """

    key: str
    instead: str | None = None
    device: str | None = None
    versions: str | None = None


@dataclass(frozen=True)
class Earlier:
    """A row that is there. ``tried``: nothing is left to try; not so if its worker was lost at an earlier point."""

    row: Measurement
    tried: bool

    def settles(self, resume: str) -> bool:
        """Whether its point need not be measured again."""
        if resume == "failed":
            return self.row.status in CLEAN
        return resume == "missing" and self.row.status != "interrupted" and self.tried


@dataclass
class Recorded:
    """The rows of a folder by key, the last of each file, and one warning for each line that is no row."""

    rows: dict[str, list[Earlier]] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    newest: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Everything below ``folder``; nothing if it is not there. Raises OSError for a file that cannot be read."""
        told = cls()
        for path in sorted(folder.rglob(RECORDS)):
            told._add(path)
        return told

    def _add(self, path: Path) -> None:
        last: dict[str, Earlier] = {}
        tries: Counter[str] = Counter()
        for found in stream(path, Measurement):
            if isinstance(found, str):
                self.warnings.append(found)
                continue
            counted = _tries(found, tries[found.key])
            last[found.key] = Earlier(found, found.status not in BROKEN or counted > tries[found.key])
            tries[found.key] = max(tries[found.key], counted)
            self.newest[found.key] = max(self.newest.get(found.key, ""), found.started_at or "")
        self.tries |= tries
        for key, earlier in last.items():
            self.rows.setdefault(key, []).append(earlier)

    def kept(self, wanted: Sequence[Wanted], resume: str) -> tuple[Measurement, ...] | None:
        """The rows of a point, if all of them are there, fresh, and need not be measured again; else None."""
        found = [self._settled(one, resume) for one in wanted]
        return None if None in found else tuple(row for row in found if row is not None)

    def holds(self, wanted: Sequence[Wanted]) -> bool:
        """Whether any row of a point is there, fresh or not."""
        return any(one.key in self.rows or one.instead in self.rows for one in wanted)

    def ahead(self, now: datetime) -> list[str]:
        """A warning, if rows are there that began later than now."""
        newest = max(self.newest.values(), default="")
        if newest <= now.isoformat(timespec="seconds"):
            return []
        return [f"this machine's clock says {now:%F %T}, and rows are there that began {newest}; new rows still count"]

    def timed(self, wanted: Wanted) -> Measurement | None:
        """A fresh row that has a latency, whether or not its point is settled."""
        fresh = (earlier.row for earlier in self._fresh(wanted))
        return next((row for row in fresh if row.latency_us_p50 is not None), None)

    def continued(self, row: Measurement) -> Measurement:
        """The row as the next one of its key: tries counted from the first, begun no earlier than the one before."""
        attempts = None if row.attempts is None else self.tries[row.key] + row.attempts
        started = max(row.started_at or "", self.newest.get(row.key, "")) or None
        if (attempts, started) == (row.attempts, row.started_at):
            return row
        return replace(row, attempts=attempts, started_at=started)

    def _settled(self, wanted: Wanted, resume: str) -> Measurement | None:
        return next((earlier.row for earlier in self._fresh(wanted) if earlier.settles(resume)), None)

    def _fresh(self, wanted: Wanted) -> list[Earlier]:
        """The rows of a key from this machine's device and libraries, or what stands instead."""
        own = [earlier for earlier in self.rows.get(wanted.key, []) if not _unproved(earlier.row)]
        other = [earlier for earlier in self.rows.get(wanted.instead or "", []) if _unproved(earlier.row)]
        machine = wanted.device, wanted.versions
        return [e for e in (*own, *other) if (e.row.device, e.row.versions) == machine]


def _tries(row: Measurement, before: int) -> int:
    """How often a row's point had been tried when it was written; rows that do not say so are one try each."""
    return before + int(row.status not in UNTRIED) if row.attempts is None else row.attempts


def _unproved(row: Measurement) -> bool:
    """Whether a row was asked for cold and says ``warm``: more was read between two uses than the bytes themselves."""
    return row.temperature == "warm" and row.reuse_bytes is not None and row.reuse_bytes != row.io_bytes
