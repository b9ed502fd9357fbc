"""Doors opened inside the test process configure logging as Hydra does; no test may inherit that from another."""

import logging
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.experiments.builders import OneBench, Street, device, pretend

TESTS = count()


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Levels, handlers and switches of all loggers go back; pytest's own handlers come and go as pytest says."""
    before = {logger.name: (logger.level, list(logger.handlers), logger.disabled) for logger in _loggers()}
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)
    for logger in _loggers():
        level, handlers, switched_off = before.get(logger.name, (logging.NOTSET, [], False))
        if logger.level != level:
            logger.setLevel(level)  # makes all loggers forget what they know of levels
        logger.disabled = switched_off
        for handler in list(logger.handlers):
            if handler not in handlers and not type(handler).__module__.startswith("_pytest"):
                logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one test wait for each other, not for those of another; the folder is made when one of them needs it."""
    monkeypatch.setenv("KVARIANTS_LOCKS", str(tmp_path_factory.getbasetemp() / "locks" / str(next(TESTS))))


@pytest.fixture
def pretended_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder to stand in, on a machine that is pretended and whose ceilings are known."""
    from experiments import launcher

    monkeypatch.chdir(tmp_path)
    pretend(device(), monkeypatch)
    monkeypatch.setattr(launcher, "Benches", OneBench)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where this test's temporary files go."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def street(
    pretended_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Street:
    """Doors to knock at, on that machine."""
    return Street(tmp_path, monkeypatch, capfd)
