"""FlashInfer's paged decode: MHA, GQA and MQA by one wrapper, absorbed MLA by another.

Written against flashinfer-ai/flashinfer 0.6.18 at fb28d72: flashinfer/decode.py
(``BatchDecodeWithPagedKVCacheWrapper``), flashinfer/mla/_core.py (``BatchMLAPagedAttentionWrapper``) and the checks in
csrc/batch_decode.cu. Several new tokens per step of grouped attention need 0.6.15 (``q_len_per_req``).
"""

from dataclasses import dataclass
from importlib.util import find_spec

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, one_run
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout
from variants.protocols import Plan, Request
from variants.view import CacheView

HEAD_WIDTHS = (64, 128, 256)
LATENT_AND_ROPE = (512, 64)


@dataclass(frozen=True)
class FlashInfer:
    """``backend``: which of its own kernels the library takes (auto, fa2, fa3)."""

    backend: str = "auto"

    def refuses(self, request: Request) -> list[str]:
        """What the wrappers do not take, and what they would need a copy for."""
        layout, geometry = request.layout, request.geometry
        read = [layout.stream(name) for name in geometry.streams]
        dtypes = {request.dtype, *(s.dtype for s in read)}
        checks = {
            "flashinfer is not installed: pip install flashinfer-python": find_spec("flashinfer") is None,
            "flashinfer runs on CUDA only": request.device != "cuda",
            "flashinfer reads pages: storage=paged": request.storage.kind != "paged",
            "flashinfer takes bf16 or fp16, queries and cache alike": dtypes not in ({Dtype.BF16}, {Dtype.F16}),
            "flashinfer needs one entry per token": not all(isinstance(s.keep, All | Window) for s in read),
            "flashinfer needs a row per token and kv head": any(s.heads != geometry.num_kv_heads for s in read),
            **(_latent_checks if geometry.shares_state else _grouped_checks)(layout, geometry),
        }
        return [reason for reason, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Schedule on the host and copy the page table in the library's form.

        Valid for the lengths that the view has now, all grown alike until the longest is ``max_length``: the kernels
        read a copy of them. Raises ValueError if a sequence would be shorter than the step.
        """
        from variants.backend.flashinfer.wrappers import grouped, latent

        geometry.check(view.layout)
        lengths = (view.lengths + (max_length - view.lengths.max())).cpu()
        if int(lengths.min()) < queries:
            raise ValueError(
                f"flashinfer needs every sequence to hold the step's {queries} new tokens; got {lengths.tolist()}"
            )
        return (latent if geometry.shares_state else grouped)(self.backend, geometry, view, lengths, queries)


def _grouped_checks(layout: CacheLayout, geometry: AttentionGeometry) -> dict[str, bool]:
    widths = (geometry.d_qk, geometry.d_v)
    runs = [one_run(layout, spans) for spans in (geometry.key, geometry.value)]
    rows = {run and layout.slabs()[run.slab].row_bytes for run in runs}
    return {
        f"flashinfer takes equal head widths of {HEAD_WIDTHS}; these are {widths}": widths
        not in [(width, width) for width in HEAD_WIDTHS],
        "flashinfer needs keys and values that are each one strided view (it would have to copy)": None in rows,
        "flashinfer reads keys and values by the same strides; these rows differ": len(rows - {None}) > 1,
    }


def _latent_checks(layout: CacheLayout, geometry: AttentionGeometry) -> dict[str, bool]:
    widths = tuple(span.width for span in geometry.key)
    windowed = any(isinstance(layout.stream(name).keep, Window) for name in geometry.streams)
    return {
        "flashinfer's MLA reads one latent head": geometry.num_kv_heads != 1,
        f"flashinfer's MLA reads latent and rope of {LATENT_AND_ROPE}; these are {widths}": widths != LATENT_AND_ROPE,
        "flashinfer's MLA takes the whole latent as the value": geometry.value != geometry.key[:1],
        "flashinfer's MLA has no windows": windowed,
    }


plugin = FlashInfer
