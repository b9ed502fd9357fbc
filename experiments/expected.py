"""How long a run will take: an estimate from rows that are there, or from what a device's profile predicts.

Between two bounds, since rounds end when medians are known well enough: the least rounds at the expected latencies,
and the most that rounds and budget allow, with predicted latencies ``SLACK`` times as long. A profile of a CPU holds
what no kernel beats, so only rows of an earlier run make the bounds narrow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from experiments.measuring.cold import OPENING_S
from experiments.measuring.device import Device, is_model
from experiments.measuring.prepare import openers, replica_bytes, replica_count, weight_bytes
from experiments.measuring.row import Where, work_of
from experiments.measuring.scopes import blocked_scopes
from experiments.measuring.series import TimerChoice
from experiments.measuring.sweep import sweep_bytes
from experiments.measuring.workload import Cell
from experiments.planning.configs import profiles
from experiments.planning.profile import DeviceProfile
from experiments.planning.scope import SCOPES
from experiments.predicted import predicted_us
from experiments.recorded import Recorded, Wanted

CONF = Path(__file__).parent / "conf" / "device"
_known = cache(profiles)
SLACK = 4  # kernels on a CPU reach a quarter of its ceilings or more (results/0001-quick-cpu)
START_S = 3.0  # of a series' worker, others starting beside it
CEILINGS_S = 8.0  # of the machine's own ceilings, and of the first point's second look
FILL_GBPS = 0.7  # noise into caches and weights, on one core
WARMING = 3  # calls per replica before the first round: proofs, page faults, compilation
UNKNOWN_US = 1000.0  # a call of which nothing at all is known
HERE, NOTHING = "earlier rows", "no profile of this device"


@dataclass(frozen=True)
class Span:
    """Seconds, at least and at most."""

    least: float = 0.0
    most: float = 0.0

    def __add__(self, other: "Span") -> "Span":
        return Span(self.least + other.least, self.most + other.most)

    def __mul__(self, share: float) -> "Span":
        return Span(self.least * share, self.most * share)


@dataclass
class Forecast:
    """Foretells points; ``sources`` counts where the latencies of their rows came from."""

    recorded: Recorded
    sources: Counter[str] = field(default_factory=Counter)

    def of_point(self, wheres: Sequence[Where], wanted: Sequence[Sequence[Wanted]], first: bool) -> list[Span]:
        """What each series' part of a point takes that several race at; ``first``: their workers start with it."""
        timer = wheres[0].series.timer
        rounds = [self._round(where, rows) for where, rows in zip(wheres, wanted, strict=True)]
        whole = sum(rounds, Span())
        timed = Span(timer.rounds * whole.least, _most(timer, whole.most))
        shares = [one.least / whole.least if whole.least else 1 / len(rounds) for one in rounds]
        return [
            timed * share + one * WARMING + _prepared(where, first)
            for where, one, share in zip(wheres, rounds, shares, strict=True)
        ]

    def _round(self, where: Where, rows: Sequence[Wanted]) -> Span:
        """One round of a series: every replica once per row; a cold one is touched before, and swept at most."""
        device, blocked, found = where.device, blocked_scopes(where), Span()
        assert device is not None
        replicas = replica_count(where.series, where.point, device.free_memory())
        for cell, row in zip(where.series.workload.cells, rows, strict=True):
            if cell.scope in blocked:
                continue
            cold = cell.temperature == "cold"
            calls = 2 * replicas if cold else max(1, replicas - openers(where.series))
            found += self._latency_s(where, cell, row) * calls
            found += Span(OPENING_S, OPENING_S + (_evicting_s(device) if cold else 0.0))
        return found

    def _latency_s(self, where: Where, cell: Cell, wanted: Wanted) -> Span:
        earlier = self.recorded.timed(wanted)
        if earlier is not None and earlier.latency_us_p50 is not None:
            self.sources[HERE] += 1
            return _both(earlier.latency_us_p50 * 1e-6)
        profile = profile_of(where)
        self.sources[f"the profile of {profile.name}" if profile else NOTHING] += 1
        us = _predicted_us(where, cell, profile) if profile else UNKNOWN_US
        return Span(us, SLACK * us) * 1e-6


def profile_of(where: Where) -> DeviceProfile | None:
    """The profile in ``conf/device`` of the device in front of us."""
    device = where.device
    if device is None:
        return None
    known = _known(CONF)
    names = [device.kind] if device.kind in known else [kind for kind in known if is_model(kind, device.name)]
    return known[names[0]] if names else None


def _predicted_us(where: Where, cell: Cell, profile: DeviceProfile) -> float:
    """What the profile says of a scope; where it says nothing, the time of reading the scope's bytes."""
    reading = work_of(where, cell.scope).io_bytes / (profile.read_gbps.value * 1e3)
    if cell.scope not in SCOPES:
        return reading
    try:
        return predicted_us(where, cell, profile)
    except ValueError:  # no rate for this dtype
        return reading


def _both(seconds: float) -> Span:
    return Span(seconds, seconds)


def _most(timer: TimerChoice, round_s: float) -> float:
    """The longest that the rounds of a point can take, all its series together."""
    least, most = timer.rounds * round_s, (timer.max_rounds or timer.rounds) * round_s
    return most if timer.budget_s is None else min(most, max(least, timer.budget_s + round_s))


def _prepared(where: Where, first: bool) -> Span:
    device, series = where.device, where.series
    assert device is not None
    replicas = replica_count(series, where.point, device.free_memory())
    fresh = sum(replica_bytes(series, where.point).values()) - (0 if first else weight_bytes(series))
    seconds = replicas * fresh / FILL_GBPS / 1e9 + (START_S if first else 0.0)
    return Span(seconds, 2 * seconds)


def _evicting_s(device: Device) -> float:
    return sweep_bytes(device) / 10e9  # at least what one core reads a second
