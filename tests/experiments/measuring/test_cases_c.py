"""Every measurement case (C) of the bug reports: those not tested elsewhere, by whole rows; and where the others are.

C01 test_timing: the device is waited for before start and stop      C14 test_statistics, test_measure: n = 1
C03 here; test_audit, test_measure: above the roof; test_row: bytes  C15 here; test_timing: put back, after errors too
C05 tests/storage/test_paged; test_faults: shared pages              C16 here; test_prepare, tests/storage/test_cache
C06 test_row, tests/contract/test_cost                               C17 here; tests/storage/test_cache
C09 test_row, test_audit, tests/contract/test_cost                   C18 here; test_rounds: equals stay equal
C10 here; tests/backend/test_sdpa: nothing expanded, kernel's name   C20 here; tests/storage/test_cache
C12 test_timing, test_statistics, test_measure, test_faults          C22 here; tests/contract/test_cost
C13 here; test_statistics                                            C24 here; tests/storage/test_paged: pointers
"""

from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.measuring import audit
from experiments.measuring import cold as cooling
from experiments.measuring import worker as working
from experiments.measuring.drift import compare
from experiments.measuring.point import points
from experiments.measuring.row import Where, known, work_of
from experiments.measuring.statistics import summarise
from experiments.measuring.timing import Call
from experiments.measuring.watched import watch
from experiments.record import Measurement
from tests.builders import dense_layout, normal
from tests.experiments.builders import (
    Faulty,
    OneBench,
    Scripted,
    array,
    bench,
    ceilings,
    device,
    exact,
    measured_alone,
    prepared,
    pretend,
    rows_of,
    series,
)
from variants.contract.cost import roofline
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.decode import plan_step
from variants.protocols import Plan
from variants.storage.cache import POISON
from variants.storage.paged import Paged
from variants.view import CacheView

Patch = pytest.MonkeyPatch


def heads(q: int, kv: int, dim: int, hidden: int = 64, layers: int = 1, **more: Any) -> dict[str, Any]:
    """A model by its heads; a narrow one, for its projections are not what these cases are about."""
    names = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": q, "num_key_value_heads": kv}
    return {"name": "case", "source": "CASES", **names, "head_dim": dim, **more}


# C03: working set fits in the last-level cache


class Caching:
    """A machine that reads what it has read lately at 20 TB/s, all else at 4.8 TB/s. A sweep makes it forget."""

    name = "caching"
    wanted = 2**40

    def __init__(self, io_bytes: int, swept: int) -> None:
        self.io_bytes, self.bytes = io_bytes, swept
        self.kept: set[Call] = set()

    def time(self, call: Call) -> float:
        """Microseconds."""
        gbps = 20_000 if call in self.kept else 4800
        self.kept.add(call)
        return self.io_bytes / gbps / 1e3

    def __call__(self, already: int) -> int:
        """Sweep."""
        self.kept.clear()
        return self.bytes


def test_c03_a_set_that_fits_in_the_cache_is_a_cold_and_a_warm_row_that_say_so(monkeypatch: Patch) -> None:
    """One layer of Qwen3-0.6B at 2048 tokens, 8 388 608 B, on a cache of 50 MiB."""
    cache, io_bytes = 50 * 2**20, 8_388_608 + 2 * 16 * 128 * 2
    made = series(
        "gqa", model=heads(16, 8, 128), context=2048, dtype="bf16", scopes=["attend"], temperature=["cold", "warm"]
    )
    machine = Caching(io_bytes, swept=5 * cache)
    benches = OneBench(bench(timer=machine, roofs=ceilings(cold=4800.0, resident=20_000.0)))
    benches.only.__dict__["sweep"] = machine
    for place in (working, cooling):  # what runs untimed is read as well
        monkeypatch.setattr(place, "repeat", lambda call, *seconds: machine.kept.add(call))
    monkeypatch.setattr(audit, "whole_time", lambda taken: audit.Check("clock", True, "a pretended one"))
    cold, warm = rows_of(made, monkeypatch, on=device(last_level_cache=cache), benches=benches)
    assert (cold.status, warm.status) == ("ok", "ok"), (cold.reason, warm.reason)
    assert (cold.temperature, warm.temperature) == ("cold", "warm")
    assert cold.cache_bytes == warm.cache_bytes == 8_388_608
    assert (cold.reuse_bytes, warm.reuse_bytes) == (3 * io_bytes + 5 * cache, io_bytes)
    assert exact(cold.latency_us_p50) > exact(warm.latency_us_p50)
    assert [exact(cold.bandwidth_gbps), exact(warm.bandwidth_gbps)] == pytest.approx([4800.0, 20_000.0])


