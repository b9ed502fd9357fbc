"""Memory whose reading pushes everything else out of the caches."""

import torch

from experiments.measuring.device import Device
from variants.noise import noise_
from variants.pages import advise

EVICTING = 5  # times the last-level cache, between two uses of the same bytes
UNKNOWN_CACHE = 64 * 2**20  # bytes swept where the cache's size cannot be read; rows are warm then
MEMORY_SHARE = 4  # at most a quarter of the free memory
ROW = 4 * 4096  # bytes that a sweep is a multiple of


class Sweep:
    """A buffer of noise, ``times`` the last level or what memory allows, and the reading of it."""

    def __init__(self, device: Device, times: int = EVICTING) -> None:
        self.wanted = _wanted(device, times)
        self.bytes = sweep_bytes(device, times)
        self.buffer = noise_(advise(torch.empty(self.bytes // 4, device=device.torch)), seed=1)

    def __call__(self, already: int = 0) -> int:
        """Read as much of it as is missing where ``already`` so many other bytes were read just now; return that."""
        missing = min(self.bytes, -(-max(0, self.wanted - already) // ROW) * ROW)
        if missing:
            self.buffer[: missing // 4].sum()
        return missing


def sweep_bytes(device: Device, times: int = EVICTING) -> int:
    """Bytes that a sweep made now would take."""
    return min(_wanted(device, times), device.free_memory() // MEMORY_SHARE) // ROW * ROW


def _wanted(device: Device, times: int) -> int:
    return times * (device.last_level_cache or UNKNOWN_CACHE)
