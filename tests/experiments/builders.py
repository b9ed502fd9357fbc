"""Small things that tests of the measuring wing, the launcher and the doors need."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.door import Composed
from experiments.measuring import point as standing
from experiments.measuring.bench import Bench, Benches
from experiments.measuring.ceilings import Ceilings
from experiments.measuring.device import Device
from experiments.measuring.measure import Entrant, measure_point
from experiments.measuring.messages import Hand, Reply
from experiments.measuring.messages import Request as Asked
from experiments.measuring.point import obstacle, places, points
from experiments.measuring.prepare import Replica, prepare, weights
from experiments.measuring.row import Where
from experiments.measuring.series import Series, parse_labels, parse_series
from experiments.measuring.sweep import Sweep
from experiments.measuring.timed import Measured
from experiments.measuring.timing import Call, Timer, WallTimer
from experiments.measuring.worker import Worker
from experiments.record import Measurement
from tests.builders import ROOT, config
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.protocols import Attended, Plan, Request
from variants.view import CacheView

SMALL_CACHE = 2**16  # bytes of last-level cache of the pretended machine: its sweep is 320 KiB, not 2.4 GB
# a small run in the test's own process, as typed
SMALL = (
    "model=smollm2_135m",
    "device=cpu",
    "timer.rounds=2",
    "timer.max_rounds=2",
    "timer.replicas=2",
    "isolation=none",
)
TINY: dict[str, Any] = {
    "name": "tiny",
    "source": "tests",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TIMER: dict[str, Any] = {"kind": "wall", "rounds": 2, "replicas": 2, "threads": None}
CONDUCT: dict[str, Any] = {"isolation": "none", "timeout_s": None, "race_size": 8, "shard": None, "exclusive": True}
WORKLOAD: dict[str, Any] = {
    "batch": 1,
    "context": [16, 64],
    "queries": 1,
    "dtype": "fp32",
    "kv_dtype": None,
    "seed": 0,
    "scopes": ["attend", "step"],
    "temperature": "cold",
}


def composed(
    attention: str = "gqa",
    backend: str = "sdpa",
    tp: object = 1,
    device: str = "cpu",
    model: dict[str, Any] = TINY,
    timer: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    name: object = "test",
    results: object = "results",
    storage: str = "contiguous",
    storing: dict[str, Any] | None = None,
    conduct: dict[str, Any] | None = None,
    **workload: Any,
) -> Composed:
    """A composed config as the door hands it over.

    ``options`` go to the attention, ``storing`` to the storage, ``conduct`` to the run, what is named nowhere to the
    workload.
    """
    values = {
        "attention": {**config("attention")[attention], **(options or {})},
        "storage": {**config("storage")[storage], **(storing or {})},
        "backend": {"kind": backend},
        "model": model,
        "workload": {**WORKLOAD, **workload},
        "timer": {**TIMER, **(timer or {})},
        "device": {"kind": device},
        "name": name,
        "results": results,
        "tp": tp,
        **CONDUCT,
        **(conduct or {}),
    }
    choices: dict[str, str | None] = {
        "attention": attention,
        "storage": storage,
        "backend": backend,
        "model": str(model["name"]),
        "study": None,
    }
    return Composed(values, choices)


def series(*args: Any, **changes: Any) -> Series:
    """The series of such a config."""
    config_ = composed(*args, **changes)
    return parse_series(config_.values, parse_labels(config_.values, config_.choices, "test"))


def device(last_level_cache: int | None = SMALL_CACHE, free: int = 2**30, kind: str = "cpu") -> Device:
    """A machine with a small cache and ``free`` bytes of memory."""
    made = PretendedDevice(kind, "pretended", 2, last_level_cache, 2**31, "host", "torch 0", "commit")
    object.__setattr__(made, "free", free)
    return made


class PretendedDevice(Device):
    """A device whose free memory is what a test says."""

    free: int

    def free_memory(self) -> int:
        """What the test said."""
        return self.free


@dataclass
class Clock:
    """A clock that moves when it is told to; nanoseconds."""

    now: int = 0

    def __call__(self) -> int:
        """The time."""
        return self.now

    def sleep(self, ms: float) -> None:
        """Let time pass."""
        self.now += round(ms * 1e6)


def ceilings(cold: float = 1e6, resident: float = 1e6) -> Ceilings:
    """Ceilings so high that no tiny point reaches them."""
    return Ceilings(cold, "sum", resident, "sum")


def bench(
    on: Device | None = None, timer: Timer | None = None, roofs: Ceilings | None = None, matmul: float = 100.0
) -> Bench:
    """A bench whose ceilings are known, so that no test measures them by the way."""
    on = on or device()
    made = Bench(on, timer or WallTimer(on.synchronize), 2, dict.fromkeys(Dtype, matmul))
    made.__dict__["ceilings"] = roofs or ceilings()
    return made


class OneBench(Benches):
    """Benches that always hand out the same one."""

    def __init__(self, only: Bench | None = None) -> None:
        super().__init__()
        self.only = only or bench()

    def of(self, where: Where) -> Bench:
        """The one."""
        return self.only


def prepared(what: Series, count: int, index: int = 0) -> list[Replica]:
    """Replicas of one of a series' points on a pretended device."""
    on = device()
    with torch.no_grad():
        return prepare(what, points(what)[index], on, [weights(what, on, number) for number in range(count)])


