"""What a workload accepts, in which order it asks, and what it refuses by name."""

import math
from typing import Any

import pytest

from experiments.measuring.workload import Workload
from tests.builders import config
from tests.experiments.builders import WORKLOAD
from variants.contract.dtype import Dtype


def parse(**changes: Any) -> Workload:
    return Workload.parse({**WORKLOAD, **changes})


def test_a_whole_workload() -> None:
    assert parse(batch=[1, 8], context=["1k", 4096], queries=2, dtype="bfloat16", seed=7) == Workload(
        batches=(1, 8),
        contexts=(1024, 4096),
        queries=2,
        dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
        seed=7,
        scopes=("attend", "step"),
        temperatures=("cold",),
    )


def test_the_shipped_defaults_are_accepted() -> None:
    shipped = Workload.parse(config("workload")["default"])
    assert shipped.contexts == (1024, 4096, 16384)
    assert (shipped.dtype, shipped.kv_dtype, shipped.scopes) == (Dtype.BF16, Dtype.BF16, ("attend", "step"))


@pytest.mark.parametrize(
    ("given", "contexts"),
    [
        ("1k", (1024,)),
        ("128k", (131072,)),  # D09: never 128 and never 128000
        ("128K", (131072,)),
        ("1M", (1048576,)),
        (131072, (131072,)),
        (1e5, (100000,)),  # D09, as Hydra's command line gives it
        ("1e5", (100000,)),  # D09, as YAML gives it
        ("1_000", (1000,)),
        ([3, 17, 64], (3, 17, 64)),
        (["8k", "1k", 2048], (8192, 1024, 2048)),  # the order given
        (["1k", 1024, "2k", 1024], (1024, 2048)),  # each once, where it came first
        ((5, 6), (5, 6)),
    ],
)
def test_counts_of_tokens(given: object, contexts: tuple[int, ...]) -> None:
    assert parse(context=given).contexts == contexts
    assert all(type(c) is int for c in parse(context=given).contexts)


@pytest.mark.parametrize(
    "given", ["12q", 0, "0", -1, "-1", 2.7, "2.7", "", math.nan, math.inf, True, "0x10", "1m", "1.5k", "1 k", None, {}]
)
@pytest.mark.parametrize("field", ["context", "batch"])
def test_what_is_no_count_is_refused_by_name_and_value(field: str, given: object) -> None:
    for listed in (given, [1, given]):
        with pytest.raises(ValueError, match=f"workload.{field} must ") as refusal:
            parse(**{field: listed})
        assert repr(given) in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("field", ["context", "batch", "scopes"])
def test_an_empty_list_asks_for_nothing(field: str) -> None:
    with pytest.raises(ValueError, match=f"workload.{field} must not be empty; got \\[\\]"):
        parse(**{field: []})


def test_new_tokens_are_among_the_cached_ones() -> None:
    assert parse(context=4, queries=4).queries == 4
    with pytest.raises(ValueError, match="workload.context must be >= queries=5; got 4"):
        parse(context=[16, 4], queries=5)


@pytest.mark.parametrize("given", [0, "x", [1, 2], None, 1.5])
def test_queries_are_one_count(given: object) -> None:
    with pytest.raises(ValueError, match=r"workload\.queries must be"):
        parse(queries=given)


def test_scopes_keep_their_order_and_stand_once() -> None:
    assert parse(scopes=["step", "attend", "step"]).scopes == ("step", "attend")
    assert parse(scopes="step").scopes == ("step",)


@pytest.mark.parametrize("given", ["all", ["attend", "prefil"], None, 3, [["attend"]], True])
def test_scopes_that_do_not_exist(given: object) -> None:
    with pytest.raises(ValueError, match=r"workload\.scopes must be one of attend, step, prefill, .* output; got "):
        parse(scopes=given)


def test_a_row_for_each_scope_and_temperature() -> None:
    asked = parse(scopes=["step", "attend"], temperature=["cold", "warm", "cold"])
    assert [(c.scope, c.temperature) for c in asked.cells] == [
        ("step", "cold"),
        ("step", "warm"),
        ("attend", "cold"),
        ("attend", "warm"),
    ]


@pytest.mark.parametrize("given", ["hot", None, True, 0, ["cold", "hot"]])
def test_temperatures_that_do_not_exist(given: object) -> None:
    with pytest.raises(ValueError, match=r"workload\.temperature must be one of cold, warm; got "):
        parse(temperature=given)


@pytest.mark.parametrize("given", [-1, 1.0, "0", True, False, None])
def test_seeds_are_whole_numbers(given: object) -> None:
    with pytest.raises(ValueError, match=r"workload\.seed must be a whole number >= 0; got "):
        parse(seed=given)
    assert parse(seed=0).seed == 0


def test_the_cache_is_of_the_activations_dtype_unless_told_otherwise() -> None:
    assert parse(dtype="fp16").kv_dtype is Dtype.F16
    mixed = parse(dtype="bf16", kv_dtype="fp8_e4m3")
    assert (mixed.dtype, mixed.kv_dtype) == (Dtype.BF16, Dtype.FP8_E4M3)


@pytest.mark.parametrize("field", ["dtype", "kv_dtype"])
@pytest.mark.parametrize("given", ["foo8", "half", 16, "BF16", True, ""])
def test_unknown_dtypes_list_the_known_ones(field: str, given: object) -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of fp64, fp32, fp16, bf16, fp8_e4m3, int8, int4; got "):
        parse(**{field: given})


def test_a_misspelt_option_is_not_a_silent_default() -> None:
    with pytest.raises(ValueError, match=r"workload needs the options batch, context, .*; got .*contxt"):
        parse(contxt=3)
    with pytest.raises(ValueError, match="workload needs the options"):
        Workload.parse({k: v for k, v in WORKLOAD.items() if k != "seed"})
