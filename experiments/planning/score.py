"""How far predictions are off, out of sample: each (q_heads, kv_heads) is predicted by a fit that never saw it."""

from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from experiments.planning.fit import fit
from experiments.planning.load import DTYPE, NAMED, Floats
from experiments.planning.oracle import Latencies
from experiments.planning.predict import latency_us
from experiments.planning.profile import DeviceProfile, Kernel, kernel_of


@dataclass(frozen=True)
class Score:
    """Relative errors |predicted / measured - 1| of one layout on one device.

    ``median`` and ``p90``: of each held-out fold, then the median over folds. ``pooled_*``: of all held-out points as
    one sample. ``worst``: the fold with the largest median. ``fitted``: the kernel fitted to all points.
    """

    device: str
    layout: str
    points: int
    folds: int
    median: float
    p90: float
    pooled_median: float
    pooled_p90: float
    worst: str
    worst_median: float
    fitted: Kernel


def score(profile: DeviceProfile, points: Latencies) -> Score:
    """Fit once per fold without it, and predict it."""
    kernel = kernel_of(NAMED[points.layout].geometry)
    errors = {str(fold): _held_out(profile, kernel, points, points.fold == fold) for fold in np.unique(points.fold)}
    medians = {fold: float(np.median(e)) for fold, e in errors.items()}
    pooled = np.concatenate(list(errors.values()))
    worst = max(medians, key=lambda fold: medians[fold])
    return Score(
        device=profile.name,
        layout=points.layout,
        points=len(points.us),
        folds=len(errors),
        median=median(medians.values()),
        p90=median(_p90(e) for e in errors.values()),
        pooled_median=float(np.median(pooled)),
        pooled_p90=_p90(pooled),
        worst=worst,
        worst_median=medians[worst],
        fitted=fit(profile, kernel, points),
    )


def errors_of(profile: DeviceProfile, kernel: Kernel, points: Latencies) -> Floats:
    """|predicted / measured - 1| per point, of the kernel's formula alone."""
    told = latency_us(kernel, points.load, profile.peak_tflops(DTYPE), profile.cache_bytes.value)
    return np.asarray(np.abs(told / points.us - 1), dtype=np.float64)


def table(scores: list[Score]) -> str:
    """One line per layout and device; a kernel-limited one says so."""
    lines = [
        "device | layout | points | folds | median | p90 | pooled median | pooled p90 | worst fold | what it shows"
    ]
    lines += [
        f"{s.device} | {s.layout} | {s.points} | {s.folds} | {s.median:.1%} | {s.p90:.1%} | {s.pooled_median:.1%} | "
        f"{s.pooled_p90:.1%} | {s.worst} ({s.worst_median:.1%}) | {_shows(s.fitted)}"
        for s in scores
    ]
    return "\n".join(lines)


def _held_out(profile: DeviceProfile, kernel: str, points: Latencies, held: NDArray[np.bool_]) -> Floats:
    return errors_of(profile, fit(profile, kernel, points[~held]), points[held])


def _p90(errors: Floats) -> float:
    return float(np.quantile(errors, 0.9))


def _shows(kernel: Kernel) -> str:
    return "the device" if kernel.limited == "hardware" else "the kernels: far from what the device allows"
