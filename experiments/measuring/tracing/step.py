"""One decode step of a series, watched: what lies in the cache, what the step made, and what became of it."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from experiments.measuring.device import Device
from experiments.measuring.prepare import OTHER_NOISE, weights
from experiments.measuring.series import Series
from experiments.measuring.tracing.ledger import Ledger
from experiments.measuring.tracing.memory import FROM_CACHE, Made
from experiments.measuring.tracing.room import check_room
from experiments.measuring.tracing.watch import watched
from experiments.traced import Held, Seen, Traced
from variants.contract.cost import Point
from variants.decode import Step, plan_step
from variants.noise import noise_
from variants.view import TORCH_DTYPES, CacheView


def trace(series: Series, point: Point, device: Device) -> Traced:
    """Run one decode step at a point over a cache full of noise; ValueError if it does not fit or is refused."""
    _check(series, point, device)
    dtype, spec = TORCH_DTYPES[point.dtype], series.spec
    cache = series.policy.allocate(spec.layout(series.workload.kv_dtype), point.batch, point.context, device.torch)
    before = point.context - point.queries
    cache.fill_noise(before, series.workload.seed)
    x = torch.empty(point.batch, point.queries, spec.hidden_size, dtype=dtype, device=device.torch)
    noise_(x, series.workload.seed + OTHER_NOISE)
    position = torch.arange(before, point.context, device=device.torch).expand(point.batch, -1)
    with torch.no_grad():
        attention = weights(series, device, number=0)
        step = plan_step(attention, cache, series.backend, point.context, point.queries)
        return run(step, x, position)


def _check(series: Series, point: Point, device: Device) -> None:
    """ValueError, before anything is allocated, for what this device, storage or memory cannot do."""
    policy, layout = series.policy, series.spec.layout(series.workload.kv_dtype)
    reasons = [*device.refuses(point.dtype), *policy.refuses(layout, point.queries)]
    if reasons:
        raise ValueError("; ".join(reasons))
    check_room(series, point, device)


def run(step: Step, x: Tensor, position: Tensor) -> Traced:
    """Watch a planned step once."""
    own = step.unpack is not None  # decompressed keys and values have slabs of their own
    views = (step.cache.view, step.view) if own else (step.cache.view,)
    before = [[slab.clone() for slab in view.slabs] for view in views]
    ledger = Ledger()
    with watched(step, x, ledger) as seen:
        y = seen(x, position)
    told = _told(ledger.made, ledger.entry_of(y))
    held, *scratch = (_held(view, slabs) for view, slabs in zip(views, before, strict=True))
    return Traced(held, told, step.cache.allocated_bytes, scratch[0] if scratch else (), step.plan.kernel)


def _held(view: CacheView, before: Sequence[Tensor]) -> tuple[Held, ...]:
    """What every stream holds; a slot was written if any of its bytes differ from what lay there."""
    found = []
    for stream in view.layout.streams:
        index, row = next((i, s) for i, s in enumerate(view.layout.slabs()) if stream.name in s.offsets)
        columns = slice(row.offsets[stream.name], row.offsets[stream.name] + stream.row_bytes)
        changed = (view.slabs[index][..., columns] != before[index][..., columns]).any(dim=-1)  # [P, heads, S]
        slots = sum(stream.keep.entries(int(length)) for length in view.lengths)
        written = int(changed.any(dim=1).sum())
        kind = _said(TORCH_DTYPES[stream.dtype])
        sizes = (slots, written * stream.entry_bytes, slots * stream.entry_bytes)
        found.append(Held(stream.name, stream.heads, stream.width, kind, *sizes))
    return tuple(found)


def _told(made: Sequence[Made], answer: Made | None) -> tuple[Seen, ...]:
    """Entries in the order of the run; those of one stage, name, shape and fate are one line."""
    lines: dict[tuple[object, ...], Seen] = {}
    for entry in made:
        seen = _seen(entry, passed_on=entry is answer)
        key = (seen.stage, seen.name, seen.shape, seen.dtype, seen.minor, seen.fate)
        first = lines.setdefault(key, seen)
        if first is not seen:
            lines[key] = replace(first, count=first.count + 1, functions=f"{first.functions} {seen.functions}")
    return tuple(lines.values())


def _seen(entry: Made, passed_on: bool) -> Seen:
    minor = entry.inner or entry.stage == "append" or not (entry.named or entry.of_cache_alone)
    letters = entry.letters or ("",) * len(entry.shape)
    where = (entry.stage, entry.name, letters, entry.shape, _said(entry.dtype), entry.bytes)
    fate = "passed on" if passed_on else _fate(entry)
    return Seen(*where, count=1, fate=fate, functions=entry.function, minor=minor)


def _fate(entry: Made) -> str:
    if entry.alive:
        return "kept"
    if entry.stored:
        return "cached"
    if entry.of_cache_alone:
        return "copied" if entry.origin == FROM_CACHE else "again"
    return "dropped"


def _said(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
