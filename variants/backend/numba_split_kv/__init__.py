"""Split-KV flash decoding on a CPU, ours: every span of the family, any storage, the cache read once.

Each (sequence, kv head, run of tokens) is a task of its own; tasks leave unnormalised sums with their maximum and
total, which a second kernel merges by log-sum-exp (Dao et al. 2023, "Flash-Decoding for long-context inference").
"""

from dataclasses import dataclass
from importlib.util import find_spec

from variants.contract.geometry import AttentionGeometry
from variants.contract.layout import All, Dtype, Window
from variants.protocols import Plan, Request
from variants.view import CacheView


@dataclass(frozen=True)
class NumbaSplitKV:
    """``chunk``: tokens per split (None: by the work there is); the answer does not depend on it beyond rounding."""

    chunk: int | None = None

    def refuses(self, request: Request) -> list[str]:
        """Other devices than a CPU, dtypes it does not widen, codes, and entries that are not one per token."""
        read = [request.layout.stream(name) for name in request.geometry.streams]
        dtypes = {stream.dtype for stream in read}
        checks = {
            "numba_split_kv runs on a CPU only": request.device != "cpu",
            "numba is not installed: pip install numba": find_spec("numba") is None,
            "numba_split_kv reads fp32 and bf16 caches only": not dtypes <= {Dtype.F32, Dtype.BF16},
            "numba_split_kv needs queries in the cache's dtype": dtypes != {request.dtype},
            "numba_split_kv does not dequantise": any(stream.quant for stream in read),
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


plugin = NumbaSplitKV
