"""All series of a run at once: race those that can be compared, store every point, sum up."""

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from experiments.agenda import Standing, point_keys, survey, unmeasured
from experiments.door import Composed
from experiments.jobs import Orders, build
from experiments.measuring.audit import Check
from experiments.measuring.bench import Benches
from experiments.measuring.crew import Crew, Group, grouped
from experiments.measuring.drift import compare, compare_ceilings, few_rounds
from experiments.measuring.measure import Entrant, interrupted, measure_point
from experiments.measuring.messages import Release
from experiments.measuring.remote import import_ahead
from experiments.measuring.series import Series
from experiments.measuring.spent import Spent
from experiments.measuring.timed import Measured
from experiments.plain import INTERRUPTED, UNCLEAN
from experiments.progress import Progress
from experiments.record import CLEAN, TIMED, Measurement, utc_now
from experiments.recorded import Recorded
from experiments.rescue import store_or_rescue
from experiments.runfolder import locked, note, store_samples
from experiments.turns import Turn, turn


def launch(configs: Sequence[Composed], command: str) -> int:
    """Measure what is not there yet and return the exit code: 0 all rows clean, 3 some are not, 130 interrupted.

    Rows that were there count like new ones. Raises ValueError or OSError, before anything is written, if no config at
    all can become a series, or if the folder is taken or cannot be written. A shard, and a single job of a sweep, is a
    part of the run with a folder of its own; what lies in the other parts counts as there.
    """
    orders = Orders.parse(configs)
    jobs = build(configs, command)
    if orders.plan:
        from experiments.plan import show_plan

        show_plan(jobs, orders)
        return 0
    kinds = {job.device for job in jobs if isinstance(job, Series) and job.origin == "measured"}
    with locked(orders.part):
        try:
            with turn(kinds, orders.exclusive, _say) as held:
                recorded = Recorded.read(orders.folder)
                return _Run(orders, recorded, held).all(survey(jobs, orders, recorded))
        except KeyboardInterrupt:  # while it waited for its turn
            return INTERRUPTED


def check_jobs(configs: Sequence[Composed]) -> None:
    """ValueError, before any job is sent elsewhere, for what would be wrong with all of them."""
    orders = Orders.parse(configs)
    if orders.conduct.isolation != "process":
        raise ValueError("isolation must be process under this launcher: what kills one series would end others' jobs")
    if orders.plan:
        raise ValueError("plan=true is for the run as a whole; leave hydra/launcher out of it")
    build(configs, "")
    _say(f"{len(configs)} jobs, a series each; rows go to {orders.part_of(0)} and so on")


class _Stopped(Exception):
    """``fail_fast``, and a row that is not clean."""


