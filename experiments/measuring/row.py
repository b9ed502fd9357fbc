"""Fill the flat row from its parts: what is known before a point runs, and what a measurement adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.measuring.device import Device
from experiments.measuring.messages import Failed
from experiments.measuring.series import Labels, Series
from experiments.measuring.statistics import Summary
from experiments.measuring.workload import Cell
from experiments.record import UNTRIED, Measurement, point_key, utc_now
from variants.contract.cost import Floor, Point, Work, cache_bytes
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout
from variants.contract.scopes import PARTS, part_weights, scope_work
from variants.protocols import Spec


@dataclass(frozen=True)
class Where:
    """A point of a series on a device: all that a row says apart from what was measured."""

    series: Series
    point: Point
    device: Device | None
    threads: int
    started_at: str = field(default_factory=utc_now)

    @property
    def last_level_cache(self) -> int | None:
        """Its bytes; None where it is unknown, or there is no device."""
        return self.device.last_level_cache if self.device else None

    def now(self) -> "Where":
        """The same place, begun at this moment."""
        return replace(self, started_at=utc_now())


def failed_row(where: Where, cell: Cell, failed: Failed) -> Measurement:
    """A row for a point that has no latency: everything that arithmetic knows, and why."""
    tried = failed.tried and failed.status not in UNTRIED
    return Measurement(
        **known(where, cell.scope, cell.temperature),
        status=failed.status,
        reason=one_line(failed.reason),
        stderr=failed.stderr,
        attempts=int(tried),
    )


def failed_rows(where: Where, failed: Failed) -> tuple[Measurement, ...]:
    """All rows of such a point."""
    return tuple(failed_row(where, cell, failed) for cell in where.series.workload.cells)


def row_key(where: Where, scope: str, temperature: str) -> str:
    """The key of a row: a hash of all that decides it; no paths, no names of machines, no verbosity."""
    here = {"scope": scope, "temperature": temperature, "batch": where.point.batch, "context": where.point.context}
    return point_key({**where.series.identity(), **here, "device": _device_kind(where), "threads": where.threads})


def unbuildable_row(labels: Labels, raw: Mapping[str, Any], reason: str) -> Measurement:
    """A row for a config of a sweep that cannot become a series; it has no shape, so no bytes."""
    config = {name: raw[name] for name in ("attention", "storage", "backend", "model", "workload", "tp")}
    key = point_key({"unbuildable": config})
    workload = raw["workload"]
    return Measurement(
        key=key,
        study=labels.study,
        series=labels.folder(key[:8]),
        attention=labels.attention,
        kind=labels.kind,
        storage=labels.storage,
        backend=labels.backend,
        model=str(raw["model"].get("name", labels.model)),
        scope="step",
        dtype=str(workload["dtype"]),
        kv_dtype=str(workload["kv_dtype"] or workload["dtype"]),
        batch=None,
        context=None,
        queries=None,
        seed=None,
        tp=labels.tp if type(labels.tp) is int else 1,
        command=labels.command,
        started_at=utc_now(),
        status="error",
        reason=one_line(reason),
        attempts=1,
    )


def known(where: Where, scope: str, temperature: str) -> dict[str, Any]:
    """Columns that need no measurement: identity, shape, bytes and FLOPs."""
    return {
        **_identity_columns(where, scope, temperature),
        **_shape_columns(where, scope),
        **_machine_columns(where),
    }


def work_of(where: Where, scope: str) -> Work:
    """Bytes and FLOPs of a scope, from the spec's layout, geometry and matmuls."""
    return scope_work(scope, where.series.spec, where.series.workload.kv_dtype, where.point)


def gib(size: int) -> str:
    """A size as reasons say it."""
    return f"{size / 2**30:.2f} GiB ({size} B)" if size >= 2**20 else f"{size} B"


