"""Rows of ``study=predict``: what a device that need not be here would take, marked ``origin: predicted``."""

from dataclasses import dataclass, replace
from typing import Any

from experiments.measuring.device import find_device
from experiments.measuring.row import Where, known, one_line
from experiments.measuring.series import Series
from experiments.measuring.workload import Cell
from experiments.planning.profile import DeviceProfile
from experiments.planning.scope import SCOPES, matmul_tflops, tell
from experiments.record import Measurement, together
from variants.contract.cost import Point

BACKEND = "profile"  # what stands where a measured row names its backend: no backend of ours ran or was modelled


def predictable(series: Series) -> Series:
    """The series as its predicted rows name it; ValueError if its device has no profile to predict from."""
    if series.origin == "measured":
        return series
    if series.profile is None:
        raise ValueError(
            "study=predict needs a device whose yaml in conf/device has a profile, e.g. device=h200; "
            f"got device.kind={series.device!r}"
        )
    DeviceProfile.parse(series.profile).peak_tflops(series.workload.dtype)
    return replace(series, labels=replace(series.labels, backend=BACKEND))


def predicted(where: Where) -> tuple[Measurement, ...]:
    """The rows of one point; nothing runs, so there are no samples."""
    told = _Teller(where.series, DeviceProfile.parse(where.series.profile))
    return tuple(told.row(where.point, cell) for cell in where.series.workload.cells)


def predicted_us(where: Where, cell: Cell, profile: DeviceProfile) -> float:
    """The latency alone, of a scope that profiles tell; ValueError if this one has no rate for the dtype."""
    return float(_Teller(where.series, profile).timed(where, cell)["latency_us_p50"])


@dataclass(frozen=True)
class _Teller:
    """A series on a device's profile."""

    series: Series
    profile: DeviceProfile

    def row(self, point: Point, cell: Cell) -> Measurement:
        """What is known of a scope at a point, and its latency or the reason why it has none."""
        where = Where(self.series, point, device=None, threads=0)
        obstacle = self._obstacle(where, cell.scope)
        here = find_device("cpu")
        columns = {
            **known(where, cell.scope, cell.temperature),
            "origin": "predicted",
            "device": self.profile.name,
            "threads": None,
            "commit": here.commit if here else None,
        }
        if obstacle is None:
            return Measurement(**columns, **self.timed(where, cell), status="ok")
        return Measurement(**columns, status=obstacle[0], reason=one_line(obstacle[1]))

    def _obstacle(self, where: Where, scope: str) -> tuple[str, str] | None:
        """A scope that no profile tells, a storage that cannot hold the layout, or bytes that the device lacks."""
        if scope not in SCOPES:
            return "refused", f"a profile predicts {' and '.join(SCOPES)}; got scope {scope}"
        policy, spec, point = self.series.policy, self.series.spec, where.point
        layout = spec.layout(self.series.workload.kv_dtype)
        reasons = policy.refuses(layout, point.queries)
        if reasons:
            return "refused", together(reasons)
        cache = policy.allocated_bytes(layout, point.batch, point.context)
        wanted, there = cache + point.dtype.bytes(spec.weight_elements), int(self.profile.memory_bytes.value)
        if wanted <= there:
            return None
        return "too_large", f"needs {wanted} B for one layer's cache and weights; {self.profile.name} has {there} B"

    def timed(self, where: Where, cell: Cell) -> dict[str, Any]:
        profile, workload = self.profile, self.series.workload
        told = tell(profile, self.series.spec, workload.kv_dtype, where.point, cell.scope, cell.temperature)
        return {
            "latency_us_p50": told.us,
            "bandwidth_gbps": told.work.io_bytes / told.us / 1e3,
            "tflops": told.work.flops / told.us / 1e6,
            "floor_us": told.floor.us,
            "bound": told.floor.bound,
            "roofline_fraction": told.floor.us / told.us,
            "read_ceiling_gbps": profile.read_gbps.value,
            "matmul_ceiling_tflops": matmul_tflops(profile, where.point.dtype),
            "kernel": told.kernel,
        }
