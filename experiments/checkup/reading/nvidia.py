"""The NVIDIA driver and its GPUs through NVML, which is only asked, never told; and what torch makes of them."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from experiments.checkup.gpu import Driver, Gpu, TorchCuda

MISSING = "nvidia-ml-py is not installed"


def read() -> Driver:
    """What the driver says; its ``error`` where it says nothing."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return Driver(MISSING, installed=os.path.exists("/proc/driver/nvidia/version"))
    return read_with(nvml)


def read_with(nvml: Any) -> Driver:
    """The same from a given pynvml."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        absent = error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return Driver(str(error), installed=not absent)
    try:
        code = _maybe(nvml, lambda: nvml.nvmlSystemGetCudaDriverVersion_v2())
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return Driver(
            error=None,
            version=_maybe(nvml, lambda: _words(nvml.nvmlSystemGetDriverVersion())),
            cuda=None if code is None else (code // 1000, code % 1000 // 10),
            gpus=tuple(_gpu(nvml, handle) for handle in handles),
        )
    except nvml.NVMLError as error:
        return Driver(str(error))
    finally:
        nvml.nvmlShutdown()


def read_torch() -> TorchCuda:
    """What torch was built for and what it sees. Call only where torch can be imported."""
    torch = import_module("torch")
    built = torch.version.cuda
    version = None if built is None else (int(built.split(".")[0]), int(built.split(".")[1]))
    error = None
    if version is not None and not torch.cuda.is_available():
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as failed:
            error = " ".join(str(failed).split())[:200]
    return TorchCuda(version, torch.cuda.device_count() if torch.cuda.is_available() else 0, error)


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    busy = _maybe(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    running = _maybe(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    mode = _maybe(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)) or (0, 0)
    persistence = _maybe(nvml, lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
    return Gpu(
        name=_words(nvml.nvmlDeviceGetName(handle)),
        memory=int(memory.total),
        free=int(memory.free),
        sm_mhz=_maybe(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        max_sm_mhz=_maybe(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        reasons=_maybe(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        temperature=_maybe(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        busy=None if busy is None else busy / 100,
        others=tuple((p.pid, p.usedGpuMemory) for p in running if p.pid != os.getpid()),
        mig=bool(mode[0]),
        persistence=None if persistence is None else bool(persistence),
    )


def _maybe(nvml: Any, ask: Callable[[], Any]) -> Any:
    """An answer, or None where this GPU or driver does not know the question."""
    try:
        return ask()
    except (nvml.NVMLError, AttributeError):
        return None


def _words(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
