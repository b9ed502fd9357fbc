"""All series of a run at once: build them, race those that can be compared, store every point, sum up."""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.door import Composed
from experiments.measuring.audit import Check
from experiments.measuring.bench import Benches
from experiments.measuring.crew import Conduct, Crew, Group, Places, grouped
from experiments.measuring.drift import compare, compare_ceilings, few_rounds
from experiments.measuring.measure import Entrant, interrupted, measure_point
from experiments.measuring.point import obstacle, places
from experiments.measuring.remote import import_ahead
from experiments.measuring.row import failed_rows, unbuildable_row
from experiments.measuring.series import Labels, Series, parse_labels, parse_series
from experiments.measuring.spent import Spent
from experiments.measuring.timed import Measured
from experiments.predicted import predictable, predicted
from experiments.progress import Progress
from experiments.record import CLEAN, TIMED, Measurement
from experiments.runfolder import locked, note, run_folder, store, store_samples

UNCLEAN = 3  # exit code: some row is neither measured nor properly refused
INTERRUPTED = 130
ONE_RUN = ("name", "results", "isolation", "timeout_s", "race_size")  # a run has one of each


@dataclass(frozen=True)
class Unbuildable:
    """A config of a sweep that cannot become a series."""

    labels: Labels
    config: Composed
    reason: str


def launch(configs: Sequence[Composed], command: str) -> int:
    """Measure every series and return the exit code: 0 all clean, 3 some row is not, 130 interrupted.

    Raises ValueError, before anything is written, if no config at all can become a series or the folder is taken.
    """
    common = _common(configs)
    folder = run_folder(common["results"], common["name"])
    conduct = Conduct(common["isolation"], common["timeout_s"], common["race_size"])
    jobs = [_build(config, command) for config in configs]
    broken = [job for job in jobs if isinstance(job, Unbuildable)]
    if len(broken) == len(jobs):
        raise ValueError(broken[0].reason)
    with locked(folder):
        return _Run(folder, conduct).all(jobs)


class _Run:
    """One pass over the jobs of a run, with what it has seen so far."""

    def __init__(self, folder: Path, conduct: Conduct) -> None:
        self.folder = folder
        self.conduct = conduct
        self.benches = Benches()
        self.crew = Crew(conduct, self.benches)
        self.seen: Counter[str] = Counter()
        self.spent = Spent()
        self.first: tuple[Group, int, list[Measured]] | None = None  # the first point that gave a latency
        self.later = False  # whether another one followed

    def all(self, jobs: Sequence[Series | Unbuildable]) -> int:
        """Run the jobs, those that cannot run first; an interrupted run keeps what it has."""
        runs = [job if isinstance(job, Unbuildable) else tuple(places(job)) for job in jobs]
        total = sum(1 if isinstance(run, Unbuildable) else len(run) for run in runs)
        with Progress(total) as self.progress:
            try:
                for group in self._plan(runs):
                    self._race(group)
                self._look_back()
                code = 0 if all(status in CLEAN for status in self.seen) else UNCLEAN
            except KeyboardInterrupt:
                code = INTERRUPTED
            finally:
                self.crew.dismiss()
        self.progress.summary(self.seen, self.folder, self.spent.told(self.benches.swept_s))
        return code

    def _plan(self, runs: Iterable[Unbuildable | Places]) -> list[Group]:
        """Store the rows of what cannot run, no worker needed, and group the rest."""
        able: list[Places] = []
        for run in runs:
            if isinstance(run, Unbuildable):
                self._keep((unbuildable_row(run.labels, run.config.values, run.reason),))
                continue
            rows = _unmeasured(run)
            if rows is None:
                able.append(run)
                continue
            self.progress.series(run[0].series.name)
            for one in rows:
                self._keep(one)
        import_ahead(run[0].series for run in able)
        return grouped(able, self.conduct)

    def _race(self, group: Group) -> None:
        """All points of a group, its series in turn at each."""
        self.progress.series(*(run[0].series.name for run in group))
        for index in range(len(group[0])):
            try:
                measured = self._point(group, index)
            except KeyboardInterrupt:
                for run in group:
                    self._keep(interrupted(run[index]))
                raise
            with _uninterrupted():
                for one in measured:
                    self._keep(one.rows, one.samples)
            if any(row.status in TIMED for one in measured for row in one.rows):
                self.later = self.first is not None
                self.first = self.first or (group, index, measured)

    def _point(self, group: Group, index: int, again: bool = False) -> list[Measured]:
        entrants = [Entrant(run[index], hand) for run, hand in zip(group, self.crew.of(group), strict=True)]
        timer = group[0][0].series.timer
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
            store_samples(self.folder / one.rows[0].series, {f"{key}.again": us for key, us in one.samples.items()})
        for check in compare_ceilings(*self.benches.of(group[0][index]).again()):
            self._note({}, check)

    def _keep(self, rows: tuple[Measurement, ...], samples: Mapping[str, Any] | None = None) -> None:
        store(self.folder, rows, samples or {})
        self.seen.update(row.status for row in rows)
        self.progress.point(rows)

    def _note(self, of: Mapping[str, Any], check: Check) -> None:
        note(self.folder, {"check": check.name, "holds": check.holds, "numbers": check.numbers, **of})
        if not check.holds:
            self.progress.note(" ".join([str(check), *map(str, of.values())]))


def _unmeasured(run: Places) -> list[tuple[Measurement, ...]] | None:
    """Rows per point of a series for which nothing runs: predicted, or refused throughout; else None."""
    if run[0].series.origin == "predicted":
        return [predicted(where) for where in run]
    why = [obstacle(where) for where in run]
    if None in why:
        return None
    return [failed_rows(w, failed.status, failed.reason) for w, failed in zip(run, why, strict=True) if failed]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until what has been measured is stored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _common(configs: Sequence[Composed]) -> dict[str, Any]:
    """What a run has one of."""
    for name in ONE_RUN:
        found = list(dict.fromkeys(repr(config.values.get(name)) for config in configs))
        if len(found) > 1:
            raise ValueError(f"one run writes one folder, in one way: {name} cannot be swept; got {', '.join(found)}")
    return {name: configs[0].values.get(name) for name in ONE_RUN}


def _build(config: Composed, command: str) -> Series | Unbuildable:
    labels = parse_labels(config.values, config.choices, command)
    try:
        return predictable(parse_series(config.values, labels))
    except ValueError as error:
        return Unbuildable(labels, config, str(error))
