"""What arithmetic knows of a point, in numbers from public cases; and what a time adds to it."""

from typing import Any

import pytest

from experiments.measuring.point import points
from experiments.measuring.row import Where, known, roofline_columns, timed_columns, work_of
from experiments.measuring.series import Series
from experiments.measuring.statistics import summarise
from tests.experiments.builders import array, device, series
from variants.contract.cost import Floor, Work, roofline

BIG: dict[str, Any] = {
    "name": "big",
    "source": "CASES C06",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def where(of: Series, index: int = 0) -> Where:
    return Where(of, points(of)[index], device(), 2)


def columns(of: Series, scope: str = "attend") -> dict[str, Any]:
    return known(where(of), scope, "cold")


def test_c06_cached_bytes_count_kv_heads_not_query_heads() -> None:
    gqa = columns(series("gqa", model=BIG, context="4k", dtype="bf16"))
    q_and_o = 64 * (128 + 128) * 2
    assert gqa["cache_bytes"] == gqa["allocated_bytes"] == 16_777_216  # 134 217 728 if counted per query head
    assert gqa["io_bytes"] == 16_777_216 + q_and_o
    assert gqa["flops"] == 2 * 64 * 256 * 4096


def test_c06_one_latent_serves_all_heads_and_is_read_once() -> None:
    mla = columns(series("mla", model=BIG, context="4k", dtype="bf16"))
    assert mla["cache_bytes"] == 4_718_592
    assert mla["io_bytes"] == 4_718_592 + 64 * (576 + 512) * 2
    assert mla["flops"] == 2 * 64 * (576 + 512) * 4096
    assert (mla["d_qk"], mla["d_v"], mla["num_kv_heads"], mla["num_q_heads"]) == (576, 512, 1, 64)
    assert mla["scale"] == pytest.approx(192**-0.5)


def test_c03_the_shape_that_fits_in_a_gpus_cache() -> None:
    qwen: dict[str, Any] = {
        "name": "Qwen3-0.6B",
        "source": "CASES C03",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
    assert columns(series("gqa", model=qwen, context=2048, dtype="bf16"))["cache_bytes"] == 8_388_608


def timed(us: Any, work: Work, floor: Floor) -> dict[str, Any]:
    summary = summarise(us)
    return timed_columns(summary, work) | roofline_columns(summary, floor)


@pytest.mark.parametrize(("us", "gbps", "share"), [(2200.0, 186.2, 0.27), (2400.0, 170.7, 0.25)])
def test_c09_bandwidth_is_of_bytes_read_once_against_a_measured_roof(us: float, gbps: float, share: float) -> None:
    mlx: dict[str, Any] = {
        "name": "mlx",
        "source": "CASES C09",
        "hidden_size": 8192,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
    made = series("gqa", model=mlx, context=100_000, dtype="bf16")
    assert columns(made)["cache_bytes"] == 409_600_000
    work = work_of(where(made), "attend")
    got = timed(array([[us]]), work, roofline(work, 680.0, 1000.0))
    assert got["bandwidth_gbps"] == pytest.approx(gbps, abs=0.05)
    assert got["roofline_fraction"] == pytest.approx(got["bandwidth_gbps"] / 680.0)
    assert got["roofline_fraction"] == pytest.approx(share, abs=0.005)
    assert got["bound"] == "memory"


def test_golden_bytes_of_a_tiny_step() -> None:
    """By hand: 4 heads of 16 over 2 kv heads in float32, 64 wide, 16 tokens cached."""
    made = series("gqa")
    cache, q_and_o = 16 * 2 * 2 * 16 * 4, 4 * 32 * 4
    weights = (64 * 64 + 2 * 64 * 32 + 64 * 64) * 4
    x_and_y, appended = 2 * 64 * 4, 2 * 2 * 16 * 4
    attend, step = columns(made), columns(made, "step")
    assert (attend["cache_bytes"], attend["weight_bytes"], attend["table_bytes"]) == (cache, weights, 0)
    assert attend["io_bytes"] == cache + q_and_o == 4608
    assert step["io_bytes"] == 4608 + weights + x_and_y + appended == 54_528
    assert attend["flops"] == 2 * 4 * 32 * 16
    assert step["flops"] == attend["flops"] + 2 * weights // 4
    assert attend["scale"] == 0.25
    assert (attend["layers"], attend["order"], attend["page_size"], attend["form"]) == (2, "hs", None, None)


def test_batch_multiplies_caches_and_not_weights() -> None:
    one, eight = (columns(series("gqa", batch=b), "step") for b in (1, 8))
    assert eight["cache_bytes"] == 8 * one["cache_bytes"]
    assert eight["weight_bytes"] == one["weight_bytes"]
    assert eight["io_bytes"] == 8 * (one["io_bytes"] - one["weight_bytes"]) + one["weight_bytes"]
    assert eight["flops"] == 8 * one["flops"]


def test_padding_is_allocated_and_not_cached() -> None:
    """64 B of fp8 latent, a scale and a bf16 rotary key of 8 are 84 B of logical row, 96 B as it lies."""
    row = columns(series("mla", "eager", dtype="bf16", kv_dtype="fp8_e4m3"))
    assert (row["cache_bytes"], row["allocated_bytes"]) == (16 * 84, 16 * 96)


def test_a_materialized_step_reads_the_latent_and_decompresses_it() -> None:
    absorbed, materialized, expanded = (
        columns(series("mla", options={"form": form})) for form in ("absorbed", "materialized", "expanded")
    )
    assert materialized["cache_bytes"] == absorbed["cache_bytes"] == 16 * (64 + 8) * 4
    assert expanded["cache_bytes"] == 16 * 4 * (24 + 16) * 4
    assert [c["form"] for c in (absorbed, materialized, expanded)] == ["absorbed", "materialized", "expanded"]
    assert (materialized["d_qk"], materialized["d_v"], materialized["num_kv_heads"]) == (24, 16, 4)
    kv_b = 64 * 4 * (16 + 16)
    assert materialized["flops"] - expanded["flops"] == 2 * 16 * kv_b  # once per cached token
    assert materialized["io_bytes"] == 16 * 72 * 4 + 4 * 40 * 4 + 4 * kv_b


@pytest.mark.parametrize(
    ("attention", "tp", "mode", "share"),
    [
        ("gqa", 1, None, 1),
        ("gqa", 2, "sharded", 2),
        ("mha", 4, "sharded", 4),
        ("gqa", 4, "replicated", 2),  # two kv heads on four ranks: each is stored twice
        ("mqa", 2, "replicated", 1),
        ("mla", 2, "replicated", 1),  # A09: a latent has no head axis
        ("mla", 4, "replicated", 1),
    ],
)
def test_a_row_is_one_ranks_and_says_how_the_ranks_add_up(
    attention: str, tp: int, mode: str | None, share: int
) -> None:
    whole, rank = columns(series(attention)), columns(series(attention, tp=tp))
    assert (rank["tp"], rank["tp_mode"]) == (tp, mode)
    assert rank["cache_bytes"] * share == whole["cache_bytes"]
    assert rank["num_q_heads"] * tp == 4


def test_expanded_keys_are_sharded() -> None:
    assert columns(series("mla", tp=2, options={"form": "expanded"}))["tp_mode"] == "sharded"


def test_achieved_rates_follow_from_the_median() -> None:
    work = Work(2_000_000, 4_000_000)
    got = timed(array([[10.0, 20.0, 90.0]]), work, roofline(work, 400, 2))
    assert got["latency_us_p50"] == 20.0
    assert got["bandwidth_gbps"] == 100.0  # 2 MB in 20 us
    assert got["tflops"] == 0.2
    assert (got["floor_us"], got["bound"], got["roofline_fraction"]) == (5.0, "memory", 0.25)
    assert (got["samples"], got["rounds"]) == (3, 1)


def test_the_binding_ceiling_is_named() -> None:
    work = Work(2_000_000, 4_000_000)
    got = timed(array([[20.0]]), work, roofline(work, 400, 0.4))
    assert (got["floor_us"], got["bound"], got["roofline_fraction"]) == (10.0, "compute", 0.5)
    assert got["latency_us_p10"] is got["latency_us_ci_low"] is None


def test_a_row_says_where_it_was_measured() -> None:
    got = columns(series())
    assert (got["device"], got["host"], got["versions"], got["commit"]) == ("pretended", "host", "torch 0", "commit")
    assert (got["command"], got["threads"], got["seed"]) == ("test", 2, 0)
    assert got["started_at"].endswith("+00:00")
    nowhere = known(Where(series(), points(series())[0], None, 2), "step", "cold")
    assert nowhere["device"] is nowhere["host"] is nowhere["versions"] is nowhere["commit"] is None