# C10: enable_gqa silently uses the unfused path


class Expanding(Faulty):
    """K and V repeated for every query head, as torch's math path does for ``enable_gqa`` in float32."""

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Right, and large."""
        kernel = "sdpa:math"

        def attend(q: Tensor) -> tuple[Tensor, None]:
            k, v = (view.span(spans[0])[:, :, :max_length] for spans in (geometry.key, geometry.value))
            k, v = (part.repeat_interleave(geometry.group_size, dim=1) for part in (k, v))
            scores = torch.einsum("bqhk,bhtk->bhqt", q, k) * geometry.scale
            return torch.einsum("bhqt,bhtv->bqhv", scores.softmax(dim=-1), v), None

        return Plan(attend, kernel, ("aten::einsum",))


def test_c10_our_path_allocates_little_beside_268_megabytes(monkeypatch: Patch) -> None:
    """q 32, kv 8, d 128, 32 768 tokens in float32."""
    made = series("gqa", "sdpa", model=heads(32, 8, 128), context="32k", scopes=["attend"], timer={"replicas": 1})
    (row,) = rows_of(made, monkeypatch, on=device(free=2**33), benches=OneBench())
    assert row.cache_bytes == 268_435_456
    assert 0 < exact(row.transient_bytes) < 0.1 * 268_435_456
    assert row.kernel == "sdpa:flash"
    assert "kernel=ok (sdpa:flash: saw aten::_scaled_dot_product_flash_attention" in str(row.audits)
    assert f"transient=ok ({row.transient_bytes} B a call, cache 268435456 B)" in str(row.audits)


def test_c10_keys_and_values_that_were_expanded_are_said_with_their_bytes(monkeypatch: Patch) -> None:
    """A 64th of the tokens: expanded 1 073 741 824 / 64 B, four times the cache."""
    made = series("gqa", model=heads(32, 8, 128), context=512, scopes=["attend"], timer={"replicas": 1})
    (row,) = rows_of(replace(made, backend=Expanding()), monkeypatch)
    assert (row.status, row.cache_bytes) == ("ok", 268_435_456 // 64)
    assert 1_073_741_824 // 64 <= exact(row.transient_bytes) < 1.1 * 1_073_741_824 / 64
    assert f"transient=note ({row.transient_bytes} B a call, cache 4194304 B)" in str(row.audits)


# C13: outliers and the mean


def test_c13_a_row_has_no_mean() -> None:
    assert not [field.name for field in fields(Measurement) if "mean" in field.name]
    assert summarise(array([[35.0] * 9 + [45_000.0]])).p50 == 35.0


# C15: CPU threads changed by the timer


class Sharing:
    """A clock for work of 4 ms that all threads share."""

    name = "sharing"

    def time(self, call: Call) -> float:
        """Microseconds."""
        return 4000.0 / torch.get_num_threads()


def test_c15_one_thread_then_four_in_one_process(monkeypatch: Patch) -> None:
    before, medians = torch.get_num_threads(), []
    for threads in (1, 4):
        made = series(context=16, scopes=["attend"], timer={"threads": threads})
        (row,) = rows_of(made, monkeypatch, benches=OneBench(bench(timer=Sharing())))
        assert (row.threads, torch.get_num_threads()) == (threads, before)
        assert f"threads=ok ({threads} of {threads})" in str(row.audits)
        medians.append(row.latency_us_p50)
    assert medians == [4000.0, 1000.0]


# C16: constant data is faster


@pytest.mark.parametrize(("attention", "storage"), [("gqa", "contiguous"), ("mla", "paged")])
def test_c16_what_is_timed_is_noise_by_default_and_its_seed_is_in_the_row(
    attention: str, storage: str, monkeypatch: Patch
) -> None:
    made = series(attention, "eager", storage=storage, context=64, batch=2, seed=11, scopes=["attend"])
    for replica in prepared(made, 2):
        view = replica.planned.cache.view
        for stream in view.layout.streams:
            pages = view.stream(stream.name).double()
            assert (pages.flatten(1).std(dim=1) > 0.5).all()  # every page is filled
            assert (pages.flatten(1).std(dim=1) < 2).all()
    (row,) = rows_of(made, monkeypatch)
    assert (row.seed, row.status) == (11, "ok")


# C17: untouched memory on CPU


class Faulting:
    """A clock on a machine that maps pages when they are first touched: a call's first run takes ten times as long."""

    name = "faulting"

    def __init__(self) -> None:
        self.touched: set[Call] = set()

    def time(self, call: Call) -> float:
        """Microseconds."""
        us = 100.0 if call in self.touched else 1000.0
        self.touched.add(call)
        return us


