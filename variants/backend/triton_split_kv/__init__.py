"""Split-KV flash-decoding for CUDA in Triton: one kernel for MHA, GQA, MQA, GTA, GLA and MLA.

``reading``: what is loaded for a geometry; ``codes``: where its scales lie. ``tiles``: which tile serves which shape on
which GPU, and how many tokens a split takes. ``kernel`` and ``merge``, made of ``pieces``: device code. ``launch``:
their arguments and what they write. ``decode``: attending.

Importing this needs no triton; planning does. With TRITON_INTERPRET=1, set before triton is first imported, the kernels
run on the CPU: to check them, not to time them.
"""

import importlib.util
import os
from dataclasses import dataclass
from typing import ClassVar

import torch

from variants.backend.triton_split_kv.codes import QUERIES, readable
from variants.backend.triton_split_kv.decode import Decode, ForCodes
from variants.backend.triton_split_kv.reading import Reading, reading
from variants.backend.triton_split_kv.tiles import LARGEST, Tile, ceil_div, choose, family, tokens_per_split
from variants.contract.checks import check_count
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout
from variants.protocols import Plan, Request
from variants.view import DTYPES, TORCH_DTYPES, CacheView

DOTS = (Dtype.BF16, Dtype.F16, Dtype.F32)  # what its products are made of
INTERPRETED = 90  # the interpreter knows no registers; it gets an H100's tiles


@dataclass(frozen=True)
class TritonSplitKV:
    """``chunk``: tokens per split, rounded up to whole tiles; None: by ``tiles.tokens_per_split``.

    ``partials``: dtype in which splits leave their outputs to be merged. ``guarded``: use guarded tiles where there are
    any. Raises ValueError for a chunk below 1 or partials that are no float of at least 16 bits.
    """

    chunk: int | None = None
    partials: str = "fp32"
    guarded: bool = False

    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.chunk is not None:
            check_count("chunk", self.chunk)
        if Dtype.parse(self.partials) not in DOTS:
            raise ValueError(f"partials must be one of {', '.join(d.value for d in DOTS)}; got {self.partials!r}")

    def refuses(self, request: Request) -> list[str]:
        """No triton, or no GPU it is for; gaps, mixed dtypes and odd codes; geometries without a tile."""
        layout, geometry, dtype, queries = request.layout, request.geometry, request.dtype, request.queries
        read, how = [layout.stream(name) for name in geometry.streams], reading(geometry)
        plain, coded = {s.dtype for s in read if not s.quant}, _coded(geometry, layout)
        wanted = {dtype, Dtype.BF16} if coded and dtype is Dtype.F32 else {dtype}
        odd = how is not None and not all(readable(layout, span) for span in how.spans)
        lacks_tile = how is not None and dtype in DOTS and self._tile(geometry, how, queries, dtype, coded) is None
        checks = {
            f"queries of {dtype.value}": dtype not in DOTS,
            f"a cache dtype other than the queries' {dtype.value}": not plain <= wanted,
            f"codes and queries of {dtype.value} (bf16 and fp32 only)": coded and dtype not in QUERIES,
            "codes but int8 and fp8_e4m3 with fp32 scales in the same row, one or one per 128 columns": odd,
            "streams that do not keep every token": not all(isinstance(s.keep, All | Window) for s in read),
            "more than two key spans or more than one value span": how is None,
            f"spans this wide in {dtype.value} (at most {LARGEST} columns, half of that in fp32)": lacks_tile,
        }
        reasons = [f"triton_split_kv cannot do {what}" for what, holds in checks.items() if holds]
        return reasons + _unfit(request.device)

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Compile both kernels and allocate what they write. Every call of ``attend`` returns the same two tensors.

        A cache of codes leaves open what queries are made of: this compiles for bf16, the first fp32 query for fp32.
        """
        geometry.check(view.layout)
        how = reading(geometry)
        if how is None:
            raise ValueError("triton_split_kv cannot read this geometry; refuses() says why")

        def make(dtype: torch.dtype) -> Decode:
            return self._decode(geometry, view, how, max_length, queries, dtype)

        shows = ("kernel:split",) if view.lengths.device.type == "cuda" else None  # the name of the first kernel
        if _coded(geometry, view.layout):
            either = ForCodes(make)
            return Plan(either, f"{either.of(torch.bfloat16).name} for bf16", shows=shows)
        decode = make(view.span(how.state).dtype)
        return Plan(decode, decode.name, shows=shows)

    def _decode(
        self,
        geometry: AttentionGeometry,
        view: CacheView,
        how: Reading,
        max_length: int,
        queries: int,
        dtype: torch.dtype,
    ) -> Decode:
        from variants.backend.triton_split_kv import launch  # triton, only when it is wanted

        problem = launch.Problem.of(geometry, view, max_length, queries)
        tile = self._tile(geometry, how, queries, DTYPES[dtype], _coded(geometry, view.layout), problem.page)
        if tile is None:
            raise ValueError("triton_split_kv has no tile for this geometry; refuses() says why")
        programs = problem.batch * geometry.num_kv_heads * ceil_div(geometry.group_size * queries, tile.rows)
        processors = _processors(view.lengths.device)
        chunk = self.chunk or tokens_per_split(problem.tokens, programs, processors, tile.tokens)
        chunk = ceil_div(chunk, tile.tokens) * tile.tokens
        partials = TORCH_DTYPES[Dtype.parse(self.partials)]
        decode = launch.prepare(geometry, view, how, problem, tile, chunk, dtype, partials, processors)
        decode.warm_up()
        return decode

    def _tile(
        self, geometry: AttentionGeometry, how: Reading, queries: int, dtype: Dtype, coded: bool, page: int = 0
    ) -> Tile | None:
        widest = max(how.state_block, how.value_block)
        rows = geometry.group_size * queries
        return choose(_family() or INTERPRETED, rows, widest, how.loaded, dtype, page, self.guarded, coded)


def _coded(geometry: AttentionGeometry, layout: CacheLayout) -> bool:
    return any(layout.stream(name).quant for name in geometry.streams)


def _interpreted() -> bool:
    """Whether triton will interpret kernels: it reads the variable when it is imported."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def _family() -> int | None:
    """The table of this machine's GPU; None if it has none, or one that is too old, or kernels are interpreted."""
    if _interpreted() or not torch.cuda.is_available():
        return None
    return family(torch.cuda.get_device_capability())


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _unfit(device: str) -> list[str]:
    """Why kernels cannot run on this device of this machine."""
    wanted = "cpu" if _interpreted() else "cuda"
    reasons = [] if importlib.util.find_spec("triton") else ["triton is not installed"]
    if device != wanted:
        reasons.append(f"triton_split_kv runs on {wanted} here, not on {device} (TRITON_INTERPRET=1: on cpu)")
    elif wanted == "cuda" and _family() is None:
        reasons.append("triton_split_kv needs a CUDA GPU of compute capability 8.0 or newer")
    return reasons


plugin = TritonSplitKV
