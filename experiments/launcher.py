"""All series of a run at once: build them, measure one after another, store every point, sum up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.door import Composed
from experiments.measuring.bench import Benches
from experiments.measuring.measure import interrupted, measure, points
from experiments.measuring.row import unbuildable_row
from experiments.measuring.series import Labels, Series, parse_labels, parse_series
from experiments.predicted import predictable, predicted
from experiments.progress import Progress
from experiments.record import CLEAN, Measurement
from experiments.runfolder import locked, run_folder, store

UNCLEAN = 3  # exit code: some row is neither measured nor properly refused
INTERRUPTED = 130


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
    folder = _common_folder(configs)
    jobs = [_build(config, command) for config in configs]
    broken = [job for job in jobs if isinstance(job, Unbuildable)]
    if len(broken) == len(jobs):
        raise ValueError(broken[0].reason)
    with locked(folder):
        return _Run(folder).all(jobs)


class _Run:
    """One pass over the jobs of a run, with what it has seen so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: Counter[str] = Counter()
        self.benches = Benches()

    def all(self, jobs: Sequence[Series | Unbuildable]) -> int:
        """Run the jobs in order; an interrupted run keeps what it has."""
        total = sum(len(points(job)) if isinstance(job, Series) else 1 for job in jobs)
        with Progress(total) as progress:
            try:
                for job in jobs:
                    self._one(job, progress)
                code = 0 if all(status in CLEAN for status in self.seen) else UNCLEAN
            except KeyboardInterrupt:
                code = INTERRUPTED
        progress.summary(self.seen, self.folder)
        return code

    def _one(self, job: Series | Unbuildable, progress: Progress) -> None:
        if isinstance(job, Unbuildable):
            self._keep((unbuildable_row(job.labels, job.config.values, job.reason),), progress)
            return
        progress.series(job.name)
        done = 0
        try:
            for measured in predicted(job) if job.origin == "predicted" else measure(job, self.benches):
                store(self.folder, measured.rows, measured.samples)
                self._count(measured.rows, progress)
                done += 1
        except KeyboardInterrupt:
            self._keep(interrupted(job, done), progress)
            raise

    def _keep(self, rows: tuple[Measurement, ...], progress: Progress) -> None:
        store(self.folder, rows, {})
        self._count(rows, progress)

    def _count(self, rows: tuple[Measurement, ...], progress: Progress) -> None:
        self.seen.update(row.status for row in rows)
        progress.point(rows)


def _common_folder(configs: Sequence[Composed]) -> Path:
    folders = {run_folder(c.values["results"], c.values["name"]) for c in configs}
    if len(folders) != 1:
        raise ValueError(
            f"one run writes one folder: name and results cannot be swept; got {sorted(map(str, folders))}"
        )
    return folders.pop()


def _build(config: Composed, command: str) -> Series | Unbuildable:
    labels = parse_labels(config.values, config.choices, command)
    try:
        return predictable(parse_series(config.values, labels))
    except ValueError as error:
        return Unbuildable(labels, config, str(error))
