"""Huge pages for what is read whole at every step.

With pages of 4 KiB a core that streams through gigabytes spends much of its time looking up where they lie: on a
virtual machine with two levels of page tables a plain sum reached 11 GB/s, and 28 in pages of 2 MiB.
"""

import ctypes
import math
import mmap
import sys
import time
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

HUGE = 2**21  # bytes of a huge page of x86-64 and of arm64 with pages of 4 KiB
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25  # Linux: when next touched, and at once (since 6.1)
MADV_POPULATE_WRITE = 23  # Linux (since 5.14): touch every page now, what it holds stays


def advise(tensor: Tensor) -> Tensor:
    """Ask Linux to keep a large CPU tensor in huge pages, best before it is written, and to touch it; returns it.

    Elsewhere nothing happens; where the administrator has turned huge pages off, it is touched all the same.
    """
    if sys.platform == "linux" and tensor.device.type == "cpu" and tensor.nbytes >= HUGE:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (tensor.data_ptr() + tensor.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
        for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
            _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
        before = time.perf_counter()
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_POPULATE_WRITE)
        _contact.seconds += time.perf_counter() - before
    return tensor


def contact_s() -> float:
    """Seconds that this process has waited in ``advise`` for memory that was new to it.

    0.1 s/GiB where a machine has its memory to itself; where a host gives its virtual machines pages only when they
    touch them, 2 s/GiB and more.
    """
    return _contact.seconds


def reserve(shape: Sequence[int], device: torch.device) -> Tensor:
    """Bytes of a shape, not written yet: on a CPU those that fill a huge page begin with one and are advised.

    Else a slab of 4 MiB would have 2 MiB in a huge page at the most. What lies before and after is never touched.
    """
    size = math.prod(shape)
    if device.type != "cpu" or size < HUGE:
        return torch.empty(tuple(shape), dtype=torch.uint8, device=device)
    room = torch.empty(size + HUGE, dtype=torch.uint8)
    begin = -room.data_ptr() % HUGE
    return advise(room[begin : begin + size]).view(tuple(shape))


class _Contact:
    seconds = 0.0


_contact = _Contact()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
