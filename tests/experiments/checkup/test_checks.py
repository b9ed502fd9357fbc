"""Every check on readings that were made up: what it says of a machine, and what to do."""

from dataclasses import replace

import pytest

from experiments.checkup import barrier, caches, compiler, frequency, gpu, load, memory, processors, software
from experiments.checkup.backends import Backends
from experiments.checkup.check import Check
from experiments.checkup.compiler import Compiler
from experiments.checkup.counters import Counters
from experiments.checkup.disk import Disk
from experiments.checkup.examine import abilities, judge, tally
from experiments.checkup.gpu import Driver, TorchCuda
from experiments.checkup.pages import Pages
from experiments.checkup.stopwatch import Stopwatch
from experiments.checkup.throttling import CpuThrottling
from tests.experiments.checkup.machines import (
    BARRIER,
    DRIVER,
    FREQUENCY,
    GIB,
    H200,
    LOAD,
    MEMORY,
    PROCESSORS,
    SOFTWARE,
    healthy,
)


def amiss(**changed):
    """What is not ok on a machine that is healthy but for what is changed."""
    return {check.name: check for check in judge(healthy(**changed)) if check.verdict != "ok"}


def only(**changed):
    """The one check that is not ok: a change must not be blamed on anything else."""
    (found,) = amiss(**changed).values()
    return found


def test_a_healthy_machine_has_nothing_amiss():
    assert amiss() == {}
    assert tally(judge(healthy())).endswith(" ok, 0 notes, 0 problems")


def test_abilities_name_backends_dtypes_and_clocks_per_device():
    assert abilities(healthy()) == [
        "cpu: eager, sdpa; bf16, fp32; timer wall",
        "cuda: eager, sdpa; bf16, fp16; timer wall, events, graph",
    ]


@pytest.mark.parametrize(
    ("changed", "name", "verdict", "said", "advised"),
    [
        (
            {"software": replace(SOFTWARE, python=(3, 10, 1))},
            "python",
            "problem",
            "3.10.1",
            "3.11 or newer, before 3.14",
        ),
        ({"software": replace(SOFTWARE, python=(3, 14, 0))}, "python", "problem", "3.14.0", "3.11 or newer"),
        (
            {"driver": replace(DRIVER, cuda=(12, 4))},
            "cuda",
            "problem",
            "for CUDA 12.4, torch built for CUDA 13.0",
            "update",
        ),
        ({"cuda": TorchCuda(None, 0)}, "cuda", "problem", "torch is built without CUDA", "CUDA build of torch"),
        ({"cuda": TorchCuda((13, 0), 0, "no device")}, "cuda", "problem", "no device", "CUDA_VISIBLE_DEVICES"),
        ({"cuda": TorchCuda((13, 2), 1)}, "cuda", "note", "torch built for CUDA 13.2", "update the driver if"),
        (
            {"compiler": Compiler("g++", None, "gcc", None)},
            "compiler",
            "note",
            "no g++ and no gcc",
            "no flex on a CPU and no triton_split_kv and flex on the GPU",
        ),
        ({"counters": Counters(2, "EACCES")}, "hardware counters", "note", "EACCES", "perf_event_paranoid=1"),
        ({"counters": Counters(2, "ENOENT")}, "hardware counters", "note", "ENOENT", "offers none"),
        ({"counters": Counters(1, None, True)}, "gpu counters", "note", "administrators", "NVreg_Restrict"),
        ({"throttling": CpuThrottling(7, 0)}, "cpu throttling", "note", "7 events", "drift check"),
        ({"throttling": CpuThrottling(7, 2)}, "cpu throttling", "problem", "2 just now", "cool"),
        ({"load": replace(LOAD, steal=0.03)}, "stolen time", "note", "3.0 %", "another hour"),
        ({"load": replace(LOAD, steal=0.2)}, "stolen time", "problem", "20.0 %", "another hour"),
        ({"pages": Pages("never", 2**25, 0)}, "huge pages", "note", "mode never, 0 MiB of 32 MiB", "echo madvise"),
        ({"pages": Pages("madvise", 2**25, 2**21)}, "huge pages", "note", "2 MiB of 32 MiB", "compact_memory"),
        ({"pages": Pages(None, 2**25, None)}, "huge pages", "note", "mode none, unknown", "offers none"),
        ({"last_level_cache": None}, "last-level cache", "note", "size unknown", "rows will say warm"),
        ({"stopwatch": Stopwatch(1e6, 25, True, "tsc")}, "clock", "note", "steps of 1000000 ns", "tsc"),
        ({"stopwatch": Stopwatch(20, 1500, True, "hpet")}, "clock", "note", "source hpet", "tsc"),
        ({"stopwatch": Stopwatch(20, 25, False, None)}, "clock", "problem", "ran backwards", "clocksource"),
        ({"disk": Disk("r", 2**29)}, "results folder", "note", "512 MiB free", "free some disk"),
        ({"disk": Disk("r", 2**20)}, "results folder", "problem", "1 MiB free", "free some disk"),
        ({"disk": Disk("r", GIB, "Permission denied")}, "results folder", "problem", "Permission denied", "results="),
    ],
)
def test_one_thing_amiss_is_one_check_with_its_numbers_and_what_to_do(changed, name, verdict, said, advised):
    found = only(**changed)
    assert (found.name, found.verdict) == (name, verdict)
    assert said in found.numbers
    assert advised in found.advice


