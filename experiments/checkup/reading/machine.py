"""The whole machine in one look."""

from pathlib import Path

from experiments.checkup.examine import Computing, Readings
from experiments.checkup.reading import compiler, counters, disk, frequency, load, memory, nvidia, software, stopwatch

TIMERS = ("wall", "events", "graph")


def read(results: Path) -> Readings:
    """Takes a few seconds. Other load is sampled first, before anything of ours keeps the CPUs busy."""
    busy, heat = load.read()
    installed = software.read()
    return Readings(
        software=installed,
        driver=nvidia.read(),
        compiler=compiler.read(),
        counters=counters.read(),
        frequency=frequency.read(),
        throttling=heat,
        load=busy,
        memory=memory.read(),
        stopwatch=stopwatch.read(),
        disk=disk.read(results),
        computing=None if installed.torch_error else read_computing(),
    )


def read_computing() -> Computing:
    """What only torch can tell, and what only runs with it."""
    import torch

    from experiments.checkup.reading import backends, barrier, pages, processors
    from experiments.measuring.device import find_device
    from experiments.measuring.timing import timer_reasons
    from variants.contract.dtype import Dtype

    found = {kind: device for kind in ("cpu", "cuda") if (device := find_device(kind)) is not None}
    plain = (Dtype.BF16, Dtype.F16, Dtype.F32, Dtype.F64)
    return Computing(
        cuda=nvidia.read_torch(),
        backends=backends.read(list(found)),
        dtypes={kind: [d.value for d in plain if not device.refuses(d)] for kind, device in found.items()},
        timers={kind: [t for t in TIMERS if not timer_reasons(t, kind)] for kind in found},
        pages=pages.read(),
        last_level_cache=found["cpu"].last_level_cache,
        processors=processors.read(found["cpu"].name, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()),
        barrier=barrier.read(),
    )
