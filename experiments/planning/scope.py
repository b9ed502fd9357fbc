"""What a device's profile says of a timed scope: attending as its kernels were fitted, the rest at its ceilings."""

from dataclasses import dataclass

from experiments.planning.load import spec_load
from experiments.planning.predict import predict, prefill_us, projection_us
from experiments.planning.profile import DeviceProfile, kernel_of
from variants.contract.cost import Applied, Floor, Point, Work, matmul_work, roofline
from variants.contract.dtype import Dtype
from variants.contract.scopes import Countable, scope_work

SCOPES = ("attend", "step", "prefill")


@dataclass(frozen=True)
class Told:
    """A latency in us, never below its floor, what stands for its kernel, and the scope's work."""

    us: float
    kernel: str
    work: Work
    floor: Floor


def tell(profile: DeviceProfile, spec: Countable, kv_dtype: Dtype, point: Point, scope: str, temperature: str) -> Told:
    """Predict one of ``SCOPES``; ValueError if the profile has no rate for the dtype or no such scope."""
    if scope not in SCOPES:
        raise ValueError(f"a profile predicts {' and '.join(SCOPES)}; got scope {scope}")
    whole = scope_work(scope, spec, kv_dtype, point)
    if scope == "prefill":
        kernel, us = "profile:prefill (not fitted)", _prefill_us(profile, spec, point, whole)
    else:
        kernel, us = _attend(profile, spec, kv_dtype, point, temperature)
    if scope == "step":
        us += _around_us(profile, spec, kv_dtype, point, whole)
    floor = roofline(whole, profile.read_gbps.value, matmul_tflops(profile, point.dtype))
    return Told(max(us, floor.us), kernel, whole, floor)


def matmul_tflops(profile: DeviceProfile, dtype: Dtype) -> float:
    """What products reach on the device."""
    return profile.peak_tflops(dtype) * profile.matmul_share.value


def _attend(
    profile: DeviceProfile, spec: Countable, kv_dtype: Dtype, point: Point, temperature: str
) -> tuple[str, float]:
    """The kernel that attends, and its time."""
    geometry = spec.geometry()
    kind = kernel_of(geometry)
    load = spec_load(spec.layout(kv_dtype), geometry, spec.matmuls(), [point])
    limited = " (kernel-limited)" if profile.kernels[kind].limited == "kernel" else ""
    return f"profile:{kind}{limited}", float(predict(profile, kind, load, point.dtype, temperature).latency_us[0])


def _around_us(profile: DeviceProfile, spec: Countable, kv_dtype: Dtype, point: Point, whole: Work) -> float:
    """Time of what a step does beside attending."""
    attend = scope_work("attend", spec, kv_dtype, point)
    rest = Work(whole.io_bytes - attend.io_bytes, whole.flops - attend.flops)
    return projection_us(profile, sum(m.applied is Applied.NEW for m in spec.matmuls()), rest, point.dtype)


def _prefill_us(profile: DeviceProfile, spec: Countable, point: Point, whole: Work) -> float:
    """Time of a prompt: projections at the device's matmul rate, attention at that of its kernels."""
    form = spec.prefilling()
    products, rows = form.matmuls(), point.batch * point.context
    projected = matmul_work(products, rows, point.dtype).flops
    kernel = profile.kernels[kernel_of((form.unpacked() or form).geometry())]
    return prefill_us(profile, kernel, len(products), whole, projected, point.dtype)
