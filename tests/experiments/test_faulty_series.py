"""However one series fails, the rows of the others are on the disk as if it had not been there."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs, launcher
from experiments.launcher import launch
from experiments.measuring.series import Series
from experiments.record import Measurement
from tests.experiments.builders import OneBench, bench, composed, device, pretend
from tests.experiments.racing import Ending
from tests.experiments.wholeness import Kept, complete, rows
from variants.protocols import Plan, Request

FOLDER = Path("results/runs/test")
SMALL_CACHE = 2**20

# how a kernel ends: the status of its row, and what the reason says
ENDS = {
    "exit": ("crash", r"the worker process ended: exit status 7: the kernel says goodbye"),
    "segfault": ("crash", r"the worker process ended: killed by SIGSEGV: .*Segmentation fault"),
    "memory": ("oom", r"out of memory: no such row"),
    "hang": ("timeout", r"no answer within 8 s; killed"),
    "error": ("error", r"RuntimeError: no such kernel"),
}
OF = dict(zip(("mha", "mqa", "gta", "gla", "mla"), ENDS, strict=True))  # which attention's kernel ends how


@pytest.mark.slow
def test_every_end_of_one_series_leaves_the_rows_of_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Six real processes race at two points; five of them end, and are mended before the run is resumed."""
    monkeypatch.chdir(tmp_path)
    machine = device(last_level_cache=SMALL_CACHE, free=2**35)
    pretend(machine, monkeypatch)
    monkeypatch.setattr(launcher, "Benches", lambda: OneBench(bench(machine)))
    with monkeypatch.context() as patch:
        broken(patch)
        assert launch(every(), "") == 3
    told: dict[str, list[Measurement]] = {}
    for row in rows(FOLDER):
        told.setdefault(row.attention, []).append(row)
    assert [row.status for row in told["gqa"]] == ["ok", "ok"]
    for attention, how in OF.items():
        status, reason = ENDS[how]
        after = "ok" if how == "error" else status  # only that process lives on and does better
        assert [row.status for row in told[attention]] == [status, after], told[attention]
        assert re.match(reason, str(told[attention][0].reason)), told[attention][0].reason
    kept = Kept(FOLDER)
    kept.look()
    assert launch(every("failed"), "") == 0
    kept.look()
    complete(FOLDER, {row.key for row in rows(FOLDER)})
    assert Counter(row.attention for row in rows(FOLDER)) == {"gqa": 2, **dict.fromkeys(OF, 4), "mla": 3}


def every(resume: str = "missing") -> list[Any]:
    """All series, one thread each."""
    conduct = {"isolation": "process", "timeout_s": 8, "resume": resume}
    common: dict[str, Any] = {"scopes": ["attend"], "timer": {"threads": 1}, "conduct": conduct, "backend": "eager"}
    return [composed(attention, **common) for attention in (*list(OF)[:3], "gqa", *list(OF)[3:])]


def broken(patch: pytest.MonkeyPatch) -> None:
    """From now on some attentions have a backend that ends."""
    real = jobs.build

    def build(*args: Any) -> list[Any]:
        return [_broken(job) for job in real(*args)]

    patch.setattr(launcher, "build", build)


def _broken(job: Any) -> Any:
    assert isinstance(job, Series), job
    how = OF.get(job.labels.attention)
    return job if how is None else replace(job, backend=Hidden(Ending(how, calls=0)))


@dataclass(init=False, repr=False, eq=False)
class Hidden:
    """A dataclass without fields, so that rows have the keys of ``eager``'s, which has none either."""

    def __init__(self, inner: Ending) -> None:
        self.inner = inner

    def refuses(self, request: Request) -> list[str]:
        """What the other one says."""
        return self.inner.refuses(request)

    def plan(self, *args: Any, **options: Any) -> Plan:
        """What the other one does."""
        return self.inner.plan(*args, **options)
