"""How long threads wait for each other: where two meet, one that lost its CPU keeps all others waiting."""

from dataclasses import dataclass

from experiments.checkup.check import Check, percent

STALL_US = 2000.0  # a scheduler's time slice is 3 ms and more; a healthy barrier takes some us
STALLS_PROBLEM = 0.01  # share of calls


@dataclass(frozen=True)
class Barrier:
    """Times in us of small parallel operations of torch on ``threads``. ``stalled``: share of calls over STALL_US.

    ``runtimes``: OpenMP libraries in this process.
    """

    threads: int
    calls: int
    p50_us: float
    p99_us: float
    max_us: float
    stalled: float
    runtimes: tuple[str, ...] = ()


def check(seen: Barrier | None) -> list[Check]:
    """None: there is nothing to wait for, with one thread or without torch."""
    if seen is None:
        return [Check("thread barriers", "ok", "one thread: none to wait for")]
    return [_waiting(seen), *_pools(seen)]


def _waiting(seen: Barrier) -> Check:
    said = f"p50 {seen.p50_us:.0f} us, p99 {seen.p99_us:.0f} us, max {seen.max_us:.0f} us"
    said += f" ({seen.calls} calls, {seen.threads} threads)"
    if seen.stalled >= STALLS_PROBLEM:
        advice = (
            f"{percent(seen.stalled)} of calls waited for a thread without a CPU: end other load or leave CPUs free "
            "(timer.threads); rows will be bimodal"
        )
        return Check("thread barriers", "problem", said, advice)
    if seen.stalled > 0:
        return Check("thread barriers", "note", said, "a thread lost its CPU now and then: expect a wide p90")
    return Check("thread barriers", "ok", said)


def _pools(seen: Barrier) -> list[Check]:
    if len(seen.runtimes) < 2:
        return []
    advice = "two pools spin against each other: OMP_WAIT_POLICY=passive, or an environment with one OpenMP library"
    return [Check("thread pools", "note", ", ".join(seen.runtimes), advice)]
