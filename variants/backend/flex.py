"""PyTorch's FlexAttention, compiled, with a group's query heads packed into rows so that the cache is read once.

The mask reads lengths at every call. Unused slots are read too: their scores are masked, but a value there is
multiplied by 0, and 0 times NaN is NaN.
Source: torch 2.13, torch/nn/attention/flex_attention.py and torch/_inductor/kernel/flex: flex_cpu.py (no log-sum-exp),
flex_decoding.py (fewer than 128 rows; widths rounded up to powers of two; on sm_90 one stage of 64 tokens by default,
which ``kernel_options`` such as {BLOCK_N: 64, num_stages: 3, num_warps: 4} change).
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, one_view_each
from variants.contract.keep import All, Window
from variants.protocols import Attended, Plan, Request
from variants.view import CacheView

BLOCK = 128  # tokens, and rows, of a block of the mask
WIDEST_ON_GPU = 256  # absorbed MLA, 576 wide, would be rounded up to 1024
SHAPES = 256  # that one process may compile; torch itself gives up after 8


@dataclass(frozen=True)
class Flex:
    """``kernel_options``: what ``flex_attention`` hands to its kernel's template; None: its defaults."""

    kernel_options: Mapping[str, Any] | None = field(default=None, hash=False)

    grows: ClassVar[bool] = True
    reads_unused: ClassVar[bool] = True

    def refuses(self, request: Request) -> list[str]:
        """What cannot be compiled here, other storages, codes, and keys or values that are not one strided view."""
        layout, geometry, device = request.layout, request.geometry, request.device
        read = [layout.stream(name) for name in geometry.streams]
        dtypes, keeps = {request.dtype, *(s.dtype for s in read)}, {s.keep for s in read}
        vectors, compiler = torch.backends.cpu.get_cpu_capability(), os.environ.get("CXX", "g++")
        checks = {
            "runs on cpu and cuda only": device not in ("cpu", "cuda"),
            f"compiles C++ and finds no {compiler}: set CXX": device == "cpu" and shutil.which(compiler) is None,
            "compiles for x86 with AVX2 only": device == "cpu" and vectors not in ("AVX2", "AVX512"),
            "compiles with triton, which is not installed": device == "cuda" and find_spec("triton") is None,
            f"reads heads up to {WIDEST_ON_GPU} wide on a GPU": device == "cuda"
            and max(geometry.d_qk, geometry.d_v) > WIDEST_ON_GPU,
            "needs torch 2.9 or newer": tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9),
            f"reads one run of slots per sequence, not {request.storage.kind}": request.storage.kind != "contiguous",
            "takes fp32, bf16 or fp16, queries and cache alike": dtypes not in ({Dtype.F32}, {Dtype.BF16}, {Dtype.F16}),
            "needs one entry per token, and one window": len(keeps) > 1 or not isinstance(read[0].keep, All | Window),
            "needs keys and values that are one strided view (it would have to copy)": not one_view_each(
                layout, geometry
            ),
        }
        return [f"flex {reason}" for reason, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Compile for this cache's shape, which takes seconds. Valid while lengths grow, up to ``max_length``."""
        from torch._dynamo import config
        from torch.nn.attention.flex_attention import AuxRequest, flex_attention

        geometry.check(view.layout)
        key, value = view.joined(geometry.key), view.joined(geometry.value)
        if key is None or value is None:
            raise ValueError("flex cannot read keys or values that are not one strided view; refuses() says so")
        on_cpu, rows = view.lengths.device.type == "cpu", geometry.group_size * queries
        mask = _block_mask(geometry, view, max_length, queries)
        aux = None if on_cpu else AuxRequest(lse=True)
        compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False, fullgraph=True)

        @torch.no_grad()  # compiled once, whatever mode the caller is in
        def attend(q: Tensor) -> Attended:
            packed = rearrange(q, "b q (g h) k -> b g (h q) k", g=geometry.num_kv_heads)
            options = {"scale": geometry.scale, "kernel_options": self.kernel_options, "return_aux": aux}
            got = compiled(packed, key, value, block_mask=mask, **options)
            o, lse = (got, None) if on_cpu else (got[0], rearrange(got[1].lse, "b g (h q) -> b q (g h)", q=queries))
            return rearrange(o, "b g (h q) v -> b q (g h) v", q=queries), lse

        with config.patch(recompile_limit=SHAPES):
            attend(torch.zeros(len(view.lengths), queries, geometry.num_q_heads, geometry.d_qk).to(key))
        kernel = "cpp" if on_cpu else "flex_decoding" if rows < BLOCK else "flex_attention"
        return Plan(attend, f"flex:{kernel}", shows=())


def _block_mask(geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int) -> Any:
    """Blocks of tokens that a step may see while lengths grow from now to ``max_length``, and the mask within them.

    Row r of a kv head is query r mod ``queries``. Blocks that all of these steps see whole come first, without a mask.
    """
    from torch.nn.attention.flex_attention import BlockMask

    lengths, slots = view.lengths, view.slabs[0].shape[2]
    keep = view.layout.stream(geometry.key[0].stream).keep
    window = keep.size if isinstance(keep, Window) else None

    def seen(b: Tensor, h: Tensor, row: Tensor, token: Tensor) -> Tensor:
        position = lengths[b] - queries + row % queries
        past = token <= position
        return past if window is None else past & (token > position - window)

    rows = geometry.group_size * queries
    edge = lengths - queries + 1 - (window or 0)  # tokens before it: seen by every query, or by none if windowed
    start = (edge.clamp(min=0) // BLOCK)[:, None, None].expand(-1, -1, -(-rows // BLOCK)).contiguous()
    blocks = torch.arange(-(-slots // BLOCK), dtype=torch.int32, device=lengths.device)
    indices = (start[..., None] + blocks).clamp(max=len(blocks) - 1)
    whole = start if window is None else torch.zeros_like(start)
    listed = -(-max_length // BLOCK) - start, indices, whole, blocks.expand_as(indices).contiguous()
    sizes: dict[str, Any] = {"BLOCK_SIZE": BLOCK, "seq_lengths": (rows, slots), "compute_q_blocks": False}
    return BlockMask.from_kv_blocks(*listed, mask_mod=seen, **sizes)


plugin = Flex
