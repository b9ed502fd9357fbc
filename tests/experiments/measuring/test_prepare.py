"""Before the clock starts: real data in every byte, as many replicas as memory holds, and a proof that can fail."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments.measuring.point import points
from experiments.measuring.prepare import (
    Replica,
    error_budget,
    oracle_bytes,
    prove,
    read_layout,
    replica_bytes,
    replica_count,
)
from experiments.measuring.series import Series
from tests.experiments.builders import TINY, Faulty, prepared, series
from variants import noise
from variants.contract.dtype import Dtype

EPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float64: 2.0**-52}
FORMS = ("absorbed", "materialized", "expanded")


def replicas_of(of: Series, index: int = 0, free: int = 2**30) -> list[Replica]:
    return prepared(of, replica_count(of, points(of)[index], free), index)


def weights_of(made: Series) -> list[torch.Tensor]:
    module = replicas_of(made)[0].planned.attention
    assert isinstance(module, torch.nn.Module)
    return [weight for name, weight in module.named_parameters() if "norm" not in name]


@pytest.mark.parametrize("attention", ["mha", "gqa", "mqa", "mla"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_c16_caches_and_weights_hold_noise_throughout(attention: str, dtype: str) -> None:
    made = series(attention, dtype=dtype, batch=2, context=64, seed=3)
    for replica in replicas_of(made):
        view = replica.planned.cache.view
        for stream in view.layout.streams:
            data = view.stream(stream.name)[:, :, :-1].double()  # all but the newest token
            assert 0.8 < data.std().item() < 1.2
            assert data.isfinite().all()  # nothing is left as allocated: C17
            assert (data.std(dim=-1) > 0.3).all()  # no row is constant
        assert view.lengths.tolist() == [64, 64]
        module = replica.planned.attention
        assert isinstance(module, torch.nn.Module)
        for name, weight in module.named_parameters():
            assert weight.isfinite().all()
            if "norm" in name:
                assert (weight == 1).all()
            else:
                assert weight.double().std().item() == pytest.approx(weight.shape[-1] ** -0.5, rel=0.2)
        assert not any(p.requires_grad for p in module.parameters())


def test_replicas_share_no_byte_and_no_number() -> None:
    made = series("gqa", timer={"replicas": 2}, batch=2, context=32)  # and one to open cold rounds
    replicas = replicas_of(made)
    assert len(replicas) == 3
    slabs = [r.planned.cache.view.slabs for r in replicas]
    assert len({slab.data_ptr() for pair in slabs for slab in pair}) == 6
    firsts = [pair[0].view(torch.float32) for pair in slabs]
    assert not torch.equal(firsts[0], firsts[1])
    assert not torch.equal(firsts[1], firsts[2])
    assert not torch.equal(firsts[0][0], firsts[0][1])  # nor do the sequences of one batch
    assert not torch.equal(replicas[0].query, replicas[1].query)
    assert not torch.equal(replicas[1].query, replicas[2].query)


def test_an_input_is_no_row_of_the_weights() -> None:
    """As one it would make one query that outweighs all others: its own squared length, where others are near 1."""
    for replica in replicas_of(series("mha", context=16, timer={"replicas": 4})):
        module = replica.planned.attention
        assert isinstance(module, torch.nn.Module)
        for weight in module.parameters():
            near = torch.nn.functional.cosine_similarity(weight, replica.x.flatten(), dim=-1)
            assert near.abs().max() < 0.7
        assert replica.planned.attention.query(replica.x, replica.position).abs().max() < 8


def test_noise_is_drawn_once_for_all_points() -> None:
    """A block takes 30 ms, longer than a cache takes to fill: one each for caches, what is asked, newest, weights."""
    made = series("gqa", context=[32, 64], timer={"replicas": 8})  # as shipped, and the one that opens
    noise._block.cache_clear()
    for index in (0, 1, 0):
        prepared(made, 9, index)
    drawn = noise._block.cache_info().misses
    assert drawn <= noise.KEPT
    assert drawn == 4 + len({weight.shape[-1] for weight in weights_of(made)})


def test_equal_seeds_give_equal_data() -> None:
    one, same, other = (replicas_of(series("mla", seed=s))[0] for s in (5, 5, 6))
    data = [r.planned.cache.view.slabs[0] for r in (one, same, other)]
    assert torch.equal(data[0], data[1])
    assert not torch.equal(data[0], data[2])
    assert torch.equal(one.query, same.query)


def test_a_step_writes_the_last_positions_and_says_the_same_twice() -> None:
    made = series("gqa", context=16, queries=2)
    replica = replicas_of(made)[0]
    view = replica.planned.cache.view
    before = view.stream("key").clone()
    with torch.no_grad():
        first, second = replica.step(), replica.step()
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert first.shape == (1, 2, 64)
    assert torch.equal(first, second)
    assert view.lengths.tolist() == [16]
    after = view.stream("key")
    assert torch.equal(after[:, :, :14], before[:, :, :14])
    assert not torch.equal(after[:, :, 14], before[:, :, 14])
    assert not torch.equal(after[:, :, 15], before[:, :, 15])


@pytest.mark.parametrize(("free", "count"), [(2**30, 8 + 1), (10, 1), (3 * 3 * 53_248, 3), (3 * 3 * 53_248 - 3, 2)])
def test_as_many_replicas_as_a_third_of_the_memory_holds(free: int, count: int) -> None:
    made = series("gqa", timer={"replicas": 8}, context=16)
    assert sum(replica_bytes(made, points(made)[0]).values()) == 53_248  # 4096 cache + 49152 weights
    assert len(replicas_of(made, free=free)) == count


def test_bytes_of_a_replica_part_by_part() -> None:
    made = series("mla", options={"form": "materialized"}, batch=2, context=64, dtype="bf16")
    # latent 64 + rope 8, in one row of 144 B; 4 heads of 24 + 16 decompressed, rows of 48 and 32 B
    weights = 64 * 4 * 24 + 64 * 72 + 64 * 4 * 32 + 4 * 16 * 64 + 64
    assert replica_bytes(made, points(made)[0]) == {
        "cache": 2 * 64 * 144,
        "decompressed keys and values": 2 * 64 * 4 * 80,
        "weights": 2 * weights,
    }
    assert oracle_bytes(made, points(made)[0]) == 4 * 4 * 40 * 64


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8_e4m3"])
def test_slabs_are_as_large_as_counted(form: str, kv_dtype: str) -> None:
    made = series("mla", "eager", options={"form": form}, dtype="bf16", kv_dtype=kv_dtype, batch=3, context=20)
    counted = replica_bytes(made, points(made)[0])
    planned = replicas_of(made)[0].planned
    assert sum(s.nbytes for s in planned.cache.view.slabs) == counted["cache"]
    scratch = 0 if planned.view is planned.cache.view else sum(s.nbytes for s in planned.view.slabs)
    assert scratch == counted.get("decompressed keys and values", 0)
    assert planned.view.layout == read_layout(made)
    module = planned.attention
    assert isinstance(module, torch.nn.Module)
    assert sum(p.nbytes for p in module.parameters()) == counted["weights"]


# the proof


@pytest.mark.parametrize("dtype", EPS)
def test_the_budget_is_a_few_roundings(dtype: torch.dtype) -> None:
    assert error_budget(dtype) == 4 * EPS[dtype] + 1e-5


def error_of(replica: Replica) -> float:
    return prove(replica, lambda: None).relative_error


def error_with(faulty: Faulty, dtype: str = "fp32", batch: int = 1) -> float:
    return error_of(replicas_of(replace(series(dtype=dtype, batch=batch, context=64), backend=faulty))[0])


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64"])
@pytest.mark.parametrize("attention", ["mha", "gqa", "mqa", "mla"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_right_answers_are_within_budget(attention: str, backend: str, dtype: str) -> None:
    made = series(attention, backend, dtype=dtype, batch=2, queries=3, context=64)
    error = error_of(replicas_of(made)[0])
    assert error <= error_budget(getattr(torch, {"bf16": "bfloat16"}.get(dtype, dtype.replace("fp", "float"))))
    if backend == "eager" and dtype in ("fp32", "fp64"):
        assert error == 0


def test_errors_are_relative_norms() -> None:
    assert error_with(Faulty(lambda o: o * 1.25)) == pytest.approx(0.25)
    assert error_with(Faulty(lambda o: o * 0)) == 1.0
    assert error_with(Faulty(lambda o: -o)) == pytest.approx(2.0)


def test_half_the_cache_is_far_off() -> None:
    assert error_with(Faulty(share=0.5)) > 0.3


@pytest.mark.parametrize("context", [2**15, 2**16])
def test_half_of_a_long_cache_is_far_off(context: int) -> None:
    """Filling it takes more noise than is drawn: 2**15 keys of 128 once were the same 2**14 keys twice."""
    made = series("mqa", "eager", model={**TINY, "head_dim": 128}, context=context, scopes=["attend"])
    (right,), (half,) = (prepared(replace(made, backend=Faulty(share=share)), 1) for share in (1.0, 0.5))
    assert error_of(right) == 0
    assert error_of(half) > 0.3


def test_the_worst_sequence_counts() -> None:
    def spoil_last(o: torch.Tensor) -> torch.Tensor:
        o = o.clone()
        o[-1] *= 1.5
        return o

    assert error_with(Faulty(spoil_last), batch=4) == pytest.approx(0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_number_that_is_not_finite_is_enough(value: float) -> None:
    def spoil(o: torch.Tensor) -> torch.Tensor:
        o = o.clone()
        o[0, 0, 0, 0] = value
        return o

    assert error_with(Faulty(spoil), batch=2) == math.inf


CUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one sequence": lambda o: o[:1],
    "half the columns": lambda o: o[..., :8],
    "one head": lambda o: o[:, :, :1],
    "heads averaged": lambda o: o.mean(dim=2),
}


@pytest.mark.parametrize("cut", CUTS)
def test_an_output_of_another_shape_is_wrong(cut: str) -> None:
    """Shapes are checked by beartype in tests only; here the plan stands outside its reach, as it does for a user."""
    replica = replicas_of(series(batch=2))[0]
    planned = replica.planned
    unchecked: Any = SimpleNamespace(
        geometry=planned.geometry,
        view=planned.view,
        length=planned.length,
        attend=lambda q: (CUTS[cut](planned.plan.attend(q)[0]), None),
    )
    assert error_of(replica) <= 1e-5
    assert error_of(replace(replica, planned=unchecked)) == math.inf


def test_the_oracle_sees_float64_where_the_point_is_float64() -> None:
    assert error_with(Faulty(lambda o: o * (1 + 1e-9)), dtype="fp64") == pytest.approx(1e-9, rel=1e-3)


def test_read_layout_is_of_the_weights_dtype_once_decompressed() -> None:
    fp8, scale, bf16 = Dtype.FP8_E4M3, Dtype.F32, Dtype.BF16
    for form, dtypes in (
        ("absorbed", [fp8, scale, bf16]),
        ("materialized", [bf16] * 2),
        ("expanded", [fp8, scale] * 2),
    ):
        made = series("mla", options={"form": form}, dtype="bf16", kv_dtype="fp8_e4m3")
        assert [s.dtype for s in read_layout(made).streams] == dtypes
