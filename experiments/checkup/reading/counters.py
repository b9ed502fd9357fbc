"""Try to open a counter of this process's own cycles, as a profiler would."""

import ctypes
import errno
import os
import platform
import sys
from pathlib import Path

from experiments.checkup.counters import Counters
from experiments.checkup.reading.files import ROOT, number, text

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # numbers of the system call
ATTRIBUTE_BYTES = 64  # perf_event_attr, version 0: type 0 (hardware), config 0 (cycles)
EXCLUDE_KERNEL = 1 << 5


def read(root: Path = ROOT) -> Counters:
    """Whether hardware counters can be opened, and the settings that decide it."""
    params = text(root / "proc/driver/nvidia/params")
    return Counters(
        paranoid=number(root / "proc/sys/kernel/perf_event_paranoid"),
        error=_open_cycles(),
        gpu_admin_only=None if params is None else "RmProfilingAdminOnly: 1" in params,
    )


def _open_cycles() -> str | None:
    """None if it opened, else the name of the error."""
    call = PERF_EVENT_OPEN.get(platform.machine())
    if sys.platform != "linux" or call is None:
        return "no perf events on this system"
    attribute = (ctypes.c_uint64 * (ATTRIBUTE_BYTES // 8))()
    attribute[0] = ATTRIBUTE_BYTES << 32  # type u32, size u32
    attribute[5] = EXCLUDE_KERNEL
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(call, attribute, 0, -1, -1, 0)
    if file < 0:
        return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))
    os.close(file)
    return None
