"""Ratios are formed the right way round from the right latencies; what a section times is what it says."""

import itertools
from collections.abc import Mapping

import pytest
import torch

from experiments.benching import attend, caches, compare, growth, paths, step
from experiments.benching.ledger import Ledger
from experiments.benching.points import BenchPoint, Result, all_points, select
from experiments.benching.race import Latency
from experiments.benching.sizes import SMOKE, Sizes
from experiments.measuring import bench as measuring_bench
from tests.experiments.builders import Scripted, bench, ceilings
from variants.contract.dtype import Dtype
from variants.storage.paged import Paged

ATTEND = BenchPoint("attend", "gqa8", Dtype.BF16, 16 * 1024)


@pytest.fixture(autouse=True)
def second_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured once more, the ceilings are twice as high."""
    monkeypatch.setattr(measuring_bench, "measure_ceilings", lambda *_: ceilings(cold=2.0))


def taken(us: Mapping[str, float]) -> dict[str, Latency]:
    return {name: Latency("p", name, p50, 10, 10**12) for name, p50 in us.items()}


def values(results: list[Result]) -> dict[str, float | None]:
    return {result.metric: result.value for result in results}


def test_the_best_torch_path_is_the_denominator() -> None:
    us = {
        "numba_split_kv": 10.0,
        "sdpa, head-major": 200.0,
        "sdpa, token-major": 150.0,
        "packed sdpa, head-major": 30.0,
    }
    assert values(attend.speedups(ATTEND, taken({**us, "matmul, head-major": 25.0}))) == {
        "speedup_vs_best_torch": 2.5,
        "speedup_vs_enable_gqa": 15.0,
    }
    mha = BenchPoint("attend", "mha", Dtype.F32, 16 * 1024)
    assert values(attend.speedups(mha, taken(us))) == {"speedup_vs_best_torch": 3.0}


def test_the_roofline_is_the_higher_of_bytes_and_flops() -> None:
    """GQA-8, bf16, 16k: 2 x 8 x 128 x 2 B a token, q and o 2 x 32 x 128 x 2 B; 2 x 32 x 256 FLOP a token."""
    io_bytes, flops = 16384 * 4096 + 16384, 16384 * 2 * 32 * 256
    memory_bound = bench(roofs=ceilings(cold=20.0), matmul=100.0)
    fraction = attend.roofline_fraction(ATTEND, Sizes(), 5000.0, memory_bound)
    assert fraction.value == pytest.approx(io_bytes / 20e9 / 5000e-6)
    compute_bound = bench(roofs=ceilings(cold=1e6), matmul=0.2)
    assert attend.roofline_fraction(ATTEND, Sizes(), 5000.0, compute_bound).value == pytest.approx(
        flops / 0.2e12 / 5000e-6
    )


def test_nonlinearity_is_the_largest_stray_from_the_mean_time_per_token() -> None:
    point = BenchPoint("growth", "mla", Dtype.BF16)
    assert values(growth.nonlinearity(point, taken({"100": 100.0, "200": 200.0, "400": 400.0}))) == {
        "nonlinearity": pytest.approx(0.0)
    }
    per_token = {"100": 90.0, "200": 200.0, "400": 440.0}  # 0.9, 1.0, 1.1
    assert values(growth.nonlinearity(point, taken(per_token))) == {"nonlinearity": pytest.approx(0.1)}


def test_pool_ratio_is_large_over_small() -> None:
    point = BenchPoint("pool", "mla", Dtype.BF16, 1024)
    assert values(growth.pool_ratio(point, taken({"pool x1": 100.0, "pool x8": 120.0}))) == {"pool_ratio": 1.2}


def test_the_large_pool_holds_the_same_tokens_in_eight_times_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    filled = caches.filled

    def watched(storage, layout, capacity, used, seed):
        made.append(filled(storage, layout, capacity, used, seed))
        return made[-1]

    monkeypatch.setattr(growth, "filled", watched)
    (point,) = select(all_points(SMOKE), "pool/mla/*")
    growth.pool_latencies(point, SMOKE, bench(timer=Scripted(itertools.repeat(1.0))))
    assert {(len(c.view.slabs[0]), int(c.view.lengths[0]), c.policy == Paged(64)) for c in made} == {
        (4, 256, True),
        (32, 256, True),
    }


def test_a_step_is_compared_with_each_cache_of_transformers() -> None:
    point = BenchPoint("step", "mla", Dtype.F32, 4096)
    assert values(step.speedups(point, taken({"ours": 10.0, "dynamic": 40.0, "static": 15.0}))) == {
        "speedup_vs_transformers_dynamic": 4.0,
        "speedup_vs_transformers_static": 1.5,
    }


def run(patterns: str) -> Ledger:
    """Every clock says 100 us."""
    ledger, bench_ = Ledger(), bench(timer=Scripted(itertools.repeat(100.0)), roofs=ceilings(cold=1.0))
    compare.compare(select(all_points(SMOKE), patterns), SMOKE, bench_, ledger)
    return ledger


@pytest.mark.parametrize("patterns", ["attend/gqa8/bf16/*", "growth/mla/*", "pool/gqa8/*", "step/mha/fp32/64"])
def test_a_point_gives_every_metric_that_has_a_target(patterns: str) -> None:
    pytest.importorskip("transformers")
    (point,) = select(all_points(SMOKE), patterns)
    ledger = run(patterns)
    assert {(r.point, r.metric, r.target) for r in ledger.results} == {
        (point.name, metric, target) for metric, target in point.targets.items()
    }
    assert all(r.value is not None and r.reason is None for r in ledger.results)
    assert {r.value for r in ledger.results if "speedup" in r.metric or r.metric == "pool_ratio"} <= {1.0}


def test_roofline_fractions_come_last_and_use_the_better_ceilings() -> None:
    ledger = run("attend/mqa/*")
    assert [r.metric for r in ledger.results] == ["speedup_vs_best_torch"] * 2 + ["roofline_fraction"] * 2
    assert ledger.latencies[0].contender == "numba_split_kv"
    io_bytes = [attend.work_of(point, SMOKE).io_bytes for point in select(all_points(SMOKE), "attend/mqa/*")]
    assert [r.value for r in ledger.results[2:]] == [pytest.approx(n / 2e9 / 100e-6) for n in io_bytes]


def test_a_point_that_fails_says_why_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = paths.torch_paths
    spoilt = {"matmul, head-major": lambda q: torch.zeros(1, 1, 16, 16)}
    monkeypatch.setattr(attend, "torch_paths", lambda *args: {**right(*args), **(spoilt if hit() else {})})
    calls = itertools.count()

    def hit() -> bool:
        return next(calls) == 0

    ledger = run("attend/mqa/*")
    reasons = {(r.point, r.metric): r.reason for r in ledger.results}
    why = "ValueError: matmul, head-major answers wrongly: relative error 1 of at most 1.05e-05"
    assert reasons == {
        ("attend/mqa/fp32/256", "roofline_fraction"): why,
        ("attend/mqa/fp32/256", "speedup_vs_best_torch"): why,
        ("attend/mqa/bf16/256", "speedup_vs_best_torch"): None,
        ("attend/mqa/bf16/256", "roofline_fraction"): None,
    }
    assert not ledger.all_ok
