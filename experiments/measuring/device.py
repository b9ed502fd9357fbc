"""The machine in front of us: what it is, how much memory is free, what its last-level cache holds."""

import platform
import re
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import psutil
import torch

from variants.contract.dtype import Dtype

_COMPUTE = (Dtype.F64, Dtype.F32, Dtype.F16, Dtype.BF16)  # dtypes that torch multiplies everywhere
_VERSIONED = ("torch", "numpy", "triton", "numba")


@dataclass(frozen=True)
class Device:
    """What a row says about its machine. ``last_level_cache`` in bytes, None where it cannot be read."""

    kind: str  # "cpu" or "cuda"
    name: str
    cores: int
    last_level_cache: int | None
    memory: int
    host: str
    versions: str
    commit: str
    uuid: str | None = None  # of a GPU

    @property
    def torch(self) -> torch.device:
        """The torch device."""
        return torch.device(self.kind)

    def refuses(self, dtype: Dtype) -> list[str]:
        """Why this device cannot compute in ``dtype``; empty = it can."""
        if dtype not in _COMPUTE:
            return [
                f"{self.kind} cannot multiply {dtype.value} activations; use {', '.join(d.value for d in _COMPUTE)}"
            ]
        if self.kind == "cuda" and dtype is Dtype.BF16 and torch.cuda.get_device_capability() < (8, 0):
            return [f"{self.name} has no bf16 arithmetic (needs compute capability 8.0); use fp16"]
        return []

    def free_memory(self) -> int:
        """Bytes that can still be allocated here."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        return min(psutil.virtual_memory().available, _cgroup_free())

    def reserved_memory(self) -> int | None:
        """Bytes that torch's allocator holds, pooled ones included; None on a CPU, whose allocator keeps none."""
        return int(torch.cuda.memory_reserved()) if self.kind == "cuda" else None

    def release(self) -> None:
        """Give memory that is no longer used back to the device, where other processes can have it."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait until everything launched has ended; costs nothing on a CPU."""
        if self.kind == "cuda":
            torch.cuda.synchronize()


def find_device(kind: str) -> Device | None:
    """The device called ``auto``, ``cpu``, ``cuda`` or as a GPU's model is (``h200``, ``a100_sxm``).

    None if this machine has no such device.
    """
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return _cpu()
    if not torch.cuda.is_available():
        return None
    device = _cuda()
    return device if kind == "cuda" or is_model(kind, device.name) else None


def is_model(kind: str, name: str) -> bool:
    """Whether a driver's name (``NVIDIA H100 80GB HBM3``) is that of ``h100_sxm``; cards for PCIe are slower ones."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return kind.split("_")[0] in words and not {"pcie", "nvl"} & set(words)


def _cpu() -> Device:
    return Device(
        kind="cpu",
        name=_cpu_name(),
        cores=len(psutil.Process().cpu_affinity())
        if hasattr(psutil.Process, "cpu_affinity")
        else psutil.cpu_count() or 1,
        last_level_cache=_last_level_cache(),
        memory=psutil.virtual_memory().total,
        host=socket.gethostname(),
        versions=_versions(),
        commit=_commit(),
    )


def _cuda() -> Device:
    props = torch.cuda.get_device_properties(0)
    return Device(
        kind="cuda",
        name=props.name,
        cores=props.multi_processor_count,
        last_level_cache=props.L2_cache_size,
        memory=props.total_memory,
        host=socket.gethostname(),
        versions=f"{_versions()} cuda {torch.version.cuda}",
        commit=_commit(),
        uuid=f"GPU-{props.uuid}",
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if match:
            return " ".join(match[1].split())
    return platform.processor() or platform.machine()


def _last_level_cache() -> int | None:
    """Linux: the largest cache of cpu0; macOS: sysctl. None elsewhere, and rows then never claim to be cold."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    if sizes:
        units = {"K": 1024, "M": 1024**2, "G": 1024**3}
        return max(int(s[:-1]) * units[s[-1]] if s[-1] in units else int(s) for s in sizes)
    if platform.system() == "Darwin":
        names = ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize")
        found = [int(text) for name in names if (text := _output("sysctl", "-n", name)).isdigit()]
        return max(found, default=None)
    return None


def _cgroup_free() -> int:
    """Bytes left under the container's limit; a huge number where there is none."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
    except OSError:
        return 1 << 62
    return 1 << 62 if limit == "max" else max(0, int(limit) - int(used))


@cache
def _versions() -> str:
    found = [f"python {platform.python_version()}"]
    for name in _VERSIONED:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found + _huge_pages())


def _huge_pages() -> list[str]:
    """How Linux hands out huge pages, which decides how fast a CPU reads."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return []
    return ["huge pages " + mode.strip("[]") for mode in modes.split() if mode.startswith("[")]


@cache
def _commit() -> str:
    """The project's commit, with ``-dirty`` if files differ from it; its version where it is not a checkout."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        commit = _output("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
        if commit:
            return commit + ("-dirty" if _output("git", "-C", str(root), "status", "--porcelain", "-uno") else "")
    try:
        return f"kvariants {metadata.version('kvariants')}"
    except metadata.PackageNotFoundError:
        return "unknown"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
