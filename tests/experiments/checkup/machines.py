"""Readings of a machine on which nothing is amiss; a test changes what it is about."""

from dataclasses import replace
from typing import Any

from experiments.checkup.backends import Backends
from experiments.checkup.barrier import Barrier
from experiments.checkup.compiler import Compiler
from experiments.checkup.counters import Counters
from experiments.checkup.disk import Disk
from experiments.checkup.examine import Computing, Readings
from experiments.checkup.frequency import Frequency
from experiments.checkup.gpu import Driver, Gpu, TorchCuda
from experiments.checkup.load import Load
from experiments.checkup.memory import Memory
from experiments.checkup.pages import Pages
from experiments.checkup.processors import Processors
from experiments.checkup.software import Software
from experiments.checkup.stopwatch import Stopwatch
from experiments.checkup.throttling import CpuThrottling

GIB = 2**30
SOFTWARE = Software((3, 12, 4), {"torch": "2.13.0", "numba": "0.68.1", "triton": "3.6.0"}, None)
H200 = Gpu("H200", 139 * GIB, 138 * GIB, 1980, 1980, reasons=0x2, temperature=40, busy=0.0, persistence=True)
DRIVER = Driver(None, version="580.65", cuda=(13, 0), gpus=(H200,))
TORCH_CUDA = TorchCuda((13, 0), devices=1)
LOAD = Load(seconds=0.5, cpus=16, busy=0.01, steal=0.0, load_1min=0.1)
MEMORY = Memory(total=128 * GIB, available=100 * GIB, allowed=None)
PROCESSORS = Processors("Xeon", 16, 16, per_core=1, numa_nodes=1, threads=16, vectors="AVX512")
BARRIER = Barrier(16, 4000, p50_us=20.0, p99_us=40.0, max_us=90.0, stalled=0.0, runtimes=("libgomp.so.1",))
FREQUENCY = Frequency(("performance",), turbo=False, min_mhz=800, max_mhz=3800)


def healthy(**changed: Any) -> Readings:
    """A machine on which every check is ok, but for what is changed; fields of ``computing`` are changed there."""
    computing = Computing(
        cuda=TORCH_CUDA,
        backends=Backends({"eager": {"cpu": (), "cuda": ()}, "sdpa": {"cpu": (), "cuda": ()}}),
        dtypes={"cpu": ["bf16", "fp32"], "cuda": ["bf16", "fp16"]},
        timers={"cpu": ["wall"], "cuda": ["wall", "events", "graph"]},
        pages=Pages("madvise", 32 * 2**20, 30 * 2**20),
        last_level_cache=480 * 2**20,
        processors=PROCESSORS,
        barrier=BARRIER,
    )
    inner = {name: changed.pop(name) for name in list(changed) if name in Computing.__dataclass_fields__}
    base = Readings(
        software=SOFTWARE,
        driver=DRIVER,
        compiler=Compiler("g++", "/usr/bin/g++", "gcc", "/usr/bin/gcc"),
        counters=Counters(paranoid=1, error=None),
        frequency=FREQUENCY,
        throttling=CpuThrottling(0, 0),
        load=LOAD,
        memory=MEMORY,
        stopwatch=Stopwatch(step_ns=20.0, call_ns=25.0, monotonic=True, source="tsc"),
        disk=Disk("results", 500 * GIB),
        computing=replace(computing, **inner),
    )
    return replace(base, **changed)
