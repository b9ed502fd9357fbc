"""Doors opened inside the test process configure logging as Hydra does; no test may inherit that from another."""

import logging
from collections.abc import Iterator

import pytest


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
        logger.setLevel(level)
        logger.disabled = switched_off
        for handler in list(logger.handlers):
            if handler not in handlers and not type(handler).__module__.startswith("_pytest"):
                logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one test wait for each other, not for those of another."""
    monkeypatch.setenv("KVARIANTS_LOCKS", str(tmp_path_factory.mktemp("locks")))
