"""Series take their samples in turn: in which order, for how long, and what the end of one does to the others."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from experiments.measuring.bench import Benches
from experiments.measuring.device import Device
from experiments.measuring.measure import Entrant, measure_point
from experiments.measuring.messages import Failed
from experiments.measuring.rounds import Evict, Lane, take_rounds
from experiments.measuring.row import Where, work_of
from experiments.measuring.series import TimerChoice
from experiments.measuring.timed import Measured
from experiments.record import Measurement
from tests.experiments.builders import OneBench, device, exact, series
from tests.experiments.racing import Pretender
from variants.contract.cost import Point
from variants.contract.dtype import Dtype

POINT = Point(1, 16, 1, Dtype.F32)
NOTHING = Evict(1, lambda already: 0)


def sweeping(log: list[str], enough: int = 2**40) -> Evict:
    """Notes every sweep."""

    def rest(already: int) -> int:
        log.append("sweep")
        return enough - already

    return Evict(enough, rest)


def place(on: Device | None = None, **changes: Any) -> Where:
    return Where(series(context=16, **changes), POINT, on or device(), 2)


def timer(rounds: int = 3, **changes: Any) -> TimerChoice:
    return TimerChoice("wall", rounds, 2, None, **changes)


def lanes(*hands: Pretender, **changes: Any) -> list[Lane]:
    made = [Lane(place(**changes), hand, replicas=3) for hand in hands]
    for lane in made:
        lane.prepare()
    return made


def race(*hands: Pretender, choice: TimerChoice | None = None, on: Device | None = None) -> list[Measured]:
    return measure_point([Entrant(place(on), hand) for hand in hands], choice or timer(), OneBench())


def rows(measured: list[Measured]) -> list[Measurement]:
    return [row for one in measured for row in one.rows]


def noisy(number: int, scope: str) -> float:
    """Medians that no number of rounds makes sure."""
    return 100.0 * (1 + number % 2)


# order


def test_rounds_go_forward_and_back_and_every_series_has_every_scope_once_in_each() -> None:
    log: list[str] = []
    made = lanes(*(Pretender(name, log) for name in "abc"))
    log.clear()
    take_rounds(made, timer(rounds=3), realloc=False, evict=NOTHING)
    samples = [line for line in log if "touch" not in line and "evict" not in line]
    there = [f"{name} {scope}" for scope in ("attend", "step") for name in "abc"]
    back = [f"{name} {scope}" for scope in ("attend", "step") for name in "cba"]
    assert samples == [*there, *back, *there]
    for lane in made:
        assert all(lane.us(cell).shape == (3, 2) for cell in lane.rounds)


def test_one_sweep_makes_all_series_cold_after_all_were_touched() -> None:
    log: list[str] = []
    made = lanes(*(Pretender(name, log) for name in "ab"), scopes=["attend"])
    log.clear()
    take_rounds(made, timer(rounds=2), realloc=False, evict=sweeping(log))
    there = ["a touch attend", "b touch attend", "sweep", "a attend", "b attend"]
    back = ["b touch attend", "a touch attend", "sweep", "b attend", "a attend"]
    assert log == [*there, *back]


def test_the_sweep_is_told_what_was_read_and_a_row_rests_on_the_round_with_the_fewest_bytes() -> None:
    """Of a lane that fails when touched nothing is counted."""
    told: list[int] = []

    def rest(already: int) -> int:
        told.append(already)
        return 1000 - len(told)

    failing = Pretender("c", fails={"touch attend": Failed("error", "no")})
    made = lanes(Pretender("a"), Pretender("b"), failing, scopes=["attend"])
    take_rounds(made, timer(rounds=2), realloc=False, evict=Evict(2**40, rest))
    a, b, c = made
    each = 3 * work_of(a.where, "attend").io_bytes
    assert told == [2 * each, 2 * each]
    (cell,) = a.rounds
    assert a.reuse == b.reuse == {cell: 2 * each + 998}
    assert c.rounds == {}


def test_series_that_evict_each_other_are_touched_in_as_small_a_company_as_does() -> None:
    log: list[str] = []
    made = lanes(*(Pretender(name, log) for name in "abcde"), scopes=["attend"])
    each = 3 * work_of(made[0].where, "attend").io_bytes
    log.clear()
    take_rounds(made, timer(rounds=1), realloc=False, evict=sweeping(log, enough=each + 1))
    turns = " ".join("|" if line == "sweep" else line.replace(" touch attend", "?")[:2].strip() for line in log)
    assert turns == "a? b? | a b c? d? | c d e? | e"


def test_what_takes_long_has_a_sweep_of_its_own() -> None:
    """Four series of 0.08 s, two timed replicas each: of what was touched first, a host could take pages back."""
    log: list[str] = []
    made = lanes(*(Pretender(name, log, us=lambda *of: 40_000.0) for name in "abcd"), scopes=["attend"])
    take_rounds(made, timer(rounds=2), realloc=False, evict=sweeping(log))
    sampled = "".join("|" if line == "sweep" else line[0] for line in log if "attend" in line or line == "sweep")
    assert sampled == "abcd|abcd" + "dc|dcba|ba"


def test_warm_rows_are_neither_touched_nor_swept() -> None:
    log: list[str] = []
    made = lanes(Pretender("a", log), scopes=["attend"], temperature="warm")
    log.clear()
    take_rounds(made, timer(rounds=2), realloc=False, evict=sweeping(log))
    assert log == ["a attend", "a attend"]


def test_c18_a_machine_that_slows_down_makes_no_difference_between_equals() -> None:
    """The i-th call takes 1 + 0.01 i ms. One after the other the second of two equal series would look 40 % slower."""
    passed = iter(range(1000))
    a, b = (Pretender(name, us=lambda *of: 1000 + 10.0 * next(passed)) for name in "ab")
    measured = race(a, b, choice=timer(rounds=26))
    one, other = (exact(m.rows[0].latency_us_p50) for m in measured)
    assert abs(one / other - 1) < 0.02
    samples = [m.samples[m.rows[0].key] for m in measured]
    ratios = np.median(samples[0] / samples[1], axis=1)
    assert abs(np.median(ratios) - 1) < 0.02


# for how long


def test_more_rounds_are_taken_until_every_interval_is_narrow() -> None:
    settles = Pretender("a", us=lambda number, scope: 100.0 if scope == "attend" or number > 2 else 150.0)
    made = lanes(settles, Pretender("b"))
    assert take_rounds(made, timer(rounds=3, max_rounds=99, ci_width=0.1), realloc=False, evict=NOTHING) == "ci"
    assert 3 < settles.sampled["attend"] == settles.sampled["step"] < 20


def test_without_noise_the_least_rounds_are_enough() -> None:
    hand = Pretender("a")
    assert take_rounds(lanes(hand), timer(rounds=4, max_rounds=99, ci_width=0.1), realloc=False, evict=NOTHING) == "ci"
    assert hand.sampled["step"] == 4


@pytest.mark.parametrize("asked", [1, 2])
def test_no_interval_is_believed_before_the_third_round(asked: int) -> None:
    hand = Pretender("a")
    assert (
        take_rounds(lanes(hand), timer(rounds=asked, max_rounds=99, ci_width=0.1), realloc=False, evict=NOTHING) == "ci"
    )
    assert hand.sampled["step"] == 3


def test_medians_that_stay_unsure_end_at_the_most_rounds() -> None:
    hand = Pretender("a", us=noisy)
    assert take_rounds(lanes(hand), timer(max_rounds=7, ci_width=0.1), realloc=False, evict=NOTHING) == "rounds"
    assert hand.sampled["step"] == 7


def test_without_a_width_there_are_as_many_rounds_as_asked_for() -> None:
    hand = Pretender("a")
    assert take_rounds(lanes(hand), timer(rounds=5), realloc=False, evict=NOTHING) == "rounds"
    assert hand.sampled["step"] == 5


def seconds(each: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += each


@pytest.mark.parametrize(("least", "taken"), [(3, 4), (6, 6)])
def test_the_budget_ends_a_point_but_never_before_the_least_rounds(least: int, taken: int) -> None:
    """Rounds of 10 s on a budget of 40."""
    hand, clock = Pretender("a", us=noisy), seconds(10.0)
    choice = timer(rounds=least, max_rounds=99, ci_width=0.1, budget_s=40)
    assert take_rounds(lanes(hand), choice, realloc=False, evict=NOTHING, clock=lambda: next(clock)) == "budget"
    assert hand.sampled["step"] == taken


def test_a_row_says_how_many_rounds_there_were_and_why_no_more() -> None:
    told = rows(race(Pretender("a", us=noisy), Pretender("b"), choice=timer(max_rounds=5, ci_width=0.1)))
    assert {(r.rounds, r.samples, r.stop) for r in told} == {(5, 10, "rounds")}


# memory


def test_series_that_fit_are_in_memory_together_and_rows_of_one_race_say_so() -> None:
    log: list[str] = []
    first, second = (race(Pretender("a", log), Pretender("b", log)) for _ in range(2))
    assert log.count("a prepare") == log.count("b prepare") == 2  # once in each race
    assert log.index("b prepare") < log.index("a attend")
    assert {(r.interleave, r.rounds) for r in rows(first)} == {("resident", 3)}
    assert len({r.race for r in rows(first)}) == 1
    assert {r.race for r in rows(first)}.isdisjoint({r.race for r in rows(second)})


def test_series_that_do_not_fit_together_are_allocated_in_turn() -> None:
    """Each takes 53 248 B and 4096 B for a moment: there is room for one of them."""
    log: list[str] = []
    measured = race(Pretender("a", log), Pretender("b", log), on=device(free=100_000))
    assert {(r.interleave, r.status) for r in rows(measured)} == {("realloc", "ok")}
    turn = ["prepare", "attend", "step", "release"]
    asked = [line for line in log if line.split(maxsplit=1)[1] in turn]
    assert asked[2:18] == [f"{name} {what}" for name in "abba" for what in turn]
    assert measured[0].samples[measured[0].rows[0].key].shape == (3, 1)


def test_before_anybody_is_allocated_anew_all_have_fewer_replicas() -> None:
    a, b = Pretender("a"), Pretender("b")
    measured = race(a, b, on=device(free=3 * 53_248 + 4096))  # by itself each would have one, for a third is 54 614
    assert {r.interleave for r in rows(measured)} == {"resident"}
    roomy = race(a, b, on=device(free=2**30))
    assert {r.samples for r in rows(measured)} == {3}
    assert {r.samples for r in rows(roomy)} == {6}


def test_a_series_by_itself_is_interleaved_with_none() -> None:
    assert {r.interleave for r in rows(race(Pretender("a")))} == {"none"}


# what goes wrong


LOST = [(what, status) for what in ("attend", "step") for status in ("crash", "timeout")]
NEVER_BEGUN = [("prepare", status) for status in ("crash", "timeout", "error", "oom", "wrong")]


@pytest.mark.parametrize(("what", "status"), [*LOST, *NEVER_BEGUN])
def test_what_happens_to_one_series_is_its_own_rows(what: str, status: str) -> None:
    log: list[str] = []
    broken = Pretender("b", log, fails={what: Failed(status, "it was so")})
    told = race(Pretender("a", log), broken, Pretender("c", log))
    assert {(r.status, r.reason) for r in told[1].rows} == {(status, "it was so")}
    assert told[1].samples == {}
    for other in (told[0], told[2]):
        assert {(r.status, r.rounds, r.interleave) for r in other.rows} == {("ok", 3, "resident")}
    assert log.count("b release") == 1  # what it held is given up at once
    assert log.count(f"b {what}") == 1  # and it is asked nothing more


@pytest.mark.parametrize(("what", "other"), [("attend", "step"), ("step", "attend")])
@pytest.mark.parametrize("status", ["error", "oom"])
def test_what_happens_to_one_scope_is_its_own_row(what: str, other: str, status: str) -> None:
    log: list[str] = []
    told = race(Pretender("a", log, fails={what: Failed(status, "it was so")}), Pretender("b", log))
    mine = {row.scope: (row.status, row.reason, row.rounds) for row in told[0].rows}
    assert mine == {what: (status, "it was so", None), other: ("ok", None, 3)}
    assert {(row.status, row.rounds) for row in told[1].rows} == {("ok", 3)}
    assert log.count(f"a {what}") == 1


def test_if_all_are_lost_the_rounds_end() -> None:
    hands = [Pretender(name, fails={"step": Failed("crash", "gone")}) for name in "ab"]
    assert {r.status for r in rows(race(*hands, choice=timer(rounds=10**9)))} == {"crash"}


def test_without_ceilings_no_series_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(sweep: object, timer: object) -> None:
        raise MemoryError("no room to sweep")

    monkeypatch.setattr("experiments.measuring.bench.measure_ceilings", starved)
    log: list[str] = []
    entrants = [Entrant(place(), Pretender(name, log)) for name in "ab"]
    told = measure_point(entrants, timer(), Benches())
    assert {(r.status, r.reason) for r in rows(told)} == {("oom", "out of memory: no room to sweep")}
    assert log == []
