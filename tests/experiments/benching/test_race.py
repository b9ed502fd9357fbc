"""Contenders run in turns, forwards and backwards, each round on evicted caches; slow ones may be left out."""

import pytest

from experiments.benching.race import Contender, race, screen
from experiments.measuring.sweep import Sweep
from tests.experiments.builders import Scripted, sweep_of


class Heard:
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def contender(self, name: str, calls: int = 2, reads: int = 100) -> Contender:
        said = [self.saying(f"{name}{number}") for number in range(calls)]
        return Contender(name, said, reads, self.saying(f"-{name}"))

    def saying(self, what: str):
        return lambda: self.events.append(what)

    def sweep(self, monkeypatch: pytest.MonkeyPatch) -> Sweep:
        monkeypatch.setattr(Sweep, "__call__", lambda sweep: self.events.append("|"))
        return sweep_of(2**20)


def test_rounds_alternate_and_every_lap_starts_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    contenders = [heard.contender("a"), heard.contender("b")]
    race("p", contenders, Scripted([1.0] * 8), 2, heard.sweep(monkeypatch), opening_s=0)
    a, b = "a0 -a a1 -a", "b0 -b b1 -b"
    cold_a, cold_b = f"{a} | {a}", f"{b} | {b}"  # touched, evicted, then the first opens and the second is timed
    assert " ".join(heard.events) == f"{a} {b} {cold_a} {cold_b} {cold_b} {cold_a}"


def test_medians_are_over_all_samples_but_the_first_of_each_call() -> None:
    us = [900.0] * 4 + [*[10.0, 1.0], *[2.0], *[4.0], *[30.0, 40.0]]  # warm-up a a a b; a a; b; then b; a a
    contenders = [Heard().contender("a", calls=3), Heard().contender("b", calls=1, reads=7)]
    taken = race("p", contenders, Scripted(us), 2, sweep_of(2**20), opening_s=0)
    a, b = taken["a"], taken["b"]
    assert (a.p50_us, a.samples, a.reuse_bytes) == (20.0, 4, 2**20 + 300)
    assert (b.p50_us, b.samples, b.reuse_bytes) == (3.0, 2, 2**20 + 7)
    assert {latency.point for latency in taken.values()} == {"p"}


def test_slow_contenders_run_in_fewer_rounds() -> None:
    def samples(us: float, rounds: int = 6) -> int:
        timer = Scripted([us] * (1 + rounds))
        return race("p", [Heard().contender("a", calls=1)], timer, rounds, sweep_of(2**20), opening_s=0)["a"].samples

    assert [samples(s * 1e6) for s in (4.9, 5.1, 7.4, 7.6, 99.0)] == [6, 4, 4, 2, 2]


def test_screening_leaves_out_what_is_many_times_slower_by_its_better_run() -> None:
    contenders = [Heard().contender(name) for name in ("best", "fair", "slow", "wanted")]
    timer = Scripted([50.0, 10.0, 40.0, 99.0, 41.0, 99.0, 500.0, 500.0])
    assert [c.name for c in screen(contenders, timer, kept=["wanted"])] == ["best", "fair", "wanted"]
