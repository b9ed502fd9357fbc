"""A run that is killed at any step of measuring and storing loses nothing of what it had, and measures it once."""

import itertools
import multiprocessing
from collections import Counter
from pathlib import Path

import pytest

from experiments import launcher
from experiments.launcher import launch
from tests.experiments import fatal
from tests.experiments.builders import OneBench, device, pretend
from tests.experiments.wholeness import Kept, complete, measured_once, rows

FOLDER = Path("results/runs/test")
POINTS = {(attention, context) for attention in ("gqa", "mla") for context in (16, 32)}
TORN = "three quarters of the rows are written"  # the first row of two is whole, and their point is not


def points() -> Counter[tuple[str, int | None]]:
    """How many rows of every point are there."""
    return Counter((row.attention, row.context) for row in rows(FOLDER))


def killed(folder: Path, moment: str, number: int) -> bool:
    """Run in a process forked from a clean server; whether the moment came."""
    process = multiprocessing.get_context("forkserver").Process(target=fatal.run, args=(folder, moment, number))
    process.start()
    process.join(100)
    assert process.exitcode in (0, -9), process.exitcode
    return process.exitcode == -9


@pytest.mark.slow
@pytest.mark.parametrize("moment", fatal.MOMENTS)
def test_a_run_killed_when(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time that the moment comes, the third, the ninth and so on, until it does not come any more."""
    pretend(device(), monkeypatch)
    monkeypatch.setattr(launcher, "Benches", OneBench)
    for number in (3**power for power in itertools.count()):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        died = killed(folder, moment, number)
        assert died or number > 1, "the moment never came"
        kept, before = Kept(FOLDER), points()
        kept.look()
        assert launch(fatal.configs(), "") == 0
        kept.look()
        assert set(points() - before) == {point for point in POINTS if before[point] < 2}  # those that were not whole
        complete(FOLDER, {row.key for row in rows(FOLDER)})
        assert len({row.key for row in rows(FOLDER)}) == 8
        if moment != TORN:
            measured_once(FOLDER)
        if not died:
            return
