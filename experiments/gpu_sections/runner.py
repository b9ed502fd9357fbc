"""All sections, each within its time and whatever becomes of the others."""

import gc
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from experiments.gpu_sections.graphs import graphs
from experiments.gpu_sections.journal import Journal
from experiments.gpu_sections.machine import ceilings, env
from experiments.gpu_sections.oracle import checks
from experiments.gpu_sections.rig import Rig, Section, one_line
from experiments.gpu_sections.studies import release, studies
from experiments.gpu_sections.tiles import tiles
from experiments.gpu_sections.timers import timers

SECTIONS: Mapping[str, Section] = {
    "env": Section(env, 15),
    "ceilings": Section(ceilings, 20),
    "oracle": Section(checks, 80),
    "timers": Section(timers, 15),
    "graph": Section(graphs, 15),
    "studies": Section(studies, 100),
    "race": Section(tiles, 40),
}
TOTAL_S = 290.0
GRACE_S = 10.0  # for a row that has begun; then it is broken off


class Overrun(BaseException):
    """Raised inside a section that does not come back; no ``except Exception`` of a single case swallows it."""


def select(wanted: str | None, sections: Mapping[str, Section] = SECTIONS) -> list[str]:
    """Sections by comma-separated names, in their own order; None or nothing: all. ValueError for another name."""
    names = [name.strip() for name in (wanted or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in sections]
    if unknown:
        raise ValueError(f"no section is called {unknown[0]!r}; there are {', '.join(sections)}")
    return [name for name in sections if not names or name in names]


def run(
    rig: Rig,
    names: Sequence[str],
    journal: Journal,
    sections: Mapping[str, Section] = SECTIONS,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run sections in turn. The bundle is written after each, and also when the run is broken off."""
    end = clock() + TOTAL_S
    for name in names:
        started = clock()
        limit = min(sections[name].seconds, end - started)
        status, reason = "interrupted", None  # unless it is something else below
        try:
            if limit > 0:
                status = _one(rig, name, sections[name], journal, started + limit, limit + GRACE_S, clock)
            else:
                status = "timeout"
        except Overrun:
            status, reason = "timeout", f"broken off {GRACE_S:g} s after its {limit:g} s"
        except Exception as error:
            status, reason = "error", one_line(error)
        finally:
            took = clock() - started
            journal.add(name, {"case": "section", "status": status, "seconds": took, "reason": reason})
            journal.bundle()
        gc.collect()
        release(rig)


def _one(
    rig: Rig, name: str, section: Section, journal: Journal, end: float, alarm_s: float, clock: Callable[[], float]
) -> str:
    rows = section.rows(rig)
    try:
        with _alarm(alarm_s):
            for row in rows:
                journal.add(name, row)
                if clock() > end:
                    return "timeout"
    finally:
        if hasattr(rows, "close"):
            rows.close()  # processes that a section has started end here
    return "ok"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise Overrun

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