def test_c17_the_pass_that_maps_memory_is_in_no_sample(monkeypatch: Patch) -> None:
    made = series("gqa", "eager", storage="paged", context=64, scopes=["step"], timer={"rounds": 10, "replicas": 2})
    pretend(device(), monkeypatch)
    (measured,) = measured_alone(made, OneBench(bench(timer=Faulting())))
    (row,) = measured.rows
    assert row.first_call_us == 1000.0
    assert exact(row.warmup_us) >= 1000.0  # what is touched before rounds counts too
    assert (measured.samples[row.key] == 100.0).all()
    assert row.samples == 20


def test_c17_a_sequence_of_a_tenth_of_the_pool_leaves_no_page_untouched() -> None:
    cache = Paged(16).allocate(dense_layout(2, 16, 16, Dtype.F32), 1, 640, torch.device("cpu"))
    cache.fill_noise(64, seed=1)
    table = cache.view.block_table
    assert table is not None
    used, spare = table[0, :4].long(), table[0, 4:].long()
    for slab in cache.view.slabs:
        assert (slab[spare] == POISON).all()  # written, and not by zeros of the system's
        assert slab[used].view(torch.float32).std() > 0.5


# C18: thermal drift and order of variants


def test_c18_one_after_the_other_the_repeat_of_the_first_point_says_that_the_machine_drifted(
    monkeypatch: Patch,
) -> None:
    """Call i takes 1 + 0.01 i ms: two equal series of 50 calls, and the first once more. (In turn: test_rounds.)"""
    passed = Scripted(1000 + 10.0 * i for i in range(10_000))
    made = series(context=16, scopes=["attend"], timer={"rounds": 25, "replicas": 2})
    monkeypatch.setattr(audit, "whole_time", lambda taken: audit.Check("clock", True, "a pretended one"))
    pretend(device(), monkeypatch)
    runs = [list(measured_alone(made, OneBench(bench(timer=passed)))) for _ in range(3)]
    medians = [exact(run[0].rows[0].latency_us_p50) for run in runs]
    assert medians[1] / medians[0] > 1.35  # B looks slower than A, and is the same
    ((row, check),) = compare(runs[0], runs[2])
    assert row.key == runs[0][0].rows[0].key
    assert not check.holds
    assert str(check).startswith(f"drift=note ({medians[0]:.4g} us at the start, {medians[2]:.4g} at the end")


# C20: allocator numbers taken for cache bytes


