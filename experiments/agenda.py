"""What of a run is still to be done: of every job, the points whose rows are there and those that are left."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.jobs import Orders, Unbuildable
from experiments.measuring.crew import Places
from experiments.measuring.point import obstacle, places
from experiments.measuring.row import Where, failed_rows, row_key, unbuildable_row
from experiments.measuring.scopes import blocked_scopes
from experiments.measuring.series import Series
from experiments.measuring.workload import Cell
from experiments.planning.profile import DeviceProfile
from experiments.predicted import predicted
from experiments.record import UNTRIED, Measurement
from experiments.recorded import Recorded, Wanted

PointKeys = tuple[str, ...]  # a point is known by the keys of its rows


@dataclass(frozen=True)
class Standing:
    """Where one job stands before the run begins.

    ``left`` are those of its ``places`` that are to be done, ``there`` the rows of the others. ``broken``: the row of a
    config that cannot be built and that is not there yet.
    """

    places: Places = ()
    left: Places = ()
    there: tuple[Measurement, ...] = ()
    broken: tuple[Measurement, ...] = ()

    @property
    def steps(self) -> int:
        """Points that will get rows."""
        return len(self.left) + len(self.broken)


def survey(jobs: Sequence[Series | Unbuildable], orders: Orders, recorded: Recorded) -> list[Standing]:
    """Where every job stands. A point that several jobs of a run ask for is left to the first.

    Raises ValueError if ``resume=none`` and some row is already there.
    """
    claimed: set[PointKeys] = set()
    return [
        _broken(job, orders, recorded) if isinstance(job, Unbuildable) else _standing(job, orders, recorded, claimed)
        for job in jobs
    ]


def point_keys(where: Where) -> PointKeys:
    """The keys of a point's rows: what tells it from all others."""
    where = _nowhere_if_predicted(where)
    return tuple(row_key(where, cell.scope, cell.temperature) for cell in where.series.workload.cells)


def wanted_rows(where: Where) -> list[Wanted]:
    """The rows that a run writes for a point."""
    where = _nowhere_if_predicted(where)
    return [_wanted(where, cell) for cell in where.series.workload.cells]


def unmeasured(left: Places) -> list[tuple[Measurement, ...]] | None:
    """Rows per point of a series for which nothing runs: predicted, or refused throughout; else None."""
    if left[0].series.origin == "predicted":
        return [predicted(where) for where in left]
    why = [obstacle(where) for where in left]
    if None in why:
        return None
    return [failed_rows(where, failed) for where, failed in zip(left, why, strict=True) if failed]


def _own(series: Series, orders: Orders) -> Places:
    """The points that are this shard's; all, if there are no shards."""
    return tuple(places(series)) if orders.shard is None else orders.shard.cut(places(series))


def _standing(series: Series, orders: Orders, recorded: Recorded, claimed: set[PointKeys]) -> Standing:
    every, left = _own(series, orders), []
    there: list[Measurement] = []
    for where in every:
        wanted = wanted_rows(where)
        keys = tuple(one.key for one in wanted)
        if keys in claimed:
            continue
        claimed.add(keys)
        if orders.resume == "none" and recorded.holds(wanted):
            raise _occupied(orders)
        kept = recorded.kept(wanted, orders.resume)
        if kept is None or not _still(where, kept):
            left.append(where)
        else:
            there += kept
    return Standing(every, tuple(left), tuple(there))


def _broken(job: Unbuildable, orders: Orders, recorded: Recorded) -> Standing:
    row = unbuildable_row(job.labels, job.config.values, job.reason)
    if orders.shard is not None and not orders.shard.owns(row.key):
        return Standing()
    wanted = [Wanted(row.key)]
    if orders.resume == "none" and recorded.holds(wanted):
        raise _occupied(orders)
    kept = recorded.kept(wanted, orders.resume)
    return Standing(broken=(row,)) if kept is None else Standing(there=kept)


def _occupied(orders: Orders) -> ValueError:
    return ValueError(
        f"{orders.folder} already holds rows of this run, and resume=none; choose a folder with name=... "
        "or go on with resume=missing"
    )


def _nowhere_if_predicted(where: Where) -> Where:
    """The place that a point's rows name: where nothing runs there is no device and are no threads."""
    return where if where.series.origin == "measured" else Where(where.series, where.point, None, 0)


def _wanted(where: Where, cell: Cell) -> Wanted:
    series, device = where.series, where.device
    both = "warm" in series.workload.temperatures
    instead = None if both or cell.temperature == "warm" else row_key(where, cell.scope, "warm")
    name, versions = (device.name, device.versions) if device else (None, None)
    if series.origin == "predicted":
        name = DeviceProfile.parse(series.profile).name
    return Wanted(row_key(where, cell.scope, cell.temperature), instead, name, versions)


def _still(where: Where, kept: Sequence[Measurement]) -> bool:
    """Whether a point that arithmetic alone had ruled out still is; more memory or a new package may admit it now."""
    if where.series.origin == "predicted" or any(row.status not in UNTRIED for row in kept):
        return True
    return obstacle(where) is not None or len(blocked_scopes(where)) == len(where.series.workload.scopes)
