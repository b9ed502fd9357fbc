"""Predicted latencies: hand-computed on a device of round numbers, and in the right order on every other."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.planning.load import NAMED, Load, Shapes, load_of, spec_load
from experiments.planning.predict import Prediction, latency_us, predict, predict_shapes, projection_us
from experiments.planning.profile import DeviceProfile, Kernel
from tests.builders import grouped, latent
from tests.experiments.planning.profiles import kernel, profile, shipped
from variants.contract.cost import Point, Work, attend_work
from variants.contract.dtype import Dtype
from variants.protocols import Spec

DEVICES = ("a100_sxm", "h100_sxm", "h200", "b200", "l40s", "cpu")


def load(io_bytes: float = 1.0, flops: float = 1.0, context: float = 1.0, rows: float = 1.0) -> Load:
    """One point."""
    return Load(*(np.array([value], dtype=np.float64) for value in (io_bytes, flops, context, rows)))


def us(of: Kernel, cache_bytes: float = 0.0, **asked: float) -> float:
    """The time of one point at 200 TFLOP/s."""
    return float(latency_us(of, load(**asked), 200.0, cache_bytes)[0])


def told(device: DeviceProfile, layout: str, *points: tuple[int, int, int, int]) -> Prediction:
    """Predictions of (q_heads, kv_heads, batch, context)."""
    columns = np.array(points, dtype=np.float64).T
    return predict_shapes(device, Shapes(np.array([layout] * len(points)), *columns))


# each term by itself


def test_memory_bound_time_is_bytes_over_bandwidth() -> None:
    assert us(kernel(), io_bytes=5e9, flops=1.0) == pytest.approx(5000.0)  # 5 GB at 1 TB/s


def test_compute_bound_time_is_flops_over_the_share_of_the_rate() -> None:
    assert us(kernel(), io_bytes=1.0, flops=3e11) == pytest.approx(3000.0)  # 0.3 TFLOP at half of 200 TFLOP/s


def test_a_cache_that_fits_is_read_at_the_caches_rate_and_one_byte_more_is_not() -> None:
    assert us(kernel(), cache_bytes=4e6, io_bytes=4e6) == pytest.approx(1.0)
    assert us(kernel(), cache_bytes=4e6, io_bytes=4e6 + 1) == pytest.approx(4.0)


def test_fixed_tile_and_merge_times_are_added() -> None:
    assert us(kernel(fixed_us=7.0)) == pytest.approx(7.0, abs=1e-3)
    assert us(kernel(tile_us=8.0), rows=16) == pytest.approx(2.0, abs=1e-3)
    assert us(kernel(tile_us=8.0), rows=64) == us(kernel(tile_us=8.0), rows=1000) == pytest.approx(8.0, abs=1e-3)
    assert us(kernel(merge_us=2.0), context=1024) == pytest.approx(2.0, abs=1e-3)
    assert us(kernel(merge_us=2.0), context=7 * 1024) == pytest.approx(6.0, abs=1e-3)


def test_a_known_shape_takes_the_time_computed_by_hand() -> None:
    """GQA 32:8 d 128, batch 4 x 8,192: 134,250,496 B of cache, q and o at 1 TB/s; 1 us fixed, 3 doublings of 2 us."""
    device = profile(grouped=kernel(fixed_us=1.0, merge_us=2.0))
    cached, q_and_o = 4 * 8192 * 8 * 2 * 128 * 2, 4 * 32 * 2 * 128 * 2
    made = told(device, "grouped_d128", (32, 8, 4, 8192))
    assert made.latency_us[0] == pytest.approx(1 + 2 * np.log2(9) + (cached + q_and_o) / 1e6)
    assert made.floor_us[0] == pytest.approx((cached + q_and_o) / 1250e3)
    assert made.bound == ["memory"]


def test_many_heads_on_one_latent_are_bound_by_compute() -> None:
    made = told(shipped("h200"), "latent_512_64", (128, 1, 64, 32768), (16, 1, 64, 32768))
    assert made.bound == ["compute", "memory"]
    assert made.floor_us[0] == pytest.approx(2 * 64 * 32768 * 128 * 1088 / (0.8 * 989e6))


def test_cold_rows_find_nothing_in_the_last_level_cache() -> None:
    device, small = profile(), load(io_bytes=1e6)
    cold, warm = (predict(device, "grouped", small, Dtype.BF16, t).latency_us[0] for t in ("cold", "warm"))
    assert (cold, warm) == (pytest.approx(1.0), pytest.approx(0.8))  # warm: a quarter, but never below the floor


def test_projections_add_launches_and_their_bytes_at_the_ceiling() -> None:
    """4 products and the append at 3 us each; 12.5 MB at 1,250 GB/s = 10 us."""
    assert projection_us(profile(), 4, Work(12_500_000, 1), Dtype.BF16) == pytest.approx(25.0)
    assert projection_us(profile(), 4, Work(1, 16 * 10**8), Dtype.BF16) == pytest.approx(25.0)  # at 160 TFLOP/s


# counts


@pytest.mark.parametrize(("q", "kv", "batch", "context"), [(8, 8, 1, 1), (64, 8, 3, 1000), (32, 1, 128, 131072)])
def test_named_layouts_are_counted_as_the_contract_counts_their_specs(
    q: int, kv: int, batch: int, context: int
) -> None:
    specs: dict[str, Spec] = {"grouped_d128": grouped(q, kv, 128), "latent_512_64": latent(q, 512, 128, 64, 128)}
    assert set(specs) == set(NAMED)
    for name, spec in specs.items():
        heads = kv if name == "grouped_d128" else 1
        columns = (np.array([float(n)]) for n in (q, heads, batch, context))
        made = load_of(name, Shapes(np.array([name]), *columns))
        work = attend_work(spec.layout(Dtype.BF16), spec.geometry(), (), Point(batch, context, 1, Dtype.BF16))
        assert (made.io_bytes[0], made.flops[0]) == (work.io_bytes, work.flops)
        assert (made.rows[0], made.context[0]) == (q / heads, context)


def test_a_window_is_walked_no_further_than_it_reaches() -> None:
    spec = grouped(8, 2, 128, window=512)
    points = [Point(1, context, 1, Dtype.BF16) for context in (256, 512, 4096)]
    made = spec_load(spec.layout(Dtype.BF16), spec.geometry(), (), points)
    assert made.context.tolist() == [256, 512, 512]
    assert made.io_bytes[1] == made.io_bytes[2]
    assert made.rows.tolist() == [4, 4, 4]


# what no device may get wrong


@pytest.mark.parametrize("device", DEVICES)
@given(
    layout=st.sampled_from(sorted(NAMED)),
    heads=st.tuples(st.sampled_from([1, 2, 8, 64]), st.sampled_from([1, 4, 16])),
    batch=st.integers(1, 4096),
    context=st.integers(1, 2**22),
)
def test_more_work_never_takes_less_time_and_none_less_than_its_floor(
    device: str, layout: str, heads: tuple[int, int], batch: int, context: int
) -> None:
    kv = heads[0] if layout == "grouped_d128" else 1
    q = kv * heads[1]
    points = [
        (q, kv, batch, context),
        (q, kv, batch, context + 1),
        (q, kv, batch + 1, context),
        (2 * q, kv, batch, context),
    ]
    made = told(shipped(device), layout, *points)
    assert (made.latency_us[1:] >= made.latency_us[0]).all()
    assert (made.latency_us >= made.floor_us).all()
    assert made.floor_us.min() > 0
    assert made.latency_us.max() < inf


def test_a_newer_card_is_faster() -> None:
    times = [told(shipped(d), "grouped_d128", (32, 8, 64, 8192)).latency_us[0] for d in DEVICES]
    order = ["b200", "h200", "h100_sxm", "a100_sxm", "l40s", "cpu"]
    assert [d for _, d in sorted(zip(times, DEVICES, strict=True))] == order
