"""DeepSeek's FlashMLA: absorbed MLA on Hopper; one latent row per token is read once, as key and as value.

Written against deepseek-ai/FlashMLA at 9241ae3: flash_mla/flash_mla_interface.py (``get_mla_metadata``,
``flash_mla_with_kvcache``) and the checks in csrc/api/dense_decode.h. The log-sum-exp is natural. The calls below also
fit the interface of 2025, whose metadata was computed from the arguments that the newer one ignores.
"""

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from einops import rearrange
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, one_run
from variants.contract.keep import All
from variants.protocols import Attended, Plan, Request
from variants.view import CacheView

PAGE = 64
KEY_WIDTHS, VALUE_WIDTH = (576, 512), 512
HOPPER = (9, 0)


@dataclass(frozen=True)
class FlashMla:
    """Pages of 64 rows, each [latent | rope], values the first 512 columns; bf16 and fp16."""

    def refuses(self, request: Request) -> list[str]:
        """Everything that its dense decode kernel checks, and what it would need a copy for."""
        layout, geometry = request.layout, request.geometry
        read = [layout.stream(name) for name in geometry.streams]
        checks = {
            "flash_mla is not installed: pip install git+https://github.com/deepseek-ai/FlashMLA": _missing(),
            "flash_mla's dense decode runs on Hopper (sm_90a) only": not _on_hopper(request.device),
            f"flash_mla reads pages of {PAGE} tokens: storage=paged storage.page_size={PAGE}": request.storage.page_size
            != PAGE,
            f"flash_mla reads keys {KEY_WIDTHS} wide; these are {geometry.d_qk}": geometry.d_qk not in KEY_WIDTHS,
            f"flash_mla writes {VALUE_WIDTH} value columns; these are {geometry.d_v}": geometry.d_v != VALUE_WIDTH,
            "flash_mla reads values as the first columns of the key": geometry.value != geometry.key[:1],
            "flash_mla needs keys that are one strided view (it would have to copy)": not one_run(layout, geometry.key),
            "flash_mla needs as many rows per token as kv heads": any(s.heads != geometry.num_kv_heads for s in read),
            "flash_mla reads every cached token: no windows or compressed streams": any(
                not isinstance(s.keep, All) for s in read
            ),
            "flash_mla's dense decode does not dequantise": any(s.quant or not s.dtype.is_float for s in read),
            "flash_mla takes bf16 or fp16, queries and cache alike": request.dtype not in (Dtype.BF16, Dtype.F16)
            or any(s.dtype != request.dtype for s in read),
        }
        return [reason for reason, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Compute the tile schedule, which the library does in a first call.

        The schedule is for the lengths that the view has now, all grown alike until the longest is ``max_length``; the
        plan is valid for these. Raises ValueError if a sequence would be shorter than the step: the library calls
        the log-sum-exp of no keys +inf.
        """
        import flash_mla

        geometry.check(view.layout)
        key, table = view.joined(geometry.key), view.block_table
        if key is None or table is None:
            raise ValueError("flash_mla reads paged rows that are one strided view; refuses() says so")
        cache = rearrange(key, "p g s w -> p s g w")
        lengths = view.lengths + (max_length - view.lengths.max())
        if int(lengths.min()) < queries:
            raise ValueError(f"flash_mla needs every sequence to hold the {queries} new tokens; got {lengths.tolist()}")
        rows = queries * geometry.group_size
        schedule = flash_mla.get_mla_metadata(lengths, rows, geometry.num_kv_heads)

        def run(q: Tensor, cached: Tensor) -> Attended:
            o, lse = flash_mla.flash_mla_with_kvcache(
                q,
                cache,
                table,
                cached,
                geometry.d_v,
                *schedule,
                softmax_scale=geometry.scale,
                causal=queries > 1,
            )
            return o, rearrange(lse, "b h q -> b q h")

        run(torch.zeros(len(lengths), queries, geometry.num_q_heads, geometry.d_qk).to(cache), lengths)
        return Plan(lambda q: run(q, view.lengths), "flash_mla:dense_decode", shows=())


def _missing() -> bool:
    return find_spec("flash_mla") is None


def _on_hopper(device: str) -> bool:
    return device == "cuda" and torch.cuda.is_available() and torch.cuda.get_device_capability() == HOPPER


plugin = FlashMla
