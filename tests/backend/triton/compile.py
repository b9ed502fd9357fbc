"""Runs in a process of its own: compiles the kernels for GPUs that are not here; prints what they take.

``python -m tests.backend.triton.compile NAME...`` with names of ``GPUS`` compiles that GPU's builds, ``quick`` a single
one, and prints a JSON line {build: {what: number}} for each. The backend's own launch code runs, on tensors without
memory, so that the binaries are what a call would make. Procedure: a driver that only names its target, and the tools
that come with triton.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tests.backend.triton.cases import CONTIGUOUS, dense, latent, tied
from variants.backend.triton_split_kv.reading import block, reading
from variants.backend.triton_split_kv.tiles import FAMILIES, choose
from variants.contract.dtype import Dtype
from variants.contract.keep import Window
from variants.protocols import StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged
from variants.view import TORCH_DTYPES

BATCH, CAPACITY = 16, 8192  # full size, so that strides are what they are in use
GUARDED = "mla 128 guarded"
POINTS = {
    "mha": dense(1, 128, 128, 32),
    "gqa": dense(8, 128, 128, 8),
    "gqa d64": dense(8, 64, 64, 8),
    "gqa d80": dense(4, 80, 80, 8),
    "gqa d96": dense(4, 96, 96, 8),
    "gqa d192": dense(8, 192, 192, 4),
    "gqa d256": dense(8, 256, 256, 2),
    "mqa": dense(64, 128, 128, 1),
    "mqa d256": dense(64, 256, 256, 1),
    "mla expanded": dense(1, 192, 128, 128),
    "mla 16": latent(16),
    "mla 32": latent(32),
    "mla 128": latent(128),
    GUARDED: latent(128),
    "gla 16": latent(16, 256, 64, 2),
    "gla 64": latent(64, 256, 64, 2),
    "gta": tied(8, 128, 64, 8),
    "gta 64": tied(64, 128, 64, 1),
    "windowed": dense(8, 128, 128, 8, Window(4096)),
}
GPUS = {"sm_80": 80, "sm_86": 86, "sm_90": 90, "sm_100": 100}  # name -> table
SIXTEEN = ("gqa", "gqa d256", "mla 16", "gla 16")  # points of few rows, unless there are several queries
WIDER = ("mqa", "mqa d256", "mla 32", "mla 128", "gla 64", "gta 64")
PAGED = ("gqa", "mla 128", GUARDED, "gla 64")


@dataclass(frozen=True)
class Build:
    """A point, and how it is stored and asked for."""

    point: str
    page: int = CONTIGUOUS
    queries: int = 1
    dtype: Dtype = Dtype.BF16
    chunk: int = 1024
    codes: Dtype | None = None
    merged: bool = False  # compile the merge as well, which hardly differs between points

    def __str__(self) -> str:
        where = f"page {self.page}" if self.page else "contiguous"
        held = f" over {self.codes.value}" if self.codes else ""
        return f"{self.point}, {where}, Q {self.queries}, {self.dtype.value}{held}, {CAPACITY // self.chunk} splits"


def builds(gpu: str) -> Iterator[Build]:
    """Each tile, with three queries and a page id per token, which takes the most registers; on sm_90 each point.

    sm_86 has smaller tiles of the same kernels: only those that it alone has are compiled.
    """
    yield from coded(gpu)
    if gpu == "sm_86":
        yield from (Build("mla 32"), Build("mla 128", 16, 3))
        return
    if gpu != "sm_90":
        yield from (Build(point, 16, 3, merged=point == "gqa") for point in (*SIXTEEN, *WIDER))
        yield from (Build("mla 128", page) for page in (CONTIGUOUS, 64))
        yield from (
            Build("mla 16"),
            Build("gqa", 64),
            Build("gqa", dtype=Dtype.F32),
            Build("mqa d256", dtype=Dtype.F32),
        )
        return
    yield from (Build(point, merged=point in ("gqa", "mla 128")) for point in (*PAGED, "mla 16", "mha"))
    yield from (Build(point, 16, 3, merged=point == "gla 64") for point in POINTS)
    yield from (Build(point, page, queries) for point in PAGED for page, queries in ((64, 1), (1, 1)))
    yield from (Build(point, 64, chunk=CAPACITY) for point in ("gqa", "mla 128"))
    yield from (Build(point, dtype=Dtype.F32) for point in ("gqa", "mqa d256", "gla 64"))
    yield from (Build("gqa", dtype=Dtype.F16), Build("windowed", 16, 2, merged=True))


def coded(gpu: str) -> Iterator[Build]:
    """Codes: each tile, and on sm_90 also other widths, one query and float32."""
    int8, fp8 = Dtype.INT8, Dtype.FP8_E4M3
    if gpu == "sm_86":
        yield from (Build("mla 16", 16, codes=int8), Build("mla 128", 16, 3, codes=int8))
        return
    for point, codes in (("gqa", fp8), ("mqa d256", int8), ("gla 64", fp8), ("mla 128", int8), ("mla 128", fp8)):
        yield Build(point, 16, 3, codes=codes)
    if gpu == "sm_90":
        yield from (Build(point, 64, codes=int8) for point in ("gta 64", "gqa d192", "mla expanded", "mla 16"))
        yield from (Build(point, 64, codes=fp8) for point in ("gqa d80", "gqa d256", "mqa", "mqa d256", "mla 16"))
        yield from (Build(point, 16, 3, Dtype.F32, codes=fp8) for point in ("gqa", "gla 16"))


class Driver:
    """Names a target and reaches no device."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return int(self.target.arch)  # a key of the compiled binaries

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


