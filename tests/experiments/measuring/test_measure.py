"""Whole points on this CPU: right rows are ok, and whatever is wrong is a row that says what."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import torch

from experiments.measuring import audit
from experiments.measuring import worker as working
from experiments.measuring.bench import Benches
from experiments.measuring.ceilings import Ceilings
from experiments.measuring.device import Device
from experiments.measuring.measure import interrupted
from experiments.measuring.point import places, points
from experiments.measuring.series import Series
from experiments.measuring.sweep import ROW, Sweep
from experiments.record import Measurement
from tests.experiments.builders import (
    SMALL_CACHE,
    Faulty,
    OneBench,
    Scripted,
    bench,
    ceilings,
    device,
    exact,
    measured_alone,
    pretend,
    rows_of,
    series,
    sweep_of,
)
from variants.storage.contiguous import Contiguous

SMOL: dict[str, Any] = {
    "name": "smol",
    "source": "SmolLM2-135M's heads",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
}
VARIANTS = {
    "mha": ("mha", {}),
    "gqa": ("gqa", {}),
    "mqa": ("mqa", {}),
    "mla absorbed": ("mla", {}),
    "mla materialized": ("mla", {"form": "materialized"}),
    "mla expanded": ("mla", {"form": "expanded"}),
}
SWEEP = 5 * SMALL_CACHE


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(autouse=True)
def a_scripted_clock_tells_less_than_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether that is seen, ``test_audit`` and ``test_faults`` ask."""
    monkeypatch.setattr(audit, "BETWEEN_US", 1e9)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_measured_and_right(
    variant: str, backend: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, options = VARIANTS[variant]
    made = series(attention, backend, model=SMOL, options=options, dtype=dtype)
    rows = rows_of(made, monkeypatch)
    assert [(r.scope, r.context, r.status, r.reason) for r in rows] == [
        (scope, context, "ok", None) for context in (16, 64) for scope in ("attend", "step")
    ]
    for row in rows:
        us = exact(row.latency_us_p50)
        assert us > 0
        assert row.bandwidth_gbps == exact(row.io_bytes) / us / 1e3
        assert row.tflops == exact(row.flops) / us / 1e6
        assert row.floor_us == max(exact(row.io_bytes) / 1e9, exact(row.flops) / 1e8)  # 1e6 GB/s, 100 TFLOP/s
        assert row.roofline_fraction == row.floor_us / us
        assert SWEEP <= exact(row.reuse_bytes) < max(SWEEP, 3 * exact(row.io_bytes)) + ROW
        assert (row.temperature, row.samples, row.rounds, row.interleave) == ("cold", 4, 2, "none")
        assert exact(row.latency_us_p10) <= us <= exact(row.latency_us_p90)
        assert exact(row.latency_us_ci_low) <= us <= exact(row.latency_us_ci_high)
        assert exact(row.first_call_us) > 0
        assert exact(row.plan_us) > 0
        assert (row.read_ceiling_gbps, row.matmul_ceiling_tflops) == (1e6, 100.0)
        assert row.allocated_bytes == row.cache_bytes  # no row of these needs padding
        assert "oracle=ok" in str(row.audits)
        assert "ceiling=ok" in str(row.audits)
        assert f"allocated=ok ({row.allocated_bytes} of {row.allocated_bytes} B)" in str(row.audits)
        assert str(row.kernel).split(":")[0] == backend
        assert (row.form, row.origin) == (made.spec.form, "measured")
        assert datetime.fromisoformat(str(row.started_at)).tzinfo is not None
    assert len({r.key for r in rows}) == 4
    assert len({r.series for r in rows}) == 1


def test_c10_the_kernel_that_served_the_row_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {r.kernel for r in rows_of(series("gqa", "sdpa", dtype="bf16"), monkeypatch)}
    assert len(kernels) == 1
    assert kernels <= {"sdpa:flash", "sdpa:math", "sdpa:efficient", "sdpa:cudnn"}


def test_points_are_batches_of_contexts_in_the_order_given(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series(batch=[2, 1], context=[64, 16], scopes=["step"]), monkeypatch)
    assert [(r.batch, r.context) for r in rows] == [(2, 64), (2, 16), (1, 64), (1, 16)]


def test_raw_samples_are_kept_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = series(context=16, timer={"rounds": 3, "replicas": 2})
    pretend(device(), monkeypatch)
    (measured,) = measured_alone(made, OneBench())
    assert {row.key for row in measured.rows} == set(measured.samples)
    for row in measured.rows:
        us = measured.samples[row.key]
        assert us.shape == (3, 2)
        assert np.median(us) == row.latency_us_p50
        assert (row.samples, row.rounds) == (6, 3)


def test_c14_one_sample_has_no_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = rows_of(series(context=16, scopes=["attend"], timer={"rounds": 1, "replicas": 1}), monkeypatch)
    assert (row.samples, row.rounds, row.status) == (1, 1, "ok")
    spread = (row.latency_us_p10, row.latency_us_p90, row.latency_us_ci_low, row.latency_us_ci_high)
    assert spread == (None,) * 4


def test_c12_an_outlier_is_said_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    us = [
        500_000.0,
        5.0,
        5.0,
        *[5_000.0] * 6,
        500_000.0,
        5_000.0,
    ]  # each once, then four rounds of two
    made = series(context=16, scopes=["step"], timer={"rounds": 4})
    (row,) = rows_of(made, monkeypatch, benches=OneBench(bench(timer=Scripted(us))))
    assert row.first_call_us == 500_000.0
    assert exact(row.warmup_us) > 4 * 20_000  # the calls that open four rounds among them
    assert (row.latency_us_p50, row.status) == (5_000.0, "ok")
    assert "outliers=note (1 of 8 above 5x the median, largest 5e+05 us)" in str(row.audits)


def test_c15_each_row_says_its_threads_and_they_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []

    def watched(o: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return o

    faulty = Faulty(watched)
    for threads in (1, 2):
        made = replace(series(context=16, timer={"threads": threads}), backend=faulty)
        assert {r.threads for r in rows_of(made, monkeypatch)} == {threads}
        assert set(seen) == {threads}
        seen.clear()
        assert torch.get_num_threads() == before


def test_threads_go_back_between_points_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    other = 1 if before > 1 else 2
    pretend(device(), monkeypatch)
    for _ in measured_alone(series(timer={"threads": other}), OneBench()):
        assert torch.get_num_threads() == before


# cold and warm


def test_a_cold_row_is_held_against_the_cold_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    roofs = OneBench(bench(roofs=ceilings(cold=700.0, resident=900.0)))
    assert {(r.temperature, r.read_ceiling_gbps) for r in rows_of(series(), monkeypatch, benches=roofs)} == {
        ("cold", 700.0)
    }


def test_c03_a_warm_row_says_so_and_is_held_against_the_resident_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    roofs = OneBench(bench(roofs=ceilings(cold=700.0, resident=900.0)))
    rows = rows_of(series(temperature="warm"), monkeypatch, on=device(last_level_cache=2**17), benches=roofs)
    assert {(r.temperature, r.read_ceiling_gbps) for r in rows} == {("warm", 900.0)}
    assert [r.reuse_bytes for r in rows] == [r.io_bytes for r in rows]  # one replica's bytes, again and again


def test_a_warm_row_finds_in_the_cache_only_what_fits_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest comes from memory each time: the roof lies between the two, nearer to the cold one the more that is."""
    benches = OneBench(bench(roofs=ceilings(cold=700.0, resident=900.0)))
    made = series(context=16, scopes=["attend"], temperature="warm")
    roofs = {
        cache: exact(rows_of(made, monkeypatch, device(last_level_cache=cache), benches)[0].read_ceiling_gbps)
        for cache in (4608, 2304, 1)
    }
    assert roofs[4608] == 900.0
    assert roofs[2304] == pytest.approx(2 / (1 / 700 + 1 / 900))
    assert roofs[1] == pytest.approx(700.0, rel=1e-3)


def test_a_pair_is_two_rows_of_one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series(context=16, temperature=["cold", "warm"]), monkeypatch)
    assert [(r.scope, r.temperature, r.status) for r in rows] == [
        (scope, temperature, "ok") for scope in ("attend", "step") for temperature in ("cold", "warm")
    ]
    assert len({r.key for r in rows}) == 4
    assert len({r.race for r in rows}) == 1
    for cold, warm in (rows[:2], rows[2:]):
        assert SWEEP <= exact(cold.reuse_bytes) < SWEEP + ROW
        assert exact(warm.reuse_bytes) == warm.io_bytes
        assert cold.first_call_us == warm.first_call_us  # there is one first call


def test_of_a_pair_on_an_unknown_cache_only_the_warm_row_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would say warm, and would be taken for two measurements of the same."""
    made = series(context=16, scopes=["attend"], temperature=["cold", "warm"])
    cold, warm = rows_of(made, monkeypatch, on=device(last_level_cache=None, free=2**24))
    assert (cold.temperature, cold.status, warm.temperature, warm.status) == ("cold", "refused", "warm", "ok")
    assert str(cold.reason).startswith("cold needs 5x the last-level cache (None B); got ")


@pytest.mark.parametrize("temperature", ["cold", "warm"])
def test_warm_repeats_one_cache_and_cold_visits_all(temperature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Scripted(range(1, 100))
    benches = OneBench(bench(timer=timer))
    swept: list[int] = []
    benches.only.__dict__["sweep"] = Sweeper(swept)
    rows_of(
        series(context=16, scopes=["attend"], temperature=temperature, timer={"rounds": 2, "replicas": 3}),
        monkeypatch,
        benches=benches,
    )
    assert len(timer.calls) == (3 * 3 if temperature == "warm" else 4 + 2 * 3)  # once all, then rounds: one opens them
    assert len(set(timer.calls)) == (1 if temperature == "warm" else 4)
    assert len(swept) == (0 if temperature == "warm" else 2)


class Sweeper:
    """Counts sweeps."""

    bytes = SWEEP
    wanted = 2**40

    def __init__(self, swept: list[int]) -> None:
        self.swept = swept

    def __call__(self, already: int) -> int:
        self.swept.append(already)
        return self.bytes


def test_where_the_cache_is_unknown_no_row_claims_to_be_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    on = device(last_level_cache=None, free=2**24)
    rows = rows_of(series(context=16), monkeypatch, on=on)
    assert {r.temperature for r in rows} == {"warm"}


@pytest.mark.parametrize(("short", "temperature"), [(0, "cold"), (1, "warm")])
def test_cold_needs_five_times_the_last_level_cache(
    short: int, temperature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of two replicas, of one that opens rounds, and of the sweep, exactly enough or one byte short of it."""
    made = series(context=16, scopes=["attend"])
    benches = OneBench()
    touched = 3 * 4608
    benches.only.__dict__["sweep"] = sweeper = Sweeper([])
    sweeper.bytes = 5 * SMALL_CACHE - touched - short
    (row,) = rows_of(made, monkeypatch, benches=benches)
    assert row.io_bytes == 4608
    assert row.reuse_bytes == 5 * SMALL_CACHE - short
    assert row.temperature == temperature


def test_the_key_says_what_the_row_is_and_not_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_cold = rows_of(series(context=16), monkeypatch, on=device(last_level_cache=None, free=2**24))
    warm = rows_of(series(context=16, temperature="warm"), monkeypatch)
    assert [r.key for r in asked_cold] == [r.key for r in warm]


# quarantined and wrong


def again(monkeypatch: pytest.MonkeyPatch, cold: float) -> list[float]:
    """What a second look at the ceilings finds; returns the list of such looks."""
    looks: list[float] = []

    def measured(sweep: object, timer: object) -> Ceilings:
        looks.append(cold)
        return ceilings(cold=cold)

    monkeypatch.setattr("experiments.measuring.bench.measure_ceilings", measured)
    monkeypatch.setattr(
        audit, "whole_time", lambda taken: audit.Check("clock", True, "scripted: no time to hold it to")
    )
    return looks


@pytest.mark.parametrize(("gbps", "status"), [(4700.0, "ok"), (5000.0, "ok"), (5100.0, "quarantined")])
def test_c03_faster_than_the_roof_is_flagged(gbps: float, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    us = 4608 / gbps / 1e3
    looks = again(monkeypatch, cold=4799.0)
    benches = OneBench(bench(timer=Scripted([us] * 7), roofs=ceilings(cold=4800.0)))
    (row,) = rows_of(series(context=16, scopes=["attend"]), monkeypatch, benches=benches)
    assert len(looks) == (gbps > 4800)  # nobody is called a liar before the roof has been measured twice
    assert row.read_ceiling_gbps == 4800.0
    assert row.status == status
    assert row.latency_us_p50 == us
    assert row.bandwidth_gbps == pytest.approx(gbps)
    if status == "quarantined":
        assert row.reason == "ceiling=FAILED (5100 of 4800 GB/s, at most x1.05)"
    else:
        assert f"ceiling={'ok' if gbps < 4800 else 'note'} ({gbps:.4g} of 4800 GB/s" in str(row.audits)


def test_a_roof_that_was_measured_too_low_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other load on the machine can only make a ceiling too low: the second, higher one holds from then on."""
    us = 4608 / 5100 / 1e3
    looks = again(monkeypatch, cold=5200.0)
    benches = OneBench(bench(timer=Scripted([us] * 14), roofs=ceilings(cold=4800.0)))
    for _ in range(2):
        (row,) = rows_of(series(context=16, scopes=["attend"]), monkeypatch, benches=benches)
        assert (row.status, row.read_ceiling_gbps) == ("ok", 5200.0)
        assert row.roofline_fraction == pytest.approx(5100 / 5200)
    assert len(looks) == 1


def test_slabs_that_differ_from_the_plan_are_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contiguous, "allocated_bytes", lambda self, layout, batch, capacity: 4000)
    (row,) = rows_of(series(context=16, scopes=["attend"]), monkeypatch)
    assert (row.status, row.reason) == ("quarantined", "allocated=FAILED (4096 of 4000 B)")


FIRST = torch.zeros(1, 1, 4, 16)


def last(o: torch.Tensor) -> torch.Tensor:
    """The output of the call before, as a buffer that is never synchronised gives it."""
    before, FIRST.data = FIRST.clone(), o.clone()
    return before


WRONG = {
    "half the cache": Faulty(share=0.5),
    "zeros": Faulty(torch.zeros_like),
    "not written": Faulty(lambda o: torch.full_like(o, torch.nan)),
    "one infinity": Faulty(lambda o: torch.where(o == o.max(), torch.inf, o)),
    "the last output": Faulty(last),
    "heads in another order": Faulty(lambda o: o.flip(2)),
    "a scale a little off": Faulty(lambda o: o * 1.001),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_answer_is_never_timed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Scripted([])  # any reading at all ends the test
    rows = rows_of(replace(series(), backend=WRONG[fault]), monkeypatch, benches=OneBench(bench(timer=timer)))
    assert [(r.scope, r.context, r.status) for r in rows] == [
        (scope, context, "wrong") for context in (16, 64) for scope in ("attend", "step")
    ]
    for row in rows:
        assert row.latency_us_p50 is row.bandwidth_gbps is row.samples is None
        assert str(row.reason).startswith("relative error ")
        assert str(row.reason).endswith(", budget 1.05e-05")
        assert row.cache_bytes == 256 * exact(row.context)
    assert timer.calls == []


def test_a_fault_below_rounding_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(series(dtype="bf16", context=16), backend=Faulty(lambda o: o * 1.01))
    assert {r.status for r in rows_of(made, monkeypatch)} == {"ok"}


# a point that fails is a row, and the next one runs


def failing(error: Exception, times: int = 1) -> Faulty:
    """Raises on the first ``times`` calls of attend and is right from then on."""
    calls = iter(range(1000))

    def spoil(o: torch.Tensor) -> torch.Tensor:
        if next(calls) < times:
            raise error
        return o

    return Faulty(spoil)


def no_memory() -> Exception:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60)
    return raised.value


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("kernel\n fell over"), "error", "RuntimeError: kernel fell over"),
        (AssertionError(), "error", "AssertionError: "),
        (KeyError("x"), "error", "KeyError: 'x'"),
        (MemoryError("no more"), "oom", "out of memory: no more"),
        (torch.OutOfMemoryError("CUDA out of memory"), "oom", "out of memory: CUDA out of memory"),
        (no_memory(), "oom", "RuntimeError: [enforce fail at alloc_cpu.cpp"),
    ],
)
def test_an_exception_is_a_row_for_each_scope_and_the_next_point_runs(
    error: Exception, status: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(replace(series(), backend=failing(error)), monkeypatch)
    assert [(r.context, r.scope, r.status) for r in rows] == [
        (16, "attend", status),
        (16, "step", status),
        (64, "attend", "ok"),
        (64, "step", "ok"),
    ]
    for row in rows[:2]:
        assert str(row.reason).startswith(reason.strip())
        assert "\n" not in str(row.reason)
        assert row.latency_us_p50 is None
        assert row.temperature == "cold"  # as asked


def test_an_exception_while_timing_is_the_row_of_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = failing(RuntimeError("late"), times=0)
    calls = 0

    def spoil(o: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 5:  # two proofs and a look, then the second call under the clock
            raise RuntimeError("late")
        return o

    faulty.spoil = spoil
    rows = rows_of(replace(series(), backend=faulty), monkeypatch)
    assert [(r.context, r.scope, r.status) for r in rows[:2]] == [(16, "attend", "error"), (16, "step", "ok")]
    assert {r.status for r in rows[2:]} == {"ok"}


def test_a_timer_of_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series(timer={"kind": "events"}), monkeypatch, benches=Benches())
    assert {(r.status, r.reason) for r in rows} == {
        ("refused", "timer events needs a CUDA device; got cpu (use timer=wall)")
    }
    assert len(rows) == 4


def test_a_user_who_stops_the_run_is_not_a_failed_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(o: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        rows_of(replace(series(timer={"threads": 1}), backend=Faulty(stop)), monkeypatch)
    assert torch.get_num_threads() == before


def test_the_interrupted_point_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(device(), monkeypatch)
    rows = interrupted(places(series(context=[16, 64, 128]))[1])
    assert [(r.context, r.scope, r.status, r.reason) for r in rows] == [
        (64, "attend", "interrupted", "stopped by the user"),
        (64, "step", "interrupted", "stopped by the user"),
    ]


# never tried


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever allocates a cache, a module or a sweep fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was allocated")

    monkeypatch.setattr(Contiguous, "allocate", refuse)
    monkeypatch.setattr(working, "weights", refuse)
    monkeypatch.setattr("experiments.measuring.bench.Sweep", refuse)
    monkeypatch.setattr("experiments.measuring.bench.measure_matmul", refuse)


def never(made: Series, monkeypatch: pytest.MonkeyPatch, free: int = 2**30) -> list[Measurement]:
    """Rows of points that must not run, on benches that would measure if they were asked."""
    rows = rows_of(made, monkeypatch, on=device(free=free), benches=Benches())
    assert [(r.context, r.scope) for r in rows] == [(c, s) for c in (16, 64) for s in ("attend", "step")]
    assert all(r.latency_us_p50 is None and r.cache_bytes and r.io_bytes and r.flops for r in rows)
    return rows


@pytest.mark.usefixtures("untouched")
def test_what_does_not_fit_is_told_with_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = never(series(), monkeypatch, free=1000)
    assert {r.status for r in rows} == {"too_large"}
    assert rows[0].reason == (
        "needs 57344 B: cache 4096 B + weights 49152 B + one sequence in float32 for the oracle 4096 B; "
        "the cache is 1 x 16 tokens x 256 B; free: 900 B"
    )


@pytest.mark.usefixtures("untouched")
def test_mha_at_batch_32_and_32k_is_64_gib_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {**SMOL, "hidden_size": 16384, "num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    made = series("mha", model=model, dtype="bf16", batch=32, context="32k", scopes=["step"])
    (row,) = rows_of(made, monkeypatch, on=device(free=40 * 2**30), benches=Benches())
    assert row.status == "too_large"
    assert row.cache_bytes == row.allocated_bytes == 64 * 2**30
    assert "cache 64.00 GiB (68719476736 B)" in str(row.reason)
    assert "the cache is 32 x 32768 tokens x 65536 B; free: 36.00 GiB (38654705664 B)" in str(row.reason)


def test_what_does_not_fit_beside_the_sweep_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    on = device()

    def swept(of: Device) -> Sweep:
        made = sweep_of(2**20)
        object.__setattr__(on, "free", 60_000)
        return made

    monkeypatch.setattr("experiments.measuring.bench.Sweep", swept)
    monkeypatch.setattr("experiments.measuring.bench.measure_ceilings", lambda sweep, timer: ceilings())
    monkeypatch.setattr("experiments.measuring.bench.measure_matmul", lambda *of: 100.0)
    monkeypatch.setattr(Contiguous, "allocate", None)
    (row,) = rows_of(series(context=16, scopes=["attend"]), monkeypatch, on=on, benches=Benches())
    assert row.status == "too_large"


@pytest.mark.parametrize(("free", "status"), [(63_716, "ok"), (63_715, "too_large")])
def test_a_point_may_use_nine_tenths_of_the_free_memory(
    free: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = series(context=16, scopes=["attend"])
    assert int(63_716 * 0.9) == 57_344  # what the point needs, see above
    roomy = OneBench()  # its sweep is made for a machine with more memory
    (row,) = rows_of(made, monkeypatch, on=device(free=free), benches=roomy)
    assert row.status == status


REFUSED = {
    "fp8 activations": (
        {"dtype": "fp8_e4m3"},
        "cpu cannot multiply fp8_e4m3 activations; use fp64, fp32, fp16, bf16; also sdpa cannot do streams of codes",
    ),
    "another dtype in the cache": (
        {"kv_dtype": "fp16"},
        "sdpa cannot do a cache dtype other than the queries' fp32",
    ),
    "both": (
        {"dtype": "fp8_e4m3", "kv_dtype": "fp16"},
        "cpu cannot multiply fp8_e4m3 activations; use fp64, fp32, fp16, bf16; also "
        "sdpa cannot do a cache dtype other than the queries' fp8_e4m3",
    ),
    "no such device": ({"device": "cuda"}, "this machine has no cuda device"),
}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_with_all_reasons(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, reason = REFUSED[case]
    rows = never(series("gqa", "sdpa", **changes), monkeypatch, free=0)
    assert {(r.status, r.reason) for r in rows} == {("refused", reason)}


def test_a_cache_of_another_dtype_is_measured_where_the_backend_can(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series("mla", "eager", dtype="bf16", kv_dtype="fp8_e4m3"), monkeypatch)
    assert {(r.status, r.dtype, r.kv_dtype) for r in rows} == {("ok", "bf16", "fp8_e4m3")}


def test_a_cache_of_codes_says_what_it_costs_in_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {kv: rows_of(series("gqa", "eager", dtype="bf16", kv_dtype=kv), monkeypatch) for kv in ("int8", "fp8_e4m3")}
    errors = {kv: {r.kv_error for r in rows if r.context == 64} for kv, rows in codes.items()}
    (int8,), (fp8,) = errors["int8"], errors["fp8_e4m3"]
    assert int8 is not None
    assert fp8 is not None
    assert 1e-3 < int8 < 0.02 < fp8 < 0.1  # eight bits of a number, or four with the sign
    assert {r.kv_error for r in rows_of(series("gqa", "eager", dtype="bf16"), monkeypatch)} == {None}


def test_what_is_decompressed_is_no_longer_of_the_caches_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    made = series("mla", "sdpa", options={"form": "materialized"}, dtype="bf16", kv_dtype="fp8_e4m3")
    rows = rows_of(made, monkeypatch)
    assert {(r.status, r.reason) for r in rows} == {("ok", None)}
    assert [r.allocated_bytes for r in rows[::2]] == [16 * 96, 64 * 96]


def test_a_rank_of_two_is_measured_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for attention, mode in (("gqa", "sharded"), ("mla", "replicated")):
        rows = rows_of(series(attention, tp=2), monkeypatch)
        assert {(r.status, r.tp, r.tp_mode, r.num_q_heads) for r in rows} == {("ok", 2, mode, 2)}


def test_points_match_rows() -> None:
    assert [(p.batch, p.context) for p in points(series(batch=[1, 2]))] == [(1, 16), (1, 64), (2, 16), (2, 64)]
