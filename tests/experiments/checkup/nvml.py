"""A pynvml of one H200 under an old driver: every question it is asked has one answer."""

from types import SimpleNamespace

ANSWERS = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlSystemGetCudaDriverVersion_v2": 12040,
    "nvmlSystemGetDriverVersion": b"550.54.15",
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": "H200",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150, free=100),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=35),
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=1, usedGpuMemory=None)],
    "nvmlDeviceGetMigMode": [1, 1],
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetClockInfo": 345,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
    "nvmlDeviceGetTemperature": 83,
}


class NvmlError(Exception):
    """NVML's exception, with its code."""

    def __init__(self, value, text="NVML said no"):
        super().__init__(text)
        self.value = value


CONSTANTS = {
    "NVMLError": NvmlError,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_CLOCK_SM": 1,
    "NVML_TEMPERATURE_GPU": 0,
}


class FakeNvml:
    """``unknown``: questions that it does not know; ``init_error``: what ``nvmlInit`` raises. It notes all calls."""

    def __init__(self, unknown=(), init_error=None):
        self.unknown, self.init_error, self.calls = unknown, init_error, []

    def __getattr__(self, name):
        return CONSTANTS[name] if name in CONSTANTS else lambda *given: self._answer(name)

    def _answer(self, name):
        self.calls.append(name)
        if name == "nvmlInit" and self.init_error:
            raise self.init_error
        if name in self.unknown:
            raise NvmlError(3)
        return ANSWERS[name]