@pytest.mark.parametrize(("storage", "allocated"), [("contiguous", 288_000), ("paged", 322_560)])
def test_c20_bytes_of_odd_shapes_by_row_by_tensor_and_by_allocator(
    storage: str, allocated: int, monkeypatch: Patch
) -> None:
    """2 layers, 3 kv heads of 24, 100 tokens, batch 5, bf16; pages of 16."""
    model = heads(3, 3, 24, layers=2)
    made = series("mha", "eager", model=model, storage=storage, context=100, batch=5, dtype="bf16", scopes=["attend"])
    (row,) = rows_of(made, monkeypatch)
    layers = exact(row.layers)
    assert layers * exact(row.cache_bytes) == 288_000
    assert layers * exact(row.allocated_bytes) == allocated
    assert f"allocated=ok ({allocated // 2} of {allocated // 2} B)" in str(row.audits)
    assert row.reserved_bytes is None  # no pool on a CPU
    layout, policy = made.spec.layout(Dtype.BF16), made.policy
    asked = watch(lambda: policy.allocate(layout, 5, 100, torch.device("cpu")), device()).allocated
    assert asked >= allocated // 2


def test_c20_what_a_gpus_allocator_reserves_is_a_column_of_its_own(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2_097_152)
    assert (device(kind="cuda").reserved_memory(), device().reserved_memory()) == (2_097_152, None)


# C22: wrong regime


REGIMES = {
    "mha": ("mha", heads(64, 64, 128), 1.0, "memory"),
    "gqa": ("gqa", heads(64, 8, 128), 8.0, "memory"),
    "mqa": ("mqa", heads(64, 1, 128), 64.0, "memory"),
    "mla": ("mla", heads(128, 128, 128), 241.8, "compute"),
}


@pytest.mark.parametrize("regime", REGIMES)
def test_c22_a_row_states_phase_intensity_and_which_roof_limits(regime: str) -> None:
    attention, model, intensity, bound = REGIMES[regime]
    made = series(attention, model=model, context="32k", dtype="bf16")
    where = Where(made, points(made)[0], device(), 2)
    columns = known(where, "attend", "cold")
    assert columns["intensity"] == pytest.approx(intensity, rel=0.01)
    assert columns["scope"] == "attend"  # a decode step's; time to fill a context is the scope prefill
    ridge = 181.0  # of an H200: TFLOP/s per TB/s
    assert roofline(work_of(where, "attend"), 1000.0, ridge).bound == bound
    assert known(where, "prefill", "cold")["intensity"] > ridge  # full sequences: the same variant is bound by compute


# C24: time depends on unused pool pages


def pool(pages: int, backend: Any) -> tuple[Any, Tensor, Tensor]:
    """A step of 4 sequences of 512 tokens in a pool of that many pages of 16; gqa of 4:2 heads of 16."""
    made = series("gqa", "eager")
    attention = prepared(made, 1)[0].planned.attention
    layout = made.spec.layout(Dtype.F32)
    cache = Paged(16).allocate(layout, 4, pages * 16 // 4, torch.device("cpu"))
    cache.fill_noise(511, seed=1)
    step = plan_step(attention, cache, backend, 512)
    return step, normal(4, 1, 64, dtype=torch.float32), torch.full((4, 1), 511)


def steps(step: Any, x: Tensor, position: Tensor) -> None:
    """Ten times the same step."""
    for _ in range(10):
        step(x, position)


@pytest.mark.parametrize("backend", ["eager", "numba_split_kv"])
def test_c24_a_step_does_the_same_whatever_the_pool_holds_beside_it(backend: str) -> None:
    """Ten steps in a pool of 256 pages and of 8192: as many bytes are asked for, by the same operators, in place."""
    by = series("gqa", backend).backend
    seen = []
    for pages in (256, 8192):
        step, x, position = pool(pages, by)
        slabs = [slab.data_ptr() for slab in step.cache.view.slabs]
        with torch.no_grad():
            step(x, position)
            seen.append(watch(partial(steps, step, x, position), device()))
        assert [slab.data_ptr() for slab in step.cache.view.slabs] == slabs
    small, large = seen
    assert small == large
    assert large.allocated / 10 < 0.1 * 8192 * 16 * 2 * 2 * 16 * 4
