"""Seeded faults of kernels, clocks, workloads and counts: each is caught by name, and passes where its check is off."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.measuring import audit, clocks, row
from experiments.measuring.audit import Check
from experiments.measuring.clocks import Clocks
from experiments.measuring.series import Series
from experiments.measuring.timing import WallTimer
from experiments.record import Measurement
from tests.experiments.builders import Faulty, OneBench, bench, device, rows_of, series
from variants.attention.grouped.module import GroupedAttention
from variants.backend.eager import Eager
from variants.contract.layout import CacheLayout
from variants.decode import Step
from variants.protocols import Plan
from variants.storage.cache import Cache
from variants.storage.paged import Paged, PagedCache

Patch = pytest.MonkeyPatch


class Repeating(Faulty):
    """A backend whose output is what its first call gave."""

    def __init__(self) -> None:
        self.last: Tensor | None = None
        super().__init__(spoil=self._keep)

    def _keep(self, o: Tensor) -> Tensor:
        self.last = o.clone() if self.last is None else self.last
        return self.last


def made(backend: Any = None, **changes: Any) -> Series:
    """MHA, two sequences of 64 tokens, attend only."""
    right = series("mha", "eager", **{"batch": 2, "context": 64, "scopes": ["attend"], **changes})
    return right if backend is None else dataclasses.replace(right, backend=backend)


def half_the_cache(patch: Patch) -> list[Measurement]:
    return rows_of(made(Faulty(share=0.5)), patch)


def all_but_the_newest(patch: Patch) -> list[Measurement]:
    """One token of 8192: what noise would make of it is less than what bf16 rounds away."""
    return rows_of(made(Faulty(share=1 - 2**-13), context=2**13, dtype="bf16"), patch)


def the_last_output(patch: Patch) -> list[Measurement]:
    return rows_of(made(Repeating()), patch)


def no_synchronisation(patch: Patch) -> list[Measurement]:
    """Kernels that run on after their call returns, 50 ms each, one after another, and a clock that does not wait."""
    busy = [0.0]

    def launch(o: Tensor) -> Tensor:
        busy[0] = max(busy[0], time.perf_counter()) + 0.05
        return o

    on = device()
    patch.setattr(type(on), "synchronize", lambda self: time.sleep(max(0.0, busy[0] - time.perf_counter())))
    hasty = WallTimer(lambda: None)
    return rows_of(made(Faulty(spoil=launch)), patch, on, OneBench(bench(on, hasty)))


def zeros(patch: Patch) -> list[Measurement]:
    patch.setattr(Cache, "fill_noise", _filled)
    return rows_of(made(), patch)


def zeros_in_pages(patch: Patch) -> list[Measurement]:
    patch.setattr(PagedCache, "fill_noise", _filled)
    return rows_of(made(storage="paged"), patch)


def zeros_in_a_ring(patch: Patch) -> list[Measurement]:
    """The newest token has overwritten an old one, in the middle of the window."""
    patch.setattr(Cache, "fill_noise", _filled)
    return rows_of(made(storage="ring", options={"window": 24}, storing={"queries": 1}), patch)


def _filled(cache: Cache, length: int, *noise: int) -> None:
    for slab in cache.view.slabs:
        slab.zero_()
    cache.view.lengths.fill_(length)


def shared_pages(patch: Patch) -> list[Measurement]:
    """Both sequences lie in the memory of one."""
    right = Paged.allocate

    def shared(self: Paged, layout: CacheLayout, batch: int, tokens: int, on: torch.device) -> Any:
        cache = right(self, layout, batch, tokens, on)
        table = cache.view.block_table
        assert table is not None
        table[1:] = table[:1]
        return cache

    patch.setattr(Paged, "allocate", shared)
    return rows_of(made(storage="paged"), patch)


def twice_the_bytes(patch: Patch) -> list[Measurement]:
    patch.setattr(row, "cache_bytes", lambda layout, point: 2 * point.batch * layout.bytes(point.context))
    return rows_of(made(), patch)


class Named(Faulty):
    """A backend that falls back to torch and names the compiled code that it was meant to run."""

    def plan(self, *args: Any, **options: Any) -> Plan:
        """Eager's, under a name that promises none of torch's products."""
        return Plan(Eager().plan(*args, **options).attend, "numba_split_kv[1024]", shows=())


def another_kernel(patch: Patch) -> list[Measurement]:
    return rows_of(made(Named()), patch)


def throttling(patch: Patch) -> list[Measurement]:
    """Three heat events while the first round was sampled."""
    looks = iter([Clocks(7, None, 3000.0), Clocks(10, None, 2400.0)])
    patch.setattr(clocks, "look", lambda kind: next(looks, Clocks(10, None, 3000.0)))
    return rows_of(made(), patch)


def a_hot_gpu(patch: Patch) -> list[Measurement]:
    patch.setattr(clocks, "look", lambda kind: Clocks(None, ("hardware thermal",), 1200.0))
    return rows_of(made(), patch)


def no_projection(patch: Patch) -> list[Measurement]:
    """The step leaves its last product out; attending is right."""
    patch.setattr(GroupedAttention, "output", lambda self, o: o.flatten(2))
    return rows_of(made(scopes=["step"]), patch)


def no_append(patch: Patch) -> list[Measurement]:
    """The step attends to all but the token that it was to append."""

    def step(self: Step, x: Tensor, position: Tensor) -> Tensor:
        return self.attention.output(self.attend(self.attention.query(x, position))[0])

    patch.setattr(Step, "__call__", step)
    return rows_of(made(scopes=["step"]), patch)


def another_layout_of_queries(patch: Patch) -> list[Measurement]:
    """A kernel that is right for the queries it is proved with, and not for a step's, which lie otherwise."""
    right = GroupedAttention.query

    def query(self: GroupedAttention, x: Tensor, position: Tensor) -> Tensor:
        q = right(self, x, position)
        return torch.stack([q, q], dim=-1)[..., 0]  # the same numbers, two apart

    class Strided(Faulty):
        def plan(self, *args: Any, **options: Any) -> Plan:
            attend = Eager().plan(*args, **options).attend
            return Plan(lambda q: attend(q if q.is_contiguous() else q.flip(2)), "strided")

    patch.setattr(GroupedAttention, "query", query)
    return rows_of(made(Strided(), scopes=["step"]), patch)


