"""Ask for huge pages as caches do, and look at what came."""

from pathlib import Path

from experiments.checkup.pages import Pages
from experiments.checkup.reading.files import ROOT, chosen, text

ASKED = 32 * 2**20  # bytes


def read(root: Path = ROOT) -> Pages:
    """Allocates and touches ``ASKED`` bytes for a moment. Call only where torch can be imported."""
    import torch

    from variants.pages import advise

    tensor = advise(torch.empty(ASKED, dtype=torch.uint8))
    tensor.fill_(1)
    got = huge_bytes(text(Path("/proc/self/smaps")) or "", tensor.data_ptr(), tensor.data_ptr() + ASKED)
    return Pages(chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"), ASKED, got)


def huge_bytes(smaps: str, start: int, stop: int) -> int | None:
    """Bytes of huge pages in mappings that overlap [start, stop); None if there is none such in ``smaps``."""
    found, inside, seen = 0, False, False
    for line in smaps.splitlines():
        first, *rest = line.split()
        low, dash, high = first.partition("-")
        if dash and not first.endswith(":"):
            inside = int(low, 16) < stop and start < int(high, 16)
            seen = seen or inside
        elif inside and first == "AnonHugePages:":
            found += int(rest[0]) * 1024
    return min(found, stop - start) if seen else None