@pytest.mark.parametrize(
    ("changed", "stops"),
    [
        ({"software": replace(SOFTWARE, torch_error="ImportError: libgomp"), "computing": None}, True),
        ({"software": replace(SOFTWARE, versions={"numba": "1", "triton": "1"}), "computing": None}, True),
        ({"backends": Backends({"eager": {"cpu": ("broken",)}})}, True),
        ({"memory": replace(MEMORY, available=100 * 2**20)}, True),
        ({"memory": replace(MEMORY, available=GIB)}, False),
        ({"disk": Disk("r", GIB, "Read-only file system")}, True),
        ({"disk": Disk("r", 2**20)}, True),
        ({"load": replace(LOAD, busy=0.9)}, False),
        ({"driver": replace(DRIVER, cuda=(11, 8))}, False),
    ],
)
def test_only_what_makes_measuring_impossible_stops(changed, stops):
    problems = [check for check in amiss(**changed).values() if check.verdict == "problem"]
    assert problems
    assert any(check.stops for check in problems) == stops


def test_without_torch_its_error_is_said_and_nothing_is_promised():
    broken = healthy(software=replace(SOFTWARE, torch_error="ImportError: libcudart"), computing=None)
    assert next(c for c in judge(broken) if c.name == "torch").numbers == "ImportError: libcudart"
    assert abilities(broken) == ["nothing can be measured without torch"]


@pytest.mark.parametrize(("version", "verdict"), [("2.5.1", "problem"), ("2.6.0", "ok"), ("2.10.0+cu130", "ok")])
def test_versions_of_torch_are_numbers_not_text(version, verdict):
    seen = replace(SOFTWARE, versions={"torch": version, "numba": "1"})
    assert {c.name: c.verdict for c in software.check(seen, gpus=0)}["torch"] == verdict


def test_triton_is_missed_only_where_there_is_a_gpu():
    seen = replace(SOFTWARE, versions={"torch": "2.13.0", "numba": "1"})
    assert "triton" not in {c.name for c in software.check(seen, gpus=0)}
    assert {c.name: c.verdict for c in software.check(seen, gpus=1)}["triton"] == "note"


def test_a_backend_that_runs_nowhere_says_why_in_its_own_words():
    found = only(backends=Backends({"eager": {"cpu": ()}, "flash_mla": {"cpu": ("not installed", "Hopper only")}}))
    assert (found.name, found.verdict, found.advice) == ("backend flash_mla", "note", "not installed; Hopper only")


def test_a_backend_that_runs_on_one_device_is_ok_and_of_many_reasons_three_are_said():
    seen = Backends({"a": {"cpu": ("x",), "cuda": ()}, "b": {"cpu": ("1", "2", "3", "4", "5")}})
    found = {c.name: c for c in judge(healthy(backends=seen))}
    assert found["backend a"].numbers == "runs on cuda"
    assert found["backend b"].advice == "1; 2; 3 (and 2 more reasons)"


@pytest.mark.parametrize(
    ("driver", "said", "verdict"),
    [
        (Driver("NVML Shared Library Not Found", installed=False), "no NVIDIA driver", "note"),
        (Driver("Driver/library version mismatch"), "does not answer: Driver/library version mismatch", "problem"),
        (Driver(None, version="580", cuda=(13, 0)), "a driver without a GPU", "note"),
    ],
)
def test_a_machine_without_a_usable_gpu_says_whether_that_is_a_fault(driver, said, verdict):
    (found,) = gpu.check(driver, TorchCuda((13, 0), 0))
    assert (found.name, found.verdict) == ("cuda", verdict)
    assert said in found.numbers


def test_a_missing_c_compiler_matters_only_with_a_gpu():
    seen = Compiler("g++", "/usr/bin/g++", "gcc", None)
    assert [c.verdict for c in compiler.check(seen, gpus=0)] == ["ok"]
    assert [c.verdict for c in compiler.check(seen, gpus=1)] == ["note"]
    assert "flex" in compiler.check(Compiler("clang++", None, "gcc", "/gcc"), gpus=0)[0].advice


@pytest.mark.parametrize(("busy", "verdict"), [(0.04, "ok"), (0.1, "note"), (0.9, "problem")])
def test_a_busy_machine_is_told_with_who_keeps_it_busy(busy, verdict):
    seen = replace(LOAD, busy=busy, culprits=(("cc1plus", 4321, 12.5),))
    found = load.check(seen, 16, ())[0]
    assert found.verdict == verdict
    assert f"{100 * busy:.1f} % of 16 CPUs" in found.numbers
    assert ("cc1plus (pid 4321, 12.50 CPUs)" in found.advice) == (verdict != "ok")


