"""Split-KV flash decoding on a CPU, ours: every span of the family, any storage, the cache read once.

Each (sequence, kv head, run of tokens) is a task of its own; tasks leave unnormalised sums with their maximum and
total, which a second kernel merges by log-sum-exp (Dao et al. 2023, "Flash-Decoding for long-context inference").
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from variants.contract.codes import CODES
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import All, Window
from variants.protocols import Plan, Request
from variants.view import CacheView


@dataclass(frozen=True)
class NumbaSplitKV:
    """``chunk``: tokens per split (None: by the work there is); the answer does not depend on it beyond rounding."""

    chunk: int | None = None

    grows: ClassVar[bool] = True

    def refuses(self, request: Request) -> list[str]:
        """Other devices than a CPU, dtypes it cannot read, and entries that are not one per token."""
        read = [request.layout.stream(name) for name in request.geometry.streams]
        plain, coded = [s for s in read if not s.quant], [s for s in read if s.quant]
        wanted = {Dtype.BF16, Dtype.F32} if coded else {request.dtype}
        odd = any(s.dtype not in CODES or s.quant is None or s.quant.axis != "width" for s in coded)
        checks = {
            "numba_split_kv runs on a CPU only": request.device != "cpu",
            "numba is not installed: pip install numba": find_spec("numba") is None,
            "numba_split_kv takes fp32 and bf16 queries only": request.dtype not in (Dtype.F32, Dtype.BF16),
            "numba_split_kv reads a cache in the queries' dtype, or codes": not {s.dtype for s in plain} <= wanted,
            "numba_split_kv decodes int8 and fp8_e4m3 with scales per block of columns": odd,
            "numba_split_kv needs keys and values coded alike": bool(coded) and not _alike(request),
            "numba_split_kv needs one entry per token": not all(isinstance(s.keep, All | Window) for s in read),
            "numba_split_kv needs values in one span": len(request.geometry.value) > 1,
            "numba_split_kv needs keys in at most two spans": len(request.geometry.key) > 2,
        }
        return [reason for reason, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Compile for these types (cached on disk) and lay out workspace."""
        from variants.backend.numba_split_kv.launch import plan  # numba takes a second to import

        geometry.check(view.layout)
        return plan(geometry, view, max_length, queries, self.chunk)


def _alike(request: Request) -> bool:
    """Whether the first key span and the value are of the same codes, from a block's first column on, and no other."""
    spans = (*request.geometry.key, request.geometry.value[0])
    first, *others, value = (request.layout.stream(span.stream) for span in spans)
    if first.quant is None or value.quant is None or any(stream.quant for stream in others):
        return False
    whole = spans[0].start % first.quant.block == 0 and spans[-1].start % value.quant.block == 0
    return whole and first.dtype is value.dtype


plugin = NumbaSplitKV
