"""SIGKILL at 50 random moments over a small study, half to the run and half to one of its workers; then it goes on."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from experiments.record import TIMED, Measurement
from tests.experiments.killing import Command
from tests.experiments.wholeness import Kept, complete, measured_once, rows

SEEDS = range(5)
OF_EACH = 5  # kills of the run, and as many of workers, per seed
ATTEMPTS = 30
SERIES = 3
LONG = ("timer.rounds=20", "timer.max_rounds=20")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody kills: when its workers start and when it ends, in seconds, and its keys."""

    workers_s: float
    all_s: float
    keys: set[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    start = time.monotonic()
    with Command.started(folder) as run:
        while not run.workers() and run.ended(0.1) is None:
            pass
        workers_s = time.monotonic() - start
        assert run.ended() in (0, 3), run.words()
        all_s = time.monotonic() - start
        assert run.gone()
    keys = {row.key for row in rows(folder / "results")}
    assert len(keys) == SERIES * 3 * 2
    return Undisturbed(workers_s, all_s, keys)


class Campaign:
    """Kills of one seed, in one folder after the other: each is killed and resumed until it is complete."""

    def __init__(self, seed: int, place: Path, undisturbed: Undisturbed) -> None:
        self.random = Random(seed)
        self.place = place
        self.undisturbed = undisturbed
        self.left = Counter({"run": OF_EACH, "worker": OF_EACH})
        self.folders = 0

    def folder(self) -> None:
        """Start the same command again and again until it ends by itself with every row ok."""
        self.folders += 1
        place = self.place / str(self.folders)
        place.mkdir()
        folder = place / "results" / "runs" / "adhoc"
        kept = Kept(folder)
        for _ in range(ATTEMPTS):
            code = self._attempt(place, folder)
            kept.look()
            if code == 0:
                break
        complete(folder, self.undisturbed.keys)
        measured_once(folder)
        assert not list((place / "temporary").rglob("kvariants-*"))

    def _attempt(self, place: Path, folder: Path) -> int | None:
        """One start; None if it was killed."""
        victims = sorted(+self.left)
        victim = self.random.choice(victims) if victims else None
        resume = "resume=failed" if victim is None else self.random.choice(["resume=failed", "resume=missing"])
        with Command.started(place, resume) as run:
            code = self._kill_run(run) if victim == "run" else self._kill_workers(run, folder, victim)
            assert run.gone(), run.alive()
        return code

    def _kill_run(self, run: Command) -> int | None:
        code = run.ended(self.random.uniform(0, self.undisturbed.all_s))
        if code is None:
            run.kill()
            self.left["run"] -= 1
            return None
        assert code in (0, 3), run.words()
        return code

    def _kill_workers(self, run: Command, folder: Path, victim: str | None) -> int | None:
        """One or two of them; the run ends by itself, and series that have lost none, now or before, are complete."""
        lost = {row.series for row in _newest(folder) if row.status not in TIMED}
        killed, wanted = 0, min(self.left["worker"], 2) if victim else 0
        span_s = (self.undisturbed.all_s - self.undisturbed.workers_s) / 2
        while killed < wanted and run.kill_worker(self.random, span_s):
            killed += 1
        self.left["worker"] -= killed
        code = run.ended()
        assert code in (0, 3), run.words()
        if code == 0 or killed:
            timed = Counter(row.series for row in _newest(folder) if row.status in TIMED)
            assert sum(number == 6 for number in timed.values()) >= SERIES - killed - len(lost), run.words()
        return code


def _newest(folder: Path) -> list[Measurement]:
    return list({row.key: row for row in rows(folder)}.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_is_killed_at_random_moments_loses_nothing(
    seed: int, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    campaign = Campaign(seed, tmp_path, undisturbed)
    while +campaign.left:
        campaign.folder()
    assert sum(campaign.left.values()) == 0


def _kill_server(run: Command) -> None:
    server = run.workers()[0].parent()
    assert server is not None
    server.kill()
    assert run.ended() in (0, 3), run.words()
    assert "Traceback" not in run.words()
    assert run.gone()


def _complete(place: Path, undisturbed: Undisturbed) -> None:
    with Command.started(place, *LONG, "resume=failed") as run:
        assert run.ended() in (0, 3), run.words()
    newest = _newest(place / "results")
    assert len(newest) == len(undisturbed.keys)
    assert {row.status for row in newest} <= set(TIMED)


def test_a_run_whose_server_of_workers_is_killed_ends_and_is_completed(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    with Command.started(tmp_path, *LONG) as run:
        while not rows(tmp_path / "results"):
            assert run.ended(0.1) is None, run.words()
        _kill_server(run)
    assert {row.status for row in rows(tmp_path / "results") if row.status not in TIMED} == {"crash"}
    _complete(tmp_path, undisturbed)


def test_a_run_whose_server_is_killed_while_it_forks_goes_on(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """With another server, or without the series of the workers that it had forked: this close, it is either."""
    with Command.started(tmp_path, *LONG) as run:
        while not run.workers():
            assert run.ended(0) is None, run.words()
        _kill_server(run)
    assert {row.status for row in rows(tmp_path / "results")} <= {*TIMED, "crash"}
    _complete(tmp_path, undisturbed)