def rows_of(
    what: Series,
    monkeypatch: pytest.MonkeyPatch,
    on: Device | None = None,
    benches: Benches | None = None,
) -> list[Measurement]:
    """All rows of a series measured on a pretended device."""
    on = on or device()
    pretend(on, monkeypatch)
    return [row for measured in measured_alone(what, benches or OneBench(bench(on))) for row in measured.rows]


def pretend(on: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this machine is ``on``, and has no GPU unless that is one."""
    monkeypatch.setattr(standing, "find_device", lambda kind: on if kind in ("auto", on.kind) else None)


def measured_alone(what: Series, benches: Benches) -> Iterator[Measured]:
    """A series by itself in this process, point by point."""
    for where in places(what):
        hand: Hand = Nobody()
        if obstacle(where) is None and where.device is not None:
            hand = Worker(what, where.threads, where.device, benches.of(where).timer)
        yield from measure_point([Entrant(where, hand)], what.timer, benches)


class Nobody:
    """The worker of a point that must not be tried."""

    kept_bytes = 0

    def begun(self) -> None:
        """Nothing begins."""

    def ask(self, request: Asked) -> Reply:
        """Fail the test."""
        raise AssertionError(f"asked for {request}")

    def close(self) -> None:
        """Nothing ends."""


@dataclass(init=False, repr=False, eq=False)
class Faulty:
    """A backend that attends as the oracle does over ``share`` of the cache, but for what ``spoil`` does to the output.

    A dataclass without fields: a series describes its backend by them, and here there is nothing to say.
    """

    def __init__(self, spoil: Callable[[Tensor], Tensor] = lambda o: o, share: float = 1.0) -> None:
        self.spoil = spoil
        self.share = share

    def refuses(self, request: Request) -> list[str]:
        """Nothing."""
        return []

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Eager's plan, spoilt."""
        right = Eager().plan(geometry, view, int(max_length * self.share), queries)

        def attend(q: Tensor) -> Attended:
            return self.spoil(right.attend(q)[0]), None

        return Plan(attend, "faulty")


@dataclass
class Scripted:
    """A timer that runs the call and says what it was told to say."""

    us: Iterable[float]
    name: str = "scripted"
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._script = iter(self.us)

    def time(self, call: Call) -> float:
        """The next number."""
        self.calls.append(call)
        call()
        return next(self._script)


def array(rows: Sequence[Sequence[float]]) -> Any:
    """Samples [rounds, calls]."""
    return np.array(rows, dtype=np.float64)


def sweep_of(size: int) -> Sweep:
    """A sweep over ``size`` bytes of float32 noise, whatever the machine's caches."""
    made = Sweep(device(last_level_cache=2**30, free=4 * size))
    assert made.bytes == size
    return made


def exact(number: float | None) -> float:
    """The number, which must be there."""
    return cast(float, number)


def as_float(tensor: object) -> float:
    """A scalar result of a kernel."""
    assert isinstance(tensor, torch.Tensor)
    return float(tensor)


@dataclass(frozen=True)
class Answer:
    """What a door said: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line of a refused input; fails the test if it is anything else."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.startswith("error: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        return self.err[len("error: ") : -1]


class Street:
    """Knocks at a door inside this process: the arguments, the folder and the environment of a shell."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.capfd = capfd
        monkeypatch.chdir(folder)
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def knock(self, main: Callable[[], None], *arguments: str) -> Answer:
        """Run a door's ``main`` as a command would."""
        self.capfd.readouterr()
        with self.monkeypatch.context() as patch:
            patch.setenv("HYDRA_FULL_ERROR", "1")  # what a door sets, undone afterwards
            patch.setattr(sys, "argv", ["kvariants-run", *arguments])
            with pytest.raises(SystemExit) as left:
                main()
        code = left.value.code
        return Answer(code if isinstance(code, int) else 0 if code is None else 1, *self.capfd.readouterr())

    def files(self) -> list[str]:
        """Everything below the folder, folders included."""
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))


def shell(*command: str, cwd: Path, **environment: str) -> Answer:
    """Run python in a process of its own, with this checkout on its path."""
    clean = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,  # on a machine that does something else, too
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