def timed_columns(summary: Summary, work: Work) -> dict[str, Any]:
    """Columns that follow from latencies: quantiles and achieved rates."""
    return {
        "latency_us_p10": summary.p10,
        "latency_us_p50": summary.p50,
        "latency_us_p90": summary.p90,
        "latency_us_ci_low": summary.ci_low,
        "latency_us_ci_high": summary.ci_high,
        "samples": summary.samples,
        "rounds": summary.rounds,
        "bandwidth_gbps": work.io_bytes / summary.p50 / 1e3,
        "tflops": work.flops / summary.p50 / 1e6,
    }


def roofline_columns(summary: Summary, floor: Floor) -> dict[str, Any]:
    """How long it must take at least, why, and how near the median is."""
    return {"floor_us": floor.us, "bound": floor.bound, "roofline_fraction": floor.us / summary.p50}


def one_line(text: str, limit: int = 2000) -> str:
    """A reason that fits a table cell: no newlines, bounded far above what all reasons of a refusal take."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _identity_columns(where: Where, scope: str, temperature: str) -> dict[str, Any]:
    series, point, labels, workload = where.series, where.point, where.series.labels, where.series.workload
    return {
        "key": row_key(where, scope, temperature),
        "scope": scope,
        "temperature": temperature,
        "batch": point.batch,
        "context": point.context,
        "study": labels.study,
        "series": series.name,
        "attention": labels.attention,
        "kind": labels.kind,
        "form": series.spec.form,
        "storage": labels.storage,
        "order": series.policy.order,
        "page_size": series.policy.page_size,
        "window": _window(series),
        "backend": labels.backend,
        "model": series.model.name,
        "dtype": workload.dtype.value,
        "kv_dtype": workload.kv_dtype.value,
        "queries": point.queries,
        "tp": labels.tp,
        "tp_mode": series.tp_mode,
        "seed": workload.seed,
        "threads": where.threads,
    }


def _shape_columns(where: Where, scope: str) -> dict[str, Any]:
    series, point, spec = where.series, where.point, where.series.spec
    layout, geometry, work = spec.layout(series.workload.kv_dtype), spec.geometry(), work_of(where, scope)
    return {
        "layers": series.model.num_hidden_layers,
        "num_q_heads": geometry.num_q_heads,
        "num_kv_heads": geometry.num_kv_heads,
        "d_qk": geometry.d_qk,
        "d_v": geometry.d_v,
        "scale": geometry.scale,
        "cache_bytes": cache_bytes(layout, point),
        **_allocated_columns(series, layout, point),
        "weight_bytes": point.dtype.bytes(_weights(spec, scope)),
        "io_bytes": work.io_bytes,
        "flops": work.flops,
        "intensity": work.flops / work.io_bytes if work.io_bytes else None,  # absorb: none where nothing is absorbed
    }


def _weights(spec: Spec, scope: str) -> int:
    """Elements of the layer; of a part of a step, which no other row is about, those it multiplies by."""
    return part_weights(scope, spec) if scope in PARTS and scope != "attend" else spec.weight_elements


def _machine_columns(where: Where) -> dict[str, Any]:
    device = where.device
    return {
        "device": device.name if device else None,
        "device_uuid": device.uuid if device else None,
        "host": device.host if device else None,
        "versions": device.versions if device else None,
        "commit": device.commit if device else None,
        "command": where.series.labels.command,
        "started_at": where.started_at,
    }


def _allocated_columns(series: Series, layout: CacheLayout, point: Point) -> dict[str, int | None]:
    """Bytes that the storage would take; none where it cannot hold such a layout."""
    held = not series.policy.refuses(layout)
    return {
        "allocated_bytes": series.policy.allocated_bytes(layout, point.batch, point.context) if held else None,
        "table_bytes": series.policy.table_bytes(point.batch, point.context) if held else None,
    }


def _window(series: Series) -> int | None:
    """Tokens kept where all streams keep the same last ones."""
    keeps = {stream.keep for stream in series.spec.layout(series.workload.kv_dtype).streams}
    only = next(iter(keeps))
    return only.size if len(keeps) == 1 and isinstance(only, Window) else None


def _device_kind(where: Where) -> str:
    return where.device.kind if where.device else where.series.device
