"""What is read from files of /proc and /sys, from NVML and from torch, on machines that were made up."""

import time

import psutil
import pytest

from experiments.checkup.gpu import Driver
from experiments.checkup.reading import (
    backends,
    barrier,
    compiler,
    counters,
    disk,
    files,
    frequency,
    load,
    memory,
    nvidia,
    pages,
    processors,
    stopwatch,
)
from tests.experiments.checkup.nvml import ANSWERS, CONSTANTS, FakeNvml, NvmlError
from variants.contract.plugin import kinds


def tree(root, **texts):
    """Files below ``root``; ``__`` in a name stands for a slash."""
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_limits_of_every_control_group_above_count_in_version_two(tmp_path):
    tree(tmp_path, proc__self__cgroup="0::/job/step\n")
    for folder, cpu, limit, used in (("", "max 100000", "max", "0"), ("job", "150000 100000", "4096", "96")):
        tree(tmp_path / "sys/fs/cgroup" / folder, **{"cpu.max": cpu, "memory.max": limit, "memory.current": used})
    tree(
        tmp_path / "sys/fs/cgroup/job/step",
        **{"cpu.max": "400000 100000", "cpu.stat": "nr_periods 9\nnr_throttled 4\n"},
    )
    assert load.quota(tmp_path) == 1.5
    assert memory.allowed(tmp_path) == 4000
    assert [f.name for f in files.cgroup_folders("cpu", tmp_path)] == ["step", "job", "cgroup"]


def test_limits_in_version_one(tmp_path):
    tree(tmp_path, proc__self__cgroup="5:cpu,cpuacct:/box\n4:memory:/box\n3:pids:/box\n")
    cpu = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}
    room = {"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "400"}
    tree(tmp_path / "sys/fs/cgroup/cpu/box", **cpu)
    tree(tmp_path / "sys/fs/cgroup/memory/box", **room)
    tree(tmp_path / "sys/fs/cgroup/memory", **{**room, "memory.limit_in_bytes": str(2**63 - 4096)})
    assert load.quota(tmp_path) == 0.5
    assert memory.allowed(tmp_path) == 600


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert load.quota(tmp_path) is None
    assert memory.allowed(tmp_path) is None


def test_load_is_what_others_did_while_we_slept(tmp_path, monkeypatch):
    """20 CPU seconds went by, 9 of them in other programs and 2 to other virtual machines."""

    def moment(user, idle, steal):
        return _times(user=user, idle=idle, steal=steal, guest=user)  # guest time is in user time already

    looks = iter([moment(100.0, 500.0, 1.0), moment(109.0, 509.0, 3.0)])
    spent = iter([{(7, "cc1"): 10.0, (8, "idle"): 5.0}, {(7, "cc1"): 11.0, (8, "idle"): 5.0, (9, "new"): 1.0}])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(looks))
    monkeypatch.setattr(load, "_processes", lambda: next(spent))
    monkeypatch.setattr(time, "monotonic", iter([10.0, 10.5]).__next__)
    tree(tmp_path, sys__devices__system__cpu__cpu0__thermal_throttle__core_throttle_count="3")
    slept: list[float] = []
    seen, heat = load.read(tmp_path, slept.append)
    assert slept == [load.SECONDS]
    assert (seen.busy, seen.steal, seen.seconds) == (9 / 20, 2 / 20, 0.5)
    assert seen.culprits == (("cc1", 7, 2.0),)
    assert (heat.since_start, heat.during) == (3, 0)


def _times(**given):
    """Like psutil's named tuple: it can be summed, and its fields have names."""

    class Times(tuple[float, ...]):
        __slots__ = ()
        user, idle, steal, guest = given["user"], given["idle"], given["steal"], given["guest"]

    return Times(given.values())


def test_this_machine_can_be_looked_at_twice():
    seen, _ = load.read(sleep=lambda seconds: None)
    assert 0 <= seen.busy <= 1
    assert seen.cpus >= 1


@pytest.mark.parametrize(
    ("files_", "turbo"),
    [({"intel_pstate__no_turbo": "1"}, False), ({"cpufreq__boost": "1"}, True), ({}, None)],
)
def test_governor_and_turbo(tmp_path, files_, turbo):
    governors = {
        f"cpu{n}__cpufreq__scaling_governor": g for n, g in enumerate(("powersave", "performance", "powersave"))
    }
    span = {"cpu0__cpufreq__cpuinfo_min_freq": "800000", "cpu0__cpufreq__cpuinfo_max_freq": "3800000"}
    tree(tmp_path / "sys/devices/system/cpu", **governors, **span, **files_)
    seen = frequency.read(tmp_path)
    assert seen.governors == ("performance", "powersave")
    assert (seen.turbo, seen.min_mhz, seen.max_mhz) == (turbo, 800, 3800)


@pytest.mark.parametrize(("siblings", "count"), [("0", 1), ("0-1", 2), ("0,64", 2), ("0-3,8-11", 8)])
def test_threads_of_a_core(tmp_path, siblings, count):
    tree(tmp_path, sys__devices__system__cpu__cpu0__topology__thread_siblings_list=siblings)
    assert processors.per_core(tmp_path) == count


def test_huge_bytes_are_those_of_mappings_that_overlap():
    smaps = (
        "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nAnonHugePages: 4 kB\n"
        "3000-9000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages: 16 kB\nVmFlags: rd wr\n"
        "9000-a000 rw-p 00000000 00:00 0 \nAnonHugePages: 4 kB\n"
    )
    assert pages.huge_bytes(smaps, 0x4000, 0x8000) == 0x4000  # of a mapping that is larger, no more than asked about
    assert pages.huge_bytes(smaps, 0x2000, 0x9000) == 20 * 1024
    assert pages.huge_bytes(smaps, 0xF000, 0xFF00) is None


