"""FlashAttention 2, 3 and 4 over a cache as it lies: [B, T, G, W] or pages [P, S, G, W] are transposed views of it.

Written against Dao-AILab/flash-attention: version 2 at v2.8.3, flash_attn/flash_attn_interface.py, and version 3 at
0251105, hopper/flash_attn_interface.py (``flash_attn_with_kvcache``); version 4 at 0251105,
flash_attn/cute/interface.py (``flash_attn_varlen_func``). What is refused is what they, csrc/flash_attn/flash_api.cpp
and hopper/flash_api.cpp check: of a cache's strides only the last must be 1. The log-sum-exp is natural.
"""

from dataclasses import dataclass
from typing import ClassVar

from variants.backend.flash_attn.versions import VERSIONS, compute_major, installed, takes, takes_apart
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, one_run
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout
from variants.protocols import Plan, Request
from variants.view import CacheView


@dataclass(frozen=True)
class FlashAttn:
    """``version`` 2, 3 or 4; ``num_splits`` of the tokens, 0: the library's choice (1 where version 4 cannot split)."""

    version: int = 3
    num_splits: int = 0

    reads_unused: ClassVar[bool] = True  # version 3 loads whole tiles of values, which get weights of 0

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise ValueError(f"flash_attn version must be one of {', '.join(map(str, VERSIONS))}; got {self.version!r}")

    def refuses(self, request: Request) -> list[str]:
        """What that version does not take, and what it would need a copy for."""
        facts, major = VERSIONS[self.version], compute_major(request.device)
        read = [request.layout.stream(name) for name in request.geometry.streams]
        dtypes = {request.dtype, *(s.dtype for s in read)}
        pages = facts.page_multiple
        checks = {
            f"is not installed: there is no module {facts.module}": not installed(self.version),
            f"needs a GPU whose compute capability starts with one of {facts.majors}": major not in facts.majors,
            "reads one run of slots per sequence, or pages": request.storage.kind not in ("contiguous", "paged"),
            f"reads pages of {pages} tokens: storage.page_size={pages}": (request.storage.page_size or pages) % pages
            != 0,
            "takes bf16 or fp16, queries and cache alike": dtypes not in ({Dtype.BF16}, {Dtype.F16}),
            "needs one entry per token": not all(isinstance(s.keep, All | Window) for s in read),
            **self._checks(request.layout, request.geometry, major),
        }
        return [f"flash_attn {self.version} {reason}" for reason, holds in checks.items() if holds]

    def _checks(self, layout: CacheLayout, geometry: AttentionGeometry, major: int | None) -> dict[str, bool]:
        latent, facts = takes_apart(self.version, geometry), VERSIONS[self.version]
        views = (geometry.key[1:] if latent else geometry.key, geometry.value)
        windowed = any(isinstance(layout.stream(name).keep, Window) for name in geometry.streams)
        return {
            f"takes no keys {geometry.d_qk} and values {geometry.d_v} wide": not takes(self.version, major, geometry),
            f"reads a latent as key and value on compute capability {facts.latent_major} only": latent
            and major != facts.latent_major,
            "has no windows over a latent": latent and windowed and self.version == 4,
            "needs keys and values that are one strided view each (it would have to copy)": not all(
                one_run(layout, spans) for spans in views
            ),
        }

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Cut the views to ``max_length``, so that the library splits for it; lengths are read at every call.

        Raises ValueError if a sequence would be shorter than the step: version 2 calls the log-sum-exp of no keys +inf.
        """
        from variants.backend.flash_attn.calls import plan

        geometry.check(view.layout)
        lengths = view.lengths + (max_length - view.lengths.max())
        if int(lengths.min()) < queries:
            raise ValueError(
                f"flash_attn needs every sequence to hold the step's {queries} new tokens; got {lengths.tolist()}"
            )
        return plan(self.version, self.num_splits, geometry, view, max_length, queries)


plugin = FlashAttn
