"""The NVIDIA GPUs of a machine as its driver tells of them, and whether torch can use them."""

from dataclasses import dataclass

from experiments.checkup.check import Check, size

LITTLE = 2 * 2**30  # bytes: below this a GPU holds few points


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``reasons``: NVML's bits of why its clock is not higher. ``others``: (pid, bytes) of other processes."""

    name: str
    memory: int
    free: int
    sm_mhz: int | None = None
    max_sm_mhz: int | None = None
    reasons: int | None = None
    temperature: int | None = None
    busy: float | None = None
    others: tuple[tuple[int, int | None], ...] = ()
    mig: bool = False
    persistence: bool | None = None


@dataclass(frozen=True)
class Driver:
    """``error``: why NVML does not answer (None: it does). ``cuda``: the newest CUDA that the driver knows."""

    error: str | None
    installed: bool = True
    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class TorchCuda:
    """``built_for``: the CUDA of torch's build, None for a build without. ``devices`` that torch sees, or its error."""

    built_for: tuple[int, int] | None
    devices: int
    error: str | None = None


def check(driver: Driver, torch: TorchCuda) -> list[Check]:
    """Whether torch can use a GPU, then what hinders each one."""
    return [_usable(driver, torch), *(found for gpu in driver.gpus for found in _hindrances(gpu))]


def _usable(driver: Driver, torch: TorchCuda) -> Check:
    names = ", ".join(gpu.name for gpu in driver.gpus)
    if torch.devices:
        return _seen(driver, torch, names)
    if not driver.installed:
        advice = "rows with device=cuda are refused here; run `python -m experiments.gpu` where there is a GPU"
        return Check("cuda", "note", "no NVIDIA driver", advice)
    if driver.error is not None:
        advice = "mend the driver (after an update: reboot); `nvidia-smi` must answer"
        return Check("cuda", "problem", f"the driver does not answer: {driver.error}", advice)
    if not driver.gpus:
        return Check(
            "cuda",
            "note",
            "a driver without a GPU",
            "let the container or job have a GPU: --gpus, CUDA_VISIBLE_DEVICES",
        )
    if torch.built_for is None:
        return Check("cuda", "problem", f"{names}; torch is built without CUDA", "install a CUDA build of torch")
    if driver.cuda and driver.cuda[0] < torch.built_for[0]:
        return Check("cuda", "problem", _versions(driver, torch), _newer(driver, torch))
    why = torch.error or "torch sees no device"
    return Check(
        "cuda", "problem", f"{names}; {why}", "look at CUDA_VISIBLE_DEVICES, and at what torch.cuda.init() says"
    )


def _seen(driver: Driver, torch: TorchCuda, names: str) -> Check:
    if driver.cuda and torch.built_for and driver.cuda[0] < torch.built_for[0]:
        return Check("cuda", "problem", _versions(driver, torch), _newer(driver, torch))
    if driver.cuda and torch.built_for and driver.cuda < torch.built_for:
        advice = "works, but code compiled at run time may not load: update the driver if a kernel says so"
        return Check("cuda", "note", _versions(driver, torch), advice)
    said = f"{names or torch.devices}; " + _versions(driver, torch)
    if driver.error is not None:
        advice = "pip install nvidia-ml-py: without it clocks, throttling and other processes cannot be read"
        return Check("cuda", "note", f"{said}; {driver.error}", advice)
    return Check("cuda", "ok", said)


def _hindrances(gpu: Gpu) -> list[Check]:
    found = []
    if gpu.mig:
        advice = "rows name the whole GPU: say in your notes that a slice was measured"
        found.append(Check(f"{gpu.name}, partition", "note", "MIG is on: a slice of the bandwidth", advice))
    if gpu.free < LITTLE:
        said = f"{size(gpu.free)} of {size(gpu.memory)} free"
        found.append(Check(f"{gpu.name}, memory", "problem", said, "end what holds it: `nvidia-smi` lists processes"))
    if gpu.persistence is False:
        advice = "`nvidia-smi -pm 1` (as root), else the first call of each process waits for the driver"
        found.append(Check(f"{gpu.name}, persistence", "note", "persistence mode is off", advice))
    return found


def _versions(driver: Driver, torch: TorchCuda) -> str:
    known = f"CUDA {_dotted(driver.cuda)}" if driver.cuda else "unknown CUDA"
    built = f"CUDA {_dotted(torch.built_for)}" if torch.built_for else "no CUDA"
    return f"driver {driver.version or 'unknown'} for {known}, torch built for {built}"


def _newer(driver: Driver, torch: TorchCuda) -> str:
    assert driver.cuda is not None
    return (
        f"update the NVIDIA driver to one for CUDA {_dotted(torch.built_for)} or newer, or install a torch built for "
        f"CUDA {driver.cuda[0]} (index cu{driver.cuda[0]}{driver.cuda[1]} or lower)"
    )


def _dotted(version: tuple[int, int] | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "none"
