"""Roofs: every byte read once, the best run wins, and no more memory is taken than there is."""

from typing import ClassVar

import pytest
import torch

from experiments.measuring import bench as module
from experiments.measuring import ceilings as roofs
from experiments.measuring.bench import Bench, Benches
from experiments.measuring.ceilings import Ceilings, measure_ceilings, measure_matmul
from experiments.measuring.point import points
from experiments.measuring.row import Where
from experiments.measuring.sweep import ROW, Sweep
from experiments.measuring.timing import WallTimer, make_timer
from tests.experiments.builders import Scripted, as_float, device, series, sweep_of
from variants.contract.dtype import Dtype


def kernels(buffer: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: kernel() for name, kernel in roofs._read_kernels(buffer)}


def test_read_kernels_touch_every_byte_once() -> None:
    """Of a buffer of ones, each kernel returns how often it read something; of one odd element, that it read it."""
    size = 3 * 4096
    ones = torch.ones(size)
    found = kernels(ones)
    assert sorted(found) == ["dot", "matvec", "max", "sum"]
    assert as_float(found["sum"]) == size
    assert as_float(found["dot"]) == size
    assert found["matvec"].tolist() == [4096.0] * 3  # three rows of 4096, each element times one
    for odd in (0, 4095, 4096, size - 1):
        buffer = torch.zeros(size)
        buffer[odd] = 7.0
        seen = kernels(buffer)
        assert as_float(seen["max"]) == 7.0
        assert as_float(seen["sum"]) == 7.0
        assert as_float(seen["dot"]) == 49.0
        buffer[:4096] += 1.0  # the vector of the product is the buffer's first row
        row = 4095.0 + 8.0**2 if odd < 4096 else 7.0
        assert kernels(buffer)["matvec"][odd // 4096] == row


def test_the_best_run_of_the_best_kernel_is_the_ceiling() -> None:
    sweep = sweep_of(4 * 2**20)
    per_kernel = {"sum": 80.0, "max": 40.0, "dot": 60.0, "matvec": 50.0}
    script: list[float] = []
    for scale in (1.0, 0.1):  # the whole buffer (cold), then its first MiB (resident)
        for us in per_kernel.values():
            # 200 repeats: as many as 50 ms of so short a kernel would be more; the quickest one stands in the middle
            script += [50.0 * scale, *[us * 3 * scale] * 100, us * scale, *[us * 9 * scale] * 99]
    timer = Scripted(script)
    found = measure_ceilings(sweep, timer)
    assert (found.cold_kernel, found.resident_kernel) == ("max", "max")
    assert found.cold_gbps == pytest.approx(4 * 2**20 / 40.0 / 1e3)
    assert found.resident_gbps == pytest.approx(2**20 / 4.0 / 1e3)
    assert len(timer.calls) == len(script)


def test_a_first_run_never_counts() -> None:
    """The first run may compile, fault pages in or, with a cache filled by what came before, be too quick."""
    sweep = sweep_of(2**20)
    script = [60_000.0, *[30.0] * 5] * 4 + [1.0, *[30.0] * 200] * 4
    found = measure_ceilings(sweep, Scripted(script))
    assert found.cold_gbps == found.resident_gbps == 2**20 / 30.0 / 1e3


@pytest.mark.parametrize(("first", "repeats"), [(1.0, 200), (1000.0, 50), (20_000.0, 5), (1e6, 5)])
def test_short_kernels_are_repeated_for_longer(first: float, repeats: int) -> None:
    timer = Scripted([first, *[2.0] * 500])
    assert roofs._best(lambda: None, timer) == 2.0
    assert len(timer.calls) == 1 + repeats


def test_a_matmul_rate_counts_two_operations_per_product() -> None:
    script = [1e6, *[1000.0] * 5, 1e6, *[2000.0] * 5]  # 1024^3 in 1 ms, 2048^3 in 2 ms
    assert measure_matmul(Dtype.F32, device(), Scripted(script)) == 2 * 2048**3 / 2000.0 / 1e6


def test_real_ceilings_of_a_small_buffer_are_plausible() -> None:
    sweep = sweep_of(2 * 2**20)
    found = measure_ceilings(sweep, WallTimer(lambda: None))
    assert 0.05 < found.cold_gbps < 5000
    assert 0.05 < found.resident_gbps < 5000
    assert {found.cold_kernel, found.resident_kernel} <= {"sum", "max", "dot", "matvec"}


def test_ceilings_by_temperature_and_the_best_of_two() -> None:
    one, other = Ceilings(700.0, "sum", 900.0, "dot"), Ceilings(710.0, "max", 800.0, "matvec")
    for cache in (None, 10):
        assert (one.at("cold", 10, cache), one.at("warm", 10, cache)) == (700.0, 900.0)
    assert one.at("warm", 20, 10) == pytest.approx(20 / (10 / 900 + 10 / 700))
    assert one.best_of(other) == other.best_of(one) == Ceilings(710.0, "max", 900.0, "dot")


# the sweep


def test_the_sweep_is_five_times_the_last_level_cache() -> None:
    assert Sweep(device(last_level_cache=2**20)).bytes == 5 * 2**20


def test_an_unknown_cache_is_swept_by_guess() -> None:
    assert Sweep(device(last_level_cache=None, free=2**40)).bytes == 5 * 64 * 2**20


@pytest.mark.parametrize("free", [2**20, 10 * 2**20 + 5])
def test_the_sweep_takes_at_most_a_quarter_of_the_free_memory(free: int) -> None:
    sweep = Sweep(device(last_level_cache=2**30, free=free))
    assert sweep.bytes == free // 4 // ROW * ROW
    assert sweep.bytes == sweep.buffer.nbytes


def test_the_sweep_reads_what_is_missing() -> None:
    sweep = Sweep(device(last_level_cache=2**20))
    whole = 5 * 2**20
    assert [sweep(already) for already in (0, 1, ROW, whole - 1)] == [whole, whole, whole - ROW, ROW]
    assert sweep(5 * 2**20) == sweep(2**40) == 0


def test_a_sweep_that_memory_cuts_short_is_read_whole_until_less_is_missing() -> None:
    sweep = Sweep(device(last_level_cache=2**20, free=8 * 2**20))
    assert [sweep(already) for already in (0, 3 * 2**20, 4 * 2**20)] == [2 * 2**20, 2 * 2**20, 2**20]


def test_the_swept_buffer_holds_noise_throughout_and_is_read_to_its_end() -> None:
    sweep = sweep_of(2 * 2**20)
    assert 0.9 < sweep.buffer.std().item() < 1.1
    blocks = sweep.buffer.view(-1, 4096)
    assert (blocks.std(dim=1) > 0.5).all()  # no row was left as the allocator gave it
    sweep.buffer = Watched(sweep.buffer)
    sweep()
    assert Watched.read == [torch.Size([2 * 2**20 // 4])]


class Watched(torch.Tensor):
    """A tensor that notes the shape of whatever is summed."""

    read: ClassVar[list[torch.Size]] = []

    def sum(self, *args: object, **kwargs: object) -> torch.Tensor:
        self.read.append(self.shape)
        return torch.zeros(())


# the bench


def test_what_a_bench_measures_it_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def read(*of: object) -> Ceilings:
        asked.append("read")
        return Ceilings(1, "", 2, "")

    def matmul(dtype: Dtype, *of: object) -> float:
        asked.append(dtype)
        return 3.0

    monkeypatch.setattr(module, "measure_ceilings", read)
    monkeypatch.setattr(module, "measure_matmul", matmul)
    bench = Bench(device(), WallTimer(lambda: None))
    assert bench.ceilings is bench.ceilings
    assert bench.sweep is bench.sweep
    rates = [bench.matmul_tflops(d) for d in (Dtype.F32, Dtype.BF16, Dtype.F32)]
    assert rates == [3.0] * 3
    assert asked == ["read", Dtype.F32, Dtype.BF16]


def test_series_share_a_bench_where_device_clock_and_threads_agree() -> None:
    benches = Benches()
    cpu = device()

    def at(attention: str, timer: str, threads: int) -> Where:
        made = series(attention, timer={"kind": timer})
        return Where(made, points(made)[0], cpu, threads)

    one = benches.of(at("gqa", "auto", 1))
    assert benches.of(at("mla", "auto", 1)) is one
    assert benches.of(at("gqa", "auto", 2)) is not one  # ceilings depend on threads
    assert benches.of(at("gqa", "wall", 1)) is not one
    assert (one.device, one.timer) == (cpu, make_timer("wall", "cpu", cpu.synchronize))
    with pytest.raises(ValueError, match="timer graph needs a CUDA device"):
        benches.of(at("gqa", "graph", 1))
