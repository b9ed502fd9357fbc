"""The workers of the series that are measured together, and which series those are."""

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from experiments.measuring.bench import Benches
from experiments.measuring.device import Device
from experiments.measuring.messages import Hand
from experiments.measuring.remote import PROCESS_BYTES, Remote
from experiments.measuring.row import Where
from experiments.measuring.sweep import sweep_bytes
from experiments.measuring.worker import Worker
from variants.contract.checks import check_count, check_number

ISOLATIONS = ("process", "none")
CREW_SHARE = 2 / 3  # of the free memory that processes and the sweep may take; the rest is for caches

Places = tuple[Where, ...]  # one series at all of its points
Group = tuple[Places, ...]  # series that are measured together


@dataclass(frozen=True)
class Conduct:
    """How a run treats its series: in processes of their own or not, how long one may be silent, how many at once."""

    isolation: str
    timeout_s: float | None
    race_size: int

    def __post_init__(self) -> None:
        if self.isolation not in ISOLATIONS:
            raise ValueError(f"isolation must be one of {', '.join(ISOLATIONS)}; got {self.isolation!r}")
        if self.timeout_s is not None:
            check_number("timeout_s", self.timeout_s)
        check_count("race_size", self.race_size)

    def at_once(self, device: Device) -> int:
        """Series that may have a worker at the same time."""
        if self.isolation == "none":
            return self.race_size
        room, sweep = int(device.free_memory() * CREW_SHARE), sweep_bytes(device)
        return max(1, min(self.race_size, (room - sweep) // PROCESS_BYTES))


def grouped(several: Sequence[Places], conduct: Conduct) -> list[Group]:
    """Series with the same points, clock, device and threads race; more than may be at once are split evenly, in order.

    Rows of two groups share no rounds, and no ``race``.
    """
    alike: dict[Hashable, list[Places]] = {}
    for places in several:
        alike.setdefault(_alike(places), []).append(places)
    groups: list[Group] = []
    for members in alike.values():
        device = members[0][0].device
        assert device is not None
        parts = -(-len(members) // conduct.at_once(device))
        cuts = [len(members) * part // parts for part in range(parts + 1)]
        groups += [tuple(members[a:b]) for a, b in itertools.pairwise(cuts)]
    return groups


class Crew:
    """Workers of one group at a time."""

    def __init__(self, conduct: Conduct, benches: Benches) -> None:
        self.conduct = conduct
        self.benches = benches
        self._group: Group | None = None
        self._hands: list[Hand] = []

    def of(self, group: Group) -> list[Hand]:
        """The group's workers, in its order; those of another group are dismissed first."""
        if group is not self._group:
            self.dismiss()
            self._group = group
            self._hire([places[0] for places in group])
        return self._hands

    def dismiss(self) -> None:
        """End all workers."""
        for hand in self._hands:
            hand.close()
        self._hands, self._group = [], None

    def _hire(self, firsts: Sequence[Where]) -> None:
        for where in firsts:
            assert where.device is not None
            if self.conduct.isolation == "none":
                bench = self.benches.of(where)
                self._hands.append(Worker(where.series, where.threads, bench.device, bench.timer))
            else:
                self._hands.append(Remote(where.series, where.device, where.threads, self.conduct.timeout_s))
        for hand in self._hands:
            hand.begun()


def _alike(places: Places) -> Hashable:
    first = places[0]
    assert first.device is not None
    points = tuple((where.point.batch, where.point.context) for where in places)
    return points, first.series.timer, first.device.kind, first.threads