FAULTS: dict[str, tuple[Callable[[Patch], list[Measurement]], str, str, str]] = {
    "a kernel that reads half the cache": (half_the_cache, "matches_oracle", "wrong", "relative error"),
    "a kernel that misses the newest token": (all_but_the_newest, "matches_oracle", "wrong", "relative error"),
    "a kernel that repeats its last output": (the_last_output, "fresh", "quarantined", "fresh=FAILED"),
    "a clock that does not synchronise": (no_synchronisation, "whole_time", "quarantined", "clock=FAILED"),
    "a workload of zeros": (zeros, "varied", "quarantined", "data=FAILED"),
    "pages of zeros": (zeros_in_pages, "varied", "quarantined", "data=FAILED"),
    "a window of zeros": (zeros_in_a_ring, "varied", "quarantined", "data=FAILED"),
    "pages shared by sequences": (shared_pages, "distinct_pages", "quarantined", "pages=FAILED"),
    "twice the bytes": (twice_the_bytes, "counted", "quarantined", "bytes=FAILED"),
    "a fallback under another's name": (another_kernel, "kernel_ran", "quarantined", "kernel=FAILED"),
    "a processor that throttles": (throttling, "not_throttled", "quarantined", "throttled=FAILED (3 events,"),
    "a GPU that is too hot": (
        a_hot_gpu,
        "not_throttled",
        "quarantined",
        "throttled=FAILED (0 events, hardware thermal,",
    ),
    "a step without its projection": (no_projection, "whole_layer", "wrong", "layer=FAILED"),
    "a step that appends nothing": (no_append, "whole_layer", "wrong", "layer=FAILED"),
    "a step whose queries lie otherwise": (another_layout_of_queries, "whole_layer", "wrong", "layer=FAILED"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_name(fault: str, monkeypatch: Patch) -> None:
    run, _, status, reason = FAULTS[fault]
    (told,) = run(monkeypatch)
    assert (told.status, reason in str(told.reason)) == (status, True), told.reason


@pytest.mark.parametrize("fault", FAULTS)
def test_without_its_check_the_fault_passes(fault: str, monkeypatch: Patch) -> None:
    run, check, _, _ = FAULTS[fault]
    monkeypatch.setattr(audit, check, lambda *args: Check("switched off", True, ""))
    if check == "matches_oracle":  # the second answer is as wrong
        monkeypatch.setattr(audit, "fresh", lambda *args: Check("switched off", True, ""))
    (told,) = run(monkeypatch)
    assert (told.status, told.reason) == ("ok", None)


def test_a_right_row_carries_every_check(monkeypatch: Patch) -> None:
    (told,) = rows_of(made(), monkeypatch)
    names = [check.split("=")[0] for check in str(told.audits).split("; ")]
    assert names == [
        "oracle", "kernel", "transient", "fresh", "data", "pages", "bytes", "clock", "threads", "compiled", "throttled",
        "ceiling", "allocated", "outliers",
    ]  # fmt: skip
    (step,) = rows_of(made(scopes=["step"]), monkeypatch)
    assert "layer=ok (relative error " in str(step.audits)


def test_a_sample_that_compiles_is_not_believed() -> None:
    assert audit.failures([audit.nothing_compiled(1)]) == "compiled=FAILED (1 compilations within rounds)"


def test_samples_on_other_threads_are_not_believed() -> None:
    assert audit.failures([audit.same_threads({1, 2}, 2)]) == "threads=FAILED (1, 2 of 2)"