def test_huge_pages_are_asked_for_and_looked_at():
    seen = pages.read()
    assert seen.asked == pages.ASKED
    assert seen.got is None or 0 <= seen.got <= seen.asked


def test_openmp_libraries_are_told_by_name():
    maps = (
        "7f00-7f10 r-xp 0 08:01 11 /site/torch/lib/libgomp-24e2ab19.so.1\n"
        "7f10-7f20 r-xp 0 08:01 11 /site/torch/lib/libgomp-24e2ab19.so.1\n"
        "7f20-7f30 r-xp 0 08:01 12 /site/my folder/libiomp5.so\n"
        "7f30-7f40 r-xp 0 08:01 13 /usr/lib/libcompare.so\n7f40-7f50 rw-p 0 00:00 0 \n"
    )
    assert barrier.openmp_libraries(maps) == ("libgomp-24e2ab19.so.1", "libiomp5.so")


def test_barrier_percentiles_and_stalls():
    seen = barrier.summarise([10.0] * 98 + [3000.0, 9000.0], threads=2, runtimes=())
    assert (seen.calls, seen.p50_us, seen.max_us, seen.stalled) == (100, 10.0, 9000.0, 0.02)
    assert seen.p99_us == pytest.approx(3060.0)


def test_a_coarse_clock_and_one_that_runs_backwards(tmp_path):
    tree(tmp_path, sys__devices__system__clocksource__clocksource0__current_clocksource="hpet\n")
    coarse = stopwatch.read(tmp_path, iter(1000 * (n // 100) for n in range(stopwatch.READINGS)).__next__)
    assert (coarse.step_ns, coarse.monotonic, coarse.source) == (1000.0, True, "hpet")
    assert coarse.call_ns == pytest.approx(10.0, rel=0.01)
    back = stopwatch.read(tmp_path, iter(n if n != 50 else 0 for n in range(stopwatch.READINGS)).__next__)
    assert not back.monotonic


def test_the_results_folder_is_tried_and_left_as_it_was(tmp_path):
    assert disk.read(tmp_path / "not" / "yet").error is None
    (tmp_path / "file").write_text("")
    assert disk.read(tmp_path / "file").error is not None
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_compilers_are_those_of_the_environment(tmp_path, monkeypatch):
    for name in ("my-c++", "my-cc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "my-c++")
    monkeypatch.setenv("CC", "my-cc")
    assert compiler.read().cxx_path == str(tmp_path / "my-c++")
    monkeypatch.delenv("CXX")
    monkeypatch.delenv("CC")
    seen = compiler.read()
    assert (seen.cxx, seen.cxx_path, seen.cc_path) == ("g++", None, None)


def test_counters_are_told_by_level_and_by_trying(tmp_path):
    tree(
        tmp_path, proc__sys__kernel__perf_event_paranoid="4\n", proc__driver__nvidia__params="RmProfilingAdminOnly: 1\n"
    )
    seen = counters.read(tmp_path)
    assert (seen.paranoid, seen.gpu_admin_only) == (4, True)
    assert seen.error is None or seen.error.isupper() or "no perf events" in seen.error


def test_every_backend_is_asked_and_eager_and_sdpa_run_on_a_cpu():
    seen = backends.read(["cpu"])
    assert list(seen.refusals) == kinds("backend")
    assert {"eager", "sdpa"} <= set(seen.running("cpu"))
    assert any("GPU" in reason or "cuda" in reason for reason in seen.refusals["triton_split_kv"]["cpu"])


def test_nvml_is_asked_for_everything_and_closed_again():
    nvml = FakeNvml()
    seen = nvidia.read_with(nvml)
    assert (seen.version, seen.cuda, seen.error) == ("550.54.15", (12, 4), None)
    assert (nvml.calls[0], nvml.calls[-1], set(nvml.calls)) == ("nvmlInit", "nvmlShutdown", set(ANSWERS))
    (gpu,) = seen.gpus
    assert (gpu.name, gpu.memory, gpu.free, gpu.sm_mhz, gpu.max_sm_mhz) == ("H200", 150, 100, 345, 1980)
    assert (gpu.reasons, gpu.temperature, gpu.busy, gpu.others) == (0x24, 83, 0.35, ((1, None),))
    assert (gpu.mig, gpu.persistence) == (True, False)


def test_questions_that_a_gpu_does_not_know_leave_the_others_answered():
    unknown = [name for name in ANSWERS if name.endswith(("ClockInfo", "Reasons", "Mode", "Rates"))]
    (gpu,) = nvidia.read_with(FakeNvml(unknown)).gpus
    assert (gpu.sm_mhz, gpu.reasons, gpu.busy, gpu.persistence, gpu.mig) == (None, None, None, None, False)
    assert gpu.temperature == 83


@pytest.mark.parametrize(("code", "installed"), [(12, False), (9, False), (18, True)])
def test_a_driver_that_is_absent_is_told_from_one_that_is_broken(code, installed):
    seen = nvidia.read_with(FakeNvml(init_error=NvmlError(code, "why")))
    assert seen == Driver("why", installed=installed)


def test_the_fake_has_no_function_that_nvml_lacks():
    pynvml = pytest.importorskip("pynvml")
    assert [name for name in (*ANSWERS, *CONSTANTS) if not hasattr(pynvml, name)] == []


def test_torch_tells_what_it_was_built_for(monkeypatch):
    import torch

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", lambda: (_ for _ in ()).throw(RuntimeError("driver too\nold")))
    seen = nvidia.read_torch()
    assert (seen.built_for, seen.devices, seen.error) == ((13, 0), 0, "driver too old")
