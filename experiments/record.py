"""One flat, typed row per measurement. The wings touch only here and where rows are kept (``records``)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from experiments.columns import Row

SCHEMA = 1
STATUSES = (
    "ok",
    "refused",
    "too_large",
    "wrong",
    "oom",
    "timeout",
    "crash",
    "error",
    "interrupted",
    "quarantined",
)
CLEAN = ("ok", "refused", "too_large")  # a run with only these exits 0
TIMED = ("ok", "quarantined")  # only these carry what a clock gave
UNTRIED = ("refused", "too_large")  # only arithmetic was done: a point asked again costs nothing
BROKEN = ("oom", "timeout", "crash", "error")  # only these carry the last words of a process
SCOPES = ("attend", "step", "prefill", "recompute", "project", "absorb", "append", "output")
ALSO = "; also "  # between the reasons of one refusal, each of which may hold a "; " of its own
_SAMPLED = ("latency_us_p10", "latency_us_p90", "latency_us_ci_low", "latency_us_ci_high", "samples", "rounds")
_CLOCKED = (
    "latency_us_p50",
    *_SAMPLED,
    "first_call_us",
    "warmup_us",
    "collective_us",
    "race",
    "stop",
    "bandwidth_gbps",
    "tflops",
    "roofline_fraction",
)


@dataclass(frozen=True, kw_only=True)
class Measurement(Row):
    """One layer, whole batch, one rank, one scope, one point. Units are in the names; null = the status has no value.

    ``context`` counts cached tokens attended, the new ones included. ``cache_bytes`` is logical (layout),
    ``allocated_bytes`` the slabs (padding included, tables apart), ``reserved_bytes`` what a GPU's allocator holds in
    all. ``io_bytes`` is what the scope must move at least, ``intensity`` its FLOPs per byte of that;
    ``transient_bytes`` what one call of attend or step asks the allocator for, freed again or not: expanded or copied
    keys and values are among it. ``first_call_us`` may hold compilation, ``plan_us`` planning; ``warmup_us`` are the
    other calls that are in no sample: those before the first round, and in each round those that come before a cold
    row's sweep and those that open it after that.
    Rows of one ``race`` were sampled in the same rounds, the series in turn: round r of one belongs to round r of all.
    ``interleave``: their caches were ``resident`` together, or allocated anew each round (``realloc``); ``none``: there
    was one series. ``stop``: why rounds ended: the width of the interval (``ci``), the most ``rounds``, the ``budget``.
    ``weight_bytes`` are the layer's; in rows of project, absorb, append and output, parts of a step, those of the part.
    ``kv_error`` is the relative error of attended values that a cache of codes causes, against one of ``dtype``.
    ``cp`` ranks share the sequence: bytes and FLOPs are of the one that holds most of it, ``context`` of all together.
    ``collective_us``: of a step that ``tp`` x ``cp`` processes ran together, the median time in collectives by the rank
    that waited least for the others; null where one rank was measured alone.
    ``device_uuid`` tells one GPU of a host from another; null on a CPU. ``host_series`` were timed on the host at once,
    this one included: of other runs, on devices of their own or told not to wait; of one run, series take turns.
    A ``predicted`` row has a latency but no samples and so no spread.
    ``attempts``: how often this row has been tried in its folder so far, this time included; 0 where a refusal or the
    end of the worker at an earlier point came first, null where nothing is ever tried (predicted) or counted.
    ``stderr``: the last lines that the worker's process said before it failed. ``started_at`` never goes back among the
    rows of one key in one folder: where the clock has, it repeats the newest time there.
    Raises ValueError if the status does not allow the fields that are set.
    """

    WORD: ClassVar[str] = "record"
    SCHEMA: ClassVar[int] = SCHEMA
    key: str
    schema: int = SCHEMA
    study: str | None = None
    series: str
    attention: str
    kind: str | None = None
    form: str | None = None
    storage: str
    order: str | None = None
    backend: str
    model: str
    scope: str
    temperature: str | None = None
    origin: str = "measured"
    dtype: str
    kv_dtype: str
    kv_error: float | None = None
    batch: int | None
    context: int | None
    queries: int | None
    page_size: int | None = None
    window: int | None = None
    tp: int = 1
    tp_mode: str | None = None
    cp: int = 1
    seed: int | None
    threads: int | None = None
    layers: int | None = None
    num_q_heads: int | None = None
    num_kv_heads: int | None = None
    d_qk: int | None = None
    d_v: int | None = None
    scale: float | None = None
    cache_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    table_bytes: int | None = None
    weight_bytes: int | None = None
    io_bytes: int | None = None
    moved_bytes: int | None = None
    transient_bytes: int | None = None
    flops: int | None = None
    intensity: float | None = None
    floor_us: float | None = None
    bound: str | None = None
    latency_us_p10: float | None = None
    latency_us_p50: float | None = None
    latency_us_p90: float | None = None
    latency_us_ci_low: float | None = None
    latency_us_ci_high: float | None = None
    samples: int | None = None
    rounds: int | None = None
    first_call_us: float | None = None
    warmup_us: float | None = None
    plan_us: float | None = None
    collective_us: float | None = None
    reuse_bytes: int | None = None
    interleave: str | None = None
    race: str | None = None
    stop: str | None = None
    bandwidth_gbps: float | None = None
    tflops: float | None = None
    roofline_fraction: float | None = None
    read_ceiling_gbps: float | None = None
    matmul_ceiling_tflops: float | None = None
    status: str
    reason: str | None = None
    stderr: str | None = None
    attempts: int | None = None
    audits: str | None = None
    device: str | None = None
    device_uuid: str | None = None
    host: str | None = None
    host_series: int | None = None
    kernel: str | None = None
    versions: str | None = None
    commit: str | None = None
    command: str | None = None
    started_at: str | None = None

    def __post_init__(self) -> None:
        self.check_types()
        _one_of("status", self.status, STATUSES)
        _one_of("scope", self.scope, SCOPES)
        _one_of("origin", self.origin, ("measured", "predicted"))
        _one_of("temperature", self.temperature, ("cold", "warm", None))
        _one_of("interleave", self.interleave, ("resident", "realloc", "none", None))
        _one_of("stop", self.stop, ("ci", "rounds", "budget", None))
        clocked = [name for name in _CLOCKED if getattr(self, name) is not None]
        if self.status in TIMED and self.latency_us_p50 is None:
            raise ValueError(f"status {self.status} must carry latency_us_p50")
        if self.status not in TIMED and clocked:
            raise ValueError(f"status {self.status} cannot carry {', '.join(clocked)}")
        spread = [name for name in _SAMPLED if getattr(self, name) is not None]
        if self.origin == "predicted" and spread:
            raise ValueError(f"a predicted row has one computed latency; it cannot carry {', '.join(spread)}")
        if self.stderr is not None and self.status not in BROKEN:
            raise ValueError(f"status {self.status} cannot carry stderr")
        if self.attempts is not None and self.attempts < 0:
            raise ValueError(f"attempts must be >= 0; got {self.attempts}")
        if (self.status == "ok") != (self.reason is None) or self.reason == "":
            raise ValueError(f"status {self.status} {'has no' if self.status == 'ok' else 'needs a'} reason")
        if self.latency_us_p50 is not None and self.latency_us_p50 <= 0:
            raise ValueError(f"latency_us_p50 must be > 0; got {self.latency_us_p50}")


def utc_now() -> str:
    """This moment as ``started_at`` says it: ISO 8601 in UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def point_key(identity: Mapping[str, Any]) -> str:
    """Hash of everything that decides a measurement; equal settings give equal keys on every machine."""
    text = json.dumps({"schema": SCHEMA, **identity}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def together(reasons: Sequence[str]) -> str:
    """All reasons of a refusal as one ``reason``."""
    return ALSO.join(reasons)


def apart(reason: str) -> list[str]:
    """The reasons in a row's ``reason``."""
    return reason.split(ALSO)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}; got {value!r}")