@pytest.mark.parametrize(
    ("quota", "hits", "threads", "verdict"),
    [(16.0, (0, 0), 16, "ok"), (4.0, (0, 0), 16, "problem"), (16.0, (9, 0), 16, "note"), (16.0, (9, 3), 16, "problem")],
)
def test_a_container_that_allows_less_than_the_threads_want_is_a_problem(quota, hits, threads, verdict):
    found = {c.name: c for c in load.check(replace(LOAD, quota=quota, quota_hits=hits), threads, ())}["cpu quota"]
    assert found.verdict == verdict
    assert (f"timer.threads={int(quota)}" in found.advice) == (verdict == "problem")


@pytest.mark.parametrize(
    ("reasons", "verdict", "said"),
    [
        (0x0, "ok", "none, 40 C"),
        (0x1, "ok", "none, 40 C"),
        (0x4, "note", "power cap"),
        (0x20, "problem", "software thermal"),
        (0x8 | 0x40, "problem", "hardware slowdown, hardware thermal"),
        (0x4 | 0x80, "problem", "power brake"),
    ],
)
def test_a_throttled_gpu_is_a_problem_and_a_capped_one_a_note(reasons, verdict, said):
    found = {c.name: c for c in judge(healthy(driver=replace(DRIVER, gpus=(replace(H200, reasons=reasons),))))}
    assert found["H200, throttling"].verdict == verdict
    assert said in found["H200, throttling"].numbers


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({"reasons": 0x0, "sm_mhz": 345}, "H200, clock", "note"),
        ({"others": ((99, 2 * GIB),)}, "H200, other load", "note"),
        ({"others": ((99, None),), "busy": 0.8}, "H200, other load", "problem"),
        ({"free": GIB}, "H200, memory", "problem"),
        ({"mig": True}, "H200, partition", "note"),
        ({"persistence": False}, "H200, persistence", "note"),
    ],
)
def test_what_hinders_a_gpu(changed, name, verdict):
    found = only(driver=replace(DRIVER, gpus=(replace(H200, **changed),)))
    assert (found.name, found.verdict) == (name, verdict)


def test_clocks_that_move_are_a_note_with_the_commands_that_fix_them():
    found = frequency.check(replace(FREQUENCY, governors=("powersave", "schedutil"), turbo=True), ())[0]
    assert (found.verdict, found.numbers) == ("note", "governor powersave, schedutil, turbo on, 800 to 3800 MHz")
    assert "cpupower frequency-set -g performance" in found.advice
    assert "no_turbo" in found.advice
    assert frequency.check(replace(FREQUENCY, governors=(), turbo=None), ())[0].verdict == "note"


@pytest.mark.parametrize(
    ("available", "allowed", "verdict"),
    [(100, None, "ok"), (100, 4, "note"), (4, 100, "note"), (1, None, "problem"), (100, 1, "problem")],
)
def test_the_smaller_of_free_memory_and_the_containers_limit_counts(available, allowed, verdict):
    seen = replace(MEMORY, available=available * GIB, allowed=allowed and allowed * GIB)
    assert memory.check(seen)[0].verdict == verdict


def test_swapped_memory_is_a_note():
    assert [c.name for c in memory.check(replace(MEMORY, swapped=8 * GIB))] == ["memory", "swap"]


@pytest.mark.parametrize(
    ("changed", "verdict", "advised"),
    [
        ({}, "ok", ""),
        ({"per_core": 2}, "note", "timer.threads=8"),
        ({"allowed": 4}, "problem", "timer.threads=4"),
        ({"threads": 8, "per_core": 2}, "ok", ""),
    ],
)
def test_threads_fit_the_cores_they_may_use(changed, verdict, advised):
    found = {c.name: c for c in processors.check(replace(PROCESSORS, **changed))}["threads"]
    assert found.verdict == verdict
    assert advised in found.advice


def test_several_memories_are_a_note():
    found = {c.name: c for c in processors.check(replace(PROCESSORS, numa_nodes=2))}
    assert "numactl" in found["memory nodes"].advice


@pytest.mark.parametrize(("stalled", "verdict"), [(0.0, "ok"), (0.001, "note"), (0.2, "problem")])
def test_threads_that_wait_for_a_cpu_are_told(stalled, verdict):
    assert barrier.check(replace(BARRIER, stalled=stalled, max_us=8000.0))[0].verdict == verdict


def test_two_openmp_libraries_in_one_process_are_a_note():
    found = barrier.check(replace(BARRIER, runtimes=("libgomp.so.1", "libiomp5.so")))
    assert [(c.name, c.verdict) for c in found] == [("thread barriers", "ok"), ("thread pools", "note")]


def test_one_thread_has_no_barrier_to_wait_at():
    assert [c.verdict for c in barrier.check(None)] == ["ok"]


def test_a_known_cache_size_is_ok():
    assert caches.check(480 * 2**20)[0].numbers == "480 MiB"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("x", "fine", "1"), "verdict must be one of ok, note, problem"),
        (("x", "note", "1"), "exactly what is not ok needs advice"),
        (("x", "ok", "1", "do it"), "exactly what is not ok needs advice"),
        (("x", "note", "1", "do it", True), "only a problem stops"),
    ],
)
def test_a_check_cannot_contradict_itself(parts, said):
    with pytest.raises(ValueError, match=said):
        Check(*parts)
