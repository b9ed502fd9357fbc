"""What is compared, by name, and the target of each number."""

from dataclasses import dataclass
from fnmatch import fnmatch

from experiments.benching.sizes import VARIANTS, Sizes
from variants.contract.dtype import Dtype
from variants.contract.tokens import format_tokens

DTYPES = (Dtype.F32, Dtype.BF16)
SECTIONS = ("attend", "growth", "pool", "step")
ATTEND = {  # (variant, dtype): share of the roofline, times faster than the best torch path
    ("mha", Dtype.F32): (0.80, 2.0),
    ("gqa8", Dtype.F32): (0.60, 1.5),
    ("mha", Dtype.BF16): (0.65, 1.4),
    ("gqa8", Dtype.BF16): (0.45, 1.2),
    **{(variant, dtype): (0.50, 1.0) for variant in ("mqa", "mla") for dtype in DTYPES},
}
ENABLE_GQA = {Dtype.F32: 5.0, Dtype.BF16: 10.0}  # times faster than torch's own grouped SDPA
NONLINEARITY, POOL_RATIO, STEP = 0.15, 1.15, 1.5
AT_MOST = ("nonlinearity", "pool_ratio")  # of every other metric more is better


@dataclass(frozen=True)
class BenchPoint:
    """One comparison: a section, a variant and a dtype."""

    section: str
    variant: str
    dtype: Dtype
    context: int = 0  # cached tokens; 0 where there are several numbers of them

    @property
    def name(self) -> str:
        """``attend/gqa8/bf16/16k``."""
        tokens = [format_tokens(self.context)] if self.context else []
        return "/".join([self.section, self.variant, self.dtype.value, *tokens])

    @property
    def targets(self) -> dict[str, float]:
        """What each metric of this point should reach."""
        if self.section == "attend":
            fraction, speedup = ATTEND[self.variant, self.dtype]
            grouped = {"speedup_vs_enable_gqa": ENABLE_GQA[self.dtype]} if self.variant == "gqa8" else {}
            return {"roofline_fraction": fraction, "speedup_vs_best_torch": speedup, **grouped}
        if self.section == "step":
            return {f"speedup_vs_transformers_{cache}": STEP for cache in ("dynamic", "static")}
        return {"nonlinearity": NONLINEARITY} if self.section == "growth" else {"pool_ratio": POOL_RATIO}


@dataclass(frozen=True)
class Result:
    """A metric of a point against its target; ``value`` is None where ``reason`` says why there is none."""

    point: str
    metric: str
    value: float | None
    target: float
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the target is met."""
        if self.value is None:
            return False
        return self.value <= self.target if self.metric in AT_MOST else self.value >= self.target


def all_points(sizes: Sizes) -> list[BenchPoint]:
    """Every comparison there is, in the order in which they run."""
    growing = [(variant, Dtype.BF16) for variant in ("gqa8", "mla")]
    return [
        *(BenchPoint("attend", v, d, sizes.context) for v in VARIANTS for d in DTYPES),
        *(BenchPoint("growth", v, d) for v, d in growing),
        *(BenchPoint("pool", v, d, sizes.used) for v, d in growing),
        *(BenchPoint("step", v, d, c) for v in VARIANTS for d in DTYPES for c in sizes.steps),
    ]


def select(points: list[BenchPoint], patterns: str | None) -> list[BenchPoint]:
    """Points whose name fits one of the comma-separated patterns (``attend/*,step/mla/*``); None: all.

    Raises ValueError for a pattern that fits none.
    """
    if patterns is None:
        return points
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    for pattern in wanted:
        if not any(fnmatch(point.name, pattern) for point in points):
            raise ValueError(f"no point is called {pattern!r}; there are {', '.join(p.name for p in points)}")
    return [point for point in points if any(fnmatch(point.name, pattern) for pattern in wanted)]