class _Run:
    """One pass over what is left of a run, with what it has seen so far."""

    def __init__(self, orders: Orders, recorded: Recorded, held: Turn) -> None:
        self.orders = orders
        self.recorded = recorded
        self.turn = held
        self.began = utc_now()
        self.benches = Benches()
        self.crew = Crew(orders.conduct, self.benches)
        self.seen: Counter[str] = Counter()
        self.spent = Spent()
        self.first: tuple[Group, int, list[Measured]] | None = None  # the first point that gave a latency
        self.later = False  # whether another one followed

    def all(self, standings: Sequence[Standing]) -> int:
        """Do what is left, that which cannot run first; a run that ends early keeps what it has."""
        there = Counter(row.status for standing in standings for row in standing.there)
        self.todo = {point_keys(where) for standing in standings for where in standing.left}
        with Progress(sum(standing.steps for standing in standings)) as self.progress:
            for warning in (*self.recorded.warnings, *self.recorded.ahead(datetime.now(UTC))):
                self.progress.note(warning)
            code = self._work(standings, there)
        self.progress.summary(self.seen, there, self.orders.part, self.spent.told(self.benches))
        return code

    def _work(self, standings: Sequence[Standing], there: Counter[str]) -> int:
        try:
            for group in self._plan(standings):
                self._race(group)
            self._look_back()
        except KeyboardInterrupt:
            return INTERRUPTED
        except _Stopped:
            self.progress.note("stopped at the first row that is not clean (fail_fast=true)")
        except OSError as error:
            self.progress.note(f"stopped: {' '.join(str(error).split())}")
            return UNCLEAN
        finally:
            self.crew.dismiss()
        return 0 if all(status in CLEAN for status in self.seen | there) else UNCLEAN

    def _plan(self, standings: Iterable[Standing]) -> list[Group]:
        """Store the rows of what cannot run, no worker needed, and group the rest."""
        able: list[Standing] = []
        for standing in standings:
            if standing.broken:
                self._done([Measured(standing.broken, {})])
            if not standing.left:
                continue
            rows = unmeasured(standing.left)
            if rows is None:
                able.append(standing)
                continue
            self.progress.series({standing.left[0].series.name: len(rows)})
            for one in rows:
                self._done([Measured(one, {})])
        import_ahead(standing.left[0].series for standing in able)
        return grouped([standing.places for standing in able], self.orders.conduct)

    def _race(self, group: Group) -> None:
        """All points of a group, its series in turn at each; a series that has a point already sits it out."""
        left = {run[0].series.name: sum(point_keys(where) in self.todo for where in run) for run in group}
        self.progress.series(left)
        for index in range(len(group[0])):
            running = [run[index] for run in group if point_keys(run[index]) in self.todo]
            if not running:
                continue
            try:
                with self.progress.timing(running[0].point, [where.series.labels.attention for where in running]):
                    measured = self._point(group, index)
            except KeyboardInterrupt:
                self._keep([Measured(interrupted(where), {}) for where in running])
                raise
            with _uninterrupted():
                self._keep(measured)
            self._halt(measured)
            if any(row.status in TIMED for one in measured for row in one.rows):
                self.later = self.first is not None
                self.first = self.first or (group, index, measured)

    def _point(self, group: Group, index: int, again: bool = False) -> list[Measured]:
        entrants = []
        for run, hand in zip(group, self.crew.of(group), strict=True):
            if point_keys(run[index]) in self.todo:
                entrants.append(Entrant(run[index], hand))
            elif hand.kept_bytes:
                hand.ask(Release(keeping=False))  # those that run need the room
        timer = group[0][0].series.timer
        self.turn.begin()
        measured = measure_point(entrants, few_rounds(timer) if again else timer, self.benches)
        for one in measured:
            self.spent.add(one)
        return measured

    def _look_back(self) -> None:
        """Measure the first point once more, if others came after it, and the ceilings it was held against."""
        if self.first is None or not self.later:
            return
        group, index, first = self.first
        again = self._point(group, index, again=True)
        for row, check in compare(first, again):
            self._note({"series": row.series, "key": row.key, "context": row.context, "scope": row.scope}, check)
        for one in again:
            samples = {f"{key}.again": us for key, us in one.samples.items()}
            store_samples(self.orders.part / one.rows[0].series, samples)
        for check in compare_ceilings(*self.benches.of(group[0][index]).again()):
            self._note({}, check)

    def _done(self, measured: Sequence[Measured]) -> None:
        self._keep(measured)
        self._halt(measured)

    def _keep(self, measured: Sequence[Measured]) -> None:
        """Store the rows of a point, of one or several series."""
        measured = [Measured(self._told(one.rows), one.samples) for one in measured]
        for one in store_or_rescue(self.orders.part, measured):
            self.seen.update(row.status for row in one.rows)
            self.progress.point(one.rows)

    def _told(self, rows: Iterable[Measurement]) -> tuple[Measurement, ...]:
        """Rows as the next ones of their keys, with what is known of others that are timed on this host."""
        return self.turn.told(map(self.recorded.continued, rows))

    def _halt(self, measured: Sequence[Measured]) -> None:
        """End here, if one unclean row is enough."""
        if self.orders.fail_fast and any(row.status not in CLEAN for one in measured for row in one.rows):
            raise _Stopped

    def _note(self, of: Mapping[str, Any], check: Check) -> None:
        found = {"check": check.name, "holds": check.holds, "numbers": check.numbers, "since": self.began}
        note(self.orders.part, {**found, **of})
        if not check.holds:
            self.progress.note(" ".join([str(check), *map(str, of.values())]))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until what has been measured is stored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
