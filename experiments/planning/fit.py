"""How the kernels of a profile were fitted: least squares on the log of the latency, fastest engine per point.

The free figures of ``Kernel`` are fitted by their logs, so that they stay positive. Two things are known before:
``matmul_share`` is near two thirds (FlashMLA reports 660 of an H800's 989 TFLOP/s), as sure as one point of the table,
which only matters where no row of a table is compute-bound; the other figures lean to their start a hundred times less,
which only matters where nothing in the table tells them.
"""

from collections.abc import Sequence

import numpy as np

from experiments.planning.least_squares import least_squares
from experiments.planning.load import DTYPE, Floats
from experiments.planning.oracle import Latencies
from experiments.planning.predict import latency_us
from experiments.planning.profile import DeviceProfile, Kernel

SMALL = 0.05  # a relative error up to which squares count
SHARE = 2 / 3  # of the datasheet's matmul rate
LEAN = 0.01
FREE = ("fixed_us", "tile_us", "merge_us", "read_gbps", "cache_gbps", "matmul_share")
DIGITS = 4


def fit(profile: DeviceProfile, kernel: str, points: Latencies) -> Kernel:
    """The profile's kernel with its figures fitted to ``points``, whatever they were."""
    old = profile.kernels[kernel]
    peak_read = profile.peak_read_gbps.value
    start = _logs([10.0, 1.0, 1.0, 0.9 * peak_read, 1.5 * peak_read, SHARE])
    lean = np.array([1.0 if name == "matmul_share" else LEAN for name in FREE])
    peak, cache_bytes, measured = profile.peak_tflops(DTYPE), profile.cache_bytes.value, np.log(points.us)

    def kernel_with(figures: dict[str, float]) -> Kernel:
        return Kernel(**figures, limited=old.limited, source=old.source)

    def residuals(logs: Floats) -> Floats:
        told = latency_us(kernel_with(_figures(logs)), points.load, peak, cache_bytes)
        return np.concatenate([np.log(told) - measured, lean * (logs - start)])

    found = _figures(least_squares(residuals, start, SMALL))
    return kernel_with({name: float(f"{value:.{DIGITS}g}") for name, value in found.items()})


def as_yaml(kernel: Kernel) -> str:
    """The figures as they stand in ``conf/device``."""
    return "\n".join(f"{name}: {getattr(kernel, name)}" for name in FREE)


def _logs(figures: Sequence[float]) -> Floats:
    """Figures in the order of ``FREE`` as unbounded numbers: logs; of the cache, how much faster than memory it is."""
    positive = dict(zip(FREE, figures, strict=True))
    positive["cache_gbps"] = positive["cache_gbps"] / positive["read_gbps"] - 1
    return np.log(list(positive.values()))


def _figures(logs: Floats) -> dict[str, float]:
    """The inverse; a step far too wide ends at a figure that is no good but still a number."""
    figures = dict(zip(FREE, np.exp(np.clip(logs, -50, 50)).tolist(), strict=True))
    figures["cache_gbps"] = figures["read_gbps"] * (1 + figures["cache_gbps"])
    return figures
