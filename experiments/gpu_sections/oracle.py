"""The backend under test against eager in float32: real widths, every storage, ragged batches, NaN in unused slots."""

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from experiments.benching.caches import filled, oracle, plan, query
from experiments.gpu_sections.rig import Rig, Row, Scale, one_line
from experiments.measuring.prepare import error_budget
from variants.contract.dtype import Dtype
from variants.contract.plugin import find
from variants.decode import Refused
from variants.protocols import Attended, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged
from variants.view import TORCH_DTYPES

SPARE = 37  # slots behind the longest sequence
LSE_BUDGET = 1e-3  # of 1 + |log-sum-exp|: products in float32 of what is in the cache
STORAGES: dict[str, StoragePolicy] = {"contiguous": Contiguous(), **{f"paged {n}": Paged(n) for n in (1, 16, 64)}}


@dataclass(frozen=True)
class Case:
    """One ragged batch: every length of ``scale`` in it, 0 and 1 among them."""

    variant: str
    heads: int
    dtype: Dtype
    storage: str
    queries: int

    @property
    def name(self) -> str:
        """For the row."""
        return f"{self.variant} {self.heads} {self.dtype.value} {self.storage} q{self.queries}"


def cases(scale: Scale) -> list[Case]:
    """bf16 on every storage with one and with three queries; the other dtypes on two storages."""
    few, many = scale.few_heads, scale.many_heads
    shapes = [(v, few) for v in ("mha", "gqa8", "mqa", "gta8", "mla", "gla2")] + [(v, many) for v in ("mla", "gla2")]
    asked = [(Dtype.BF16, storage, q) for storage in STORAGES for q in (1, 3)]
    asked += [(dtype, storage, 1) for dtype in (Dtype.F16, Dtype.F32) for storage in ("contiguous", "paged 64")]
    return [Case(v, heads, dtype, storage, q) for dtype, storage, q in asked for v, heads in shapes]


def checks(rig: Rig) -> Iterator[Row]:
    """A row per case as it ends. Processes side by side, since each case compiles kernels of its own."""
    check = partial(checked, scale=rig.scale, backend=rig.ours, device=rig.device.kind)
    if rig.scale.workers == 0:
        yield from map(check, cases(rig.scale))
        return
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with spawn.Pool(rig.scale.workers) as pool:  # leaving it ends the processes: nothing must run beside a clock
        yield from pool.imap_unordered(check, cases(rig.scale))


def checked(case: Case, scale: Scale, backend: str, device: str) -> Row:
    """One case as a row, whatever happens."""
    started = time.monotonic()
    try:
        row = _check(case, scale, backend, torch.device(device))
    except Refused as refusal:
        row = {"status": "refused", "reason": str(refusal)}
    except Exception as error:
        row = {"status": "error", "reason": one_line(error)}
    return {"case": case.name, **row, "seconds": time.monotonic() - started}


def errors(got: Attended, exact: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Largest relative error of a row of o [B, Q, H, V], and of the log-sum-exps over 1 + their size.

    A row that sees no key must be all zeros with a log-sum-exp of -inf; anything not finite is infinitely wrong.
    """
    o, lse = got
    size, off = exact[0].norm(dim=-1), (o.float() - exact[0]).norm(dim=-1)
    stale = torch.where((o == 0).all(dim=-1), 0.0, torch.inf)
    error = torch.where(size > 0, off / size, stale)
    lse_error = torch.zeros(())
    if lse is not None:
        seen = exact[1].isfinite()
        strays = (lse - exact[1]).abs() / (1 + exact[1].abs())
        lse_error = torch.where(seen, strays, torch.where(lse == exact[1], 0.0, torch.inf))
    worst, lse_worst = (float(e.nan_to_num(nan=torch.inf, posinf=torch.inf).max()) for e in (error, lse_error))
    return worst, lse_worst


def _check(case: Case, scale: Scale, kind: str, device: torch.device) -> Row:
    spec, longest = scale.layer(case.heads).spec(case.variant), max(scale.lengths)
    layout, geometry = spec.layout(case.dtype), spec.geometry()
    lengths = torch.tensor(scale.lengths, dtype=torch.int32, device=device)
    cache = filled(STORAGES[case.storage], layout, longest + SPARE, longest, 7, len(lengths), device)
    cache.truncate(lengths)  # what is forgotten is poisoned
    q = query(geometry, case.dtype, 7, len(lengths), case.queries, device)
    planned = plan(geometry, cache, longest, find("backend", kind)(), case.queries, ragged=True)
    first = _kept(planned.attend(q))
    again = _kept(planned.attend(q))
    same = all(map(_equal, first, again))
    error, lse_error = errors(first, oracle(geometry, cache.view, longest, q))
    budget = error_budget(TORCH_DTYPES[case.dtype])
    right = same and error <= budget and lse_error <= LSE_BUDGET
    numbers = {"error": error, "budget": budget, "lse_error": lse_error, "repeats": same, "kernel": planned.kernel}
    return {"status": "ok" if right else "wrong", **numbers}


def _kept(attended: Attended) -> Attended:
    """By value: a plan may write the same tensors at every call."""
    o, lse = attended
    return o.clone(), None if lse is None else lse.clone()


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Bit for bit, where there is something to compare."""
    return a is None or b is None or torch.equal(a, b)
