"""Synthetic measurements: one small builder, so that a test names only what it is about."""

import hashlib
from pathlib import Path
from typing import Any

from experiments.record import Measurement
from experiments.records import Loaded, SeriesLog
from experiments.telling.frame import Tidy, tidy
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting, settings

BYTES_PER_TOKEN = {"mha": 16384, "gqa": 4096, "mqa": 512, "mla": 1152}  # Llama-3-8B widths, bf16
READ_GBPS, MATMUL_TFLOPS = 30.0, 1.5
NOT_TIMED: dict[str, Any] = dict.fromkeys(
    (
        "latency_us_p50",
        "latency_us_ci_low",
        "latency_us_ci_high",
        "samples",
        "rounds",
        "bandwidth_gbps",
        "tflops",
        "roofline_fraction",
        "temperature",
    )
)

SAMPLED = ("latency_us_ci_low", "latency_us_ci_high", "samples", "rounds")  # what a predicted row has none of


def row(
    attention: str = "mha", scope: str = "step", context: int = 1024, us: float = 100.0, **given: Any
) -> Measurement:
    """An ok measurement of one point, with an interval of one percent; ``given`` overrides any column."""
    batch = given.get("batch", 1)
    size = (batch or 0) * context * BYTES_PER_TOKEN.get(attention, 2048)
    columns: dict[str, Any] = {
        "series": attention,
        "attention": attention,
        "storage": "contiguous",
        "backend": "sdpa",
        "model": "llama-3-8b",
        "scope": scope,
        "temperature": "cold",
        "dtype": "bf16",
        "kv_dtype": "bf16",
        "batch": batch,
        "context": context,
        "queries": 1,
        "seed": 0,
        "threads": 2,
        "layers": 32,
        "cache_bytes": size,
        "allocated_bytes": size,
        "io_bytes": size + 1024,
        "flops": 4 * size,
        "latency_us_p50": us,
        "latency_us_ci_low": us * 0.99,
        "latency_us_ci_high": us * 1.01,
        "samples": 30,
        "rounds": 5,
        "bandwidth_gbps": 20.0,
        "tflops": 0.5,
        "roofline_fraction": 0.8,
        "read_ceiling_gbps": READ_GBPS,
        "matmul_ceiling_tflops": MATMUL_TFLOPS,
        "status": "ok",
        "device": "Xeon",
        "host": "here",
        "versions": "torch 2.13.0",
        "commit": "abc1234",
        "command": "python -m experiments.run study=quick",
        "started_at": "2025-11-29T12:00:00+00:00",
    }
    if given.get("origin") == "predicted":
        columns.update(dict.fromkeys(SAMPLED))
    columns.update(given)
    identity = repr(sorted((k, v) for k, v in columns.items() if k not in ("latency_us_p50", "started_at")))
    return Measurement(key=columns.pop("key", hashlib.sha256(identity.encode()).hexdigest()[:16]), **columns)


def failed(attention: str, scope: str, context: int, status: str, reason: str, **given: Any) -> Measurement:
    """A row without a time."""
    return row(attention, scope, context, status=status, reason=reason, **NOT_TIMED, **given)


def unbuildable(attention: str, reason: str, **given: Any) -> Measurement:
    """A row of a config that could not become a series: no shape, no machine, no point."""
    unknown = ("batch", "context", "queries", "seed", "cache_bytes", "allocated_bytes", "io_bytes", "flops", "device")
    nothing: dict[str, Any] = dict.fromkeys((*unknown, "host", "threads", "versions", "layers", "commit"))
    known = {"storage": "contiguous", "backend": "sdpa", "model": "llama-3-8b", "scope": "step", "dtype": "bf16"}
    columns: dict[str, Any] = {
        "series": attention,
        "attention": attention,
        "kv_dtype": "bf16",
        **known,
        **nothing,
        **given,
    }
    return Measurement(key=f"unbuildable-{attention}", status="error", reason=reason, **columns)


def table(*rows: Measurement, warnings: tuple[str, ...] = ()) -> Tidy:
    """The tidy table of rows, without a detour over files."""
    return tidy(Loaded(rows, warnings), Path("runs"))


def pages(*rows: Measurement) -> list[Setting]:
    """The settings of rows."""
    return settings(table(*rows).table)


def rule(**given: Any) -> Rule:
    """The default rule with some fields changed, without expecting variants a test does not have."""
    columns: dict[str, Any] = {
        "scope": "step",
        "batch": None,
        "context": None,
        "tie_ratio": 1.05,
        "kernel_limited_below": 0.5,
        "baseline": "mha",
        "expected": (),
    }
    needs = dict.fromkeys(("memory", "ms_per_token", "ms_to_first_token", "other_ms")) | given.pop("needs", {})
    nothing = dict.fromkeys(("text", "model", "device", "tp", "variants", "own"))
    question = nothing | given.pop("question", {})
    return Rule.parse(columns | given | {"needs": needs, "question": question})


def write(folder: Path, *rows: Measurement) -> Path:
    """Append rows to their series' files below ``folder``."""
    for measurement in rows:
        SeriesLog(folder / measurement.series).append(measurement)
    return folder