def compiled(build: Build, gpu: str) -> dict[str, Any]:
    """Resources of a build's kernels."""
    import triton

    from variants.backend.triton_split_kv import launch

    layout, geometry = POINTS[build.point](build.codes or build.dtype)
    how = reading(geometry)
    assert how is not None
    rows, widest = geometry.group_size * build.queries, max(how.state_block, how.value_block)
    kind = {"guarded": build.point == GUARDED, "coded": build.codes is not None}
    tile = choose(GPUS[gpu], rows, widest, how.loaded, build.dtype, build.page, **kind)
    assert tile is not None
    policy: StoragePolicy = Paged(build.page) if build.page else Contiguous()
    view = policy.allocate(layout, BATCH, CAPACITY, torch.device("meta")).view
    problem = launch.Problem.of(geometry, view, CAPACITY, build.queries)
    triton.runtime.driver.set_active(Driver(int(gpu.removeprefix("sm_"))))
    dtype = TORCH_DTYPES[build.dtype]
    decode = launch.prepare(geometry, view, how, problem, tile, build.chunk, dtype, torch.float32, 132)
    kernels = (decode if build.merged else replace(decode, merge=None)).compiled()
    tile_bits = [tile.tokens * block(s.width) * layout.stream(s.stream).dtype.bits for s in how.spans]
    return {
        "tile": tile.name,
        "rows": tile.rows,
        "limit": FAMILIES[GPUS[gpu]].shared_memory,
        # each load of a tile is written out once per stage: before the loop and, for the last stage, in it
        "copies": tile.stages * sum(bits // (8 * 16 * 32 * tile.warps) for bits in tile_bits),
        "coded": build.codes is not None,
        "kernels": [resources(kernel) for kernel in kernels],  # split, and merge if asked for
    }


def resources(binary: Any) -> dict[str, int]:
    """Registers, spills, shared and tensor memory, and which matrix and copy instructions there are."""
    from triton.backends import nvidia

    tools = Path(nvidia.__path__[0], "bin")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tools / tool, flag, file.name], capture_output=True, text=True, check=True).stdout
            for tool, flag in (("cuobjdump", "--dump-resource-usage"), ("nvdisasm", "-c"))
        )
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert found is not None
    registers, stack, local = map(int, found.groups())
    ptx = binary.asm["ptx"]
    copies = re.findall(r"cp\.async\.c([ag])\.shared\.global [^;]*, 0x([0-9a-f]+)", ptx)
    return {
        "registers": registers,
        "spilled": stack + local + len(re.findall(r"\b(LDL|STL)\b", code)),
        "shared": binary.metadata.shared,
        "tensor_columns": getattr(binary.metadata, "tmem_size", None) or 0,
        "HMMA": len(re.findall(r"\bHMMA\b", code)),
        "HGMMA": len(re.findall(r"\bHGMMA\b", code)),
        "tcgen05": len(re.findall(r"tcgen05\.mma", ptx)),
        "copies": len(re.findall(r"cp\.async\.c[ag]\.shared", ptx)),
        "copies_of_16": copies.count(("g", "10")),
    }


if __name__ == "__main__":
    wanted = (
        {"sm_90": [Build("gqa", 64, merged=True)]}
        if sys.argv[1:] == ["quick"]
        else {g: list(builds(g)) for g in sys.argv[1:]}
    )
    for gpu, of_gpu in wanted.items():
        for build in of_gpu:
            print(json.dumps({f"{gpu}: {build}": compiled(build, gpu)}), flush=True)
