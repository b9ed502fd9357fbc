"""Runs in a process of its own: the kernels under Triton's interpreter against the oracle.

``python -m tests.backend.triton.interpret PART`` prints {case: worst error / budget} for every case of a part.
``python -m tests.backend.triton.interpret mutants`` prints {mutant: [error if right, if wrong]}.

TRITON_INTERPRET=1 must be set before triton is first imported. Programs run one after another: no race can show.
"""

import importlib
import importlib.util
import json
import math
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

import variants.backend.triton_split_kv as package
from tests.backend.triton.cases import PARTS, RING, Case
from tests.backend.triton.mutants import MUTANTS, Mutant
from tests.builders import DTYPES, allocate, fill, normal, random_entries
from variants.backend.eager import Eager
from variants.backend.triton_split_kv import TritonSplitKV
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import Window
from variants.contract.layout import CacheLayout
from variants.protocols import KVCache, Request, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged, PagedCache
from variants.storage.ring import Ring
from variants.view import TORCH_DTYPES, CacheView

SPARE = 70  # poisoned slots behind the longest sequence: more than a tile, so that a read too far meets a NaN


def error(case: Case) -> float:
    """The worst error of output and log-sum-exp as a share of its budget: at most 1 if the kernels are right."""
    layout, geometry = case.point(case.codes or case.dtype)
    cache, length = filled(case, layout), case.length
    view = spread(cache.view) if case.far else cache.view
    backend = TritonSplitKV(case.chunk, case.partials, case.guarded)
    reasons = backend.refuses(Request(geometry, layout, cache.policy, "cpu", case.dtype, case.queries, ragged=True))
    assert not reasons, reasons
    q = normal(len(case.lengths), case.queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=DTYPES[case.dtype])
    exact, exact_lse = Eager().plan(geometry, view, length, case.queries).attend(q.double())
    assert exact_lse is not None
    decode: Any = backend.plan(geometry, view, length, case.queries).attend
    decode = decode.of(q.dtype) if case.codes else decode
    for written in decode.written:
        written.fill_(torch.nan)  # what is not written, or read before it is, must show
    o, lse = decode(q)
    assert (o.shape, o.dtype, lse.dtype) == (exact.shape, q.dtype, torch.float32)
    for_o, for_lse = budget(case, geometry, view, q, exact, exact_lse)
    unseen = exact_lse.isneginf()
    if not torch.equal(lse.isneginf(), unseen) or o[unseen].count_nonzero():
        return math.inf
    shares = ((o - exact).abs() / for_o)[~unseen], ((lse - exact_lse).abs() / for_lse)[~unseen]
    return worst(float(s.amax()) for s in shares if s.numel())


def worst(errors: Iterable[float]) -> float:
    """The largest; infinite if any is NaN (``max`` would drop it)."""
    return max((math.inf if math.isnan(e) else e for e in errors), default=0.0)


def budget(
    case: Case, geometry: AttentionGeometry, view: CacheView, q: Tensor, o: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor]:
    """What rounding may do to each number of the output and to its log-sum-exp: first-order error analysis.

    Weights and outputs are rounded to the queries' dtype (and partial outputs to theirs), by one unit in the last place
    because the interpreter truncates bfloat16; all sums are in float32. A score that is off by d changes its weight by
    the factor 1 + d, and is off by a few roundings of the absolute terms it is summed from.
    """
    length, heads = case.length, geometry.num_kv_heads
    k, v = (
        torch.cat([view.read(s, length, torch.float64).nan_to_num(0).expand(-1, heads, -1, -1) for s in spans], dim=-1)
        for spans in (geometry.key, geometry.value)
    )
    grouped = rearrange(q.double(), "b q (g h) k -> b q g h k", g=heads)
    grouped_lse = rearrange(lse, "b q (g h) -> b q g h", g=heads)[..., None]
    seen = visible(case, geometry, view, length)[:, :, None, None]
    scores = geometry.scale * torch.einsum("bqghk,bgtk->bqght", grouped, k)
    terms = geometry.scale * torch.einsum("bqghk,bgtk->bqght", grouped.abs(), k.abs()).where(seen, 0).amax(dim=-1)
    weights = (scores - grouped_lse).exp().where(seen & grouped_lse.isfinite(), 0)
    spread = rearrange(torch.einsum("bqght,bgtv->bqghv", weights, v.abs()), "b q g h v -> b q (g h) v")
    single = torch.finfo(torch.float32).eps
    off = single * (4 * rearrange(terms, "b q g h -> b q (g h)") + 32 + 8 * lse.abs())
    kept = torch.finfo(q.dtype).eps
    partial = torch.finfo(TORCH_DTYPES[Dtype.parse(case.partials)]).eps
    of_o = (kept + partial + off[..., None]) * spread + kept * o.abs()
    return of_o.clamp(min=torch.finfo(torch.float64).tiny), off  # a value of code 0 is 0, and so is its budget


def visible(case: Case, geometry: AttentionGeometry, view: CacheView, length: int) -> Tensor:
    """[B, Q, T]: causal from the bottom right, and within the window."""
    position = (view.lengths[:, None] + torch.arange(-case.queries, 0))[..., None]
    key = view.positions(length)[:, None]
    keep = view.layout.stream(geometry.key[0].stream).keep
    return (key <= position) & (key > position - (keep.size if isinstance(keep, Window) else position + 1))


def filled(case: Case, layout: CacheLayout) -> KVCache:
    """Random tokens below each length, NaN in every other slot, -1 for every page of an empty sequence."""
    policy: StoragePolicy = Ring(case.queries) if case.page == RING else Paged(case.page) if case.page else Contiguous()
    batch, capacity = len(case.lengths), max(case.lengths) + SPARE
    entries, cache = random_entries(layout, batch, capacity), allocate(layout, batch, capacity, policy)
    fill(cache, entries, case.lengths)
    if case.every_code:
        fill_codes(cache.view)
    if isinstance(cache, PagedCache):
        for row in (b for b, length in enumerate(case.lengths) if not length):
            cache.release(row)
    return cache


def fill_codes(view: CacheView) -> None:
    """Every code in turn but e4m3's NaNs, in every slot; scales stay, and are NaN where a slot is not in use."""
    for stream in (s for s in view.layout.streams if s.quant):
        rows = view.stream(stream.name)
        bits = torch.arange(rows.numel()).to(torch.uint8)
        bits[bits.view(torch.float8_e4m3fn).isnan()] = 0
        rows.copy_(bits.view(rows.dtype).view(rows.shape))


def spread(view: CacheView) -> CacheView:
    """The same cache with its pages so far apart that one in use lies 2^31 numbers of two bytes behind the first.

    Its offset overflows an int32. The memory between pages is never touched, so the machine need not have it.
    """
    first_pages = torch.arange(len(view.lengths)) if view.block_table is None else view.block_table[:, 0]
    apart = -(-(2**32) // int(first_pages.max()) // 16) * 16
    slabs = []
    for slab in view.slabs:
        memory = torch.empty(apart * (len(slab) - 1) + slab[0].numel(), dtype=torch.uint8)
        slabs.append(memory.as_strided(slab.shape, (apart, *slab.stride()[1:])).copy_(slab))
    return replace(view, slabs=tuple(slabs))


def mutated(mutant: Mutant, folder: Path) -> ModuleType:
    """The module with its text changed, beside the right one."""
    source = Path(package.__path__[0], f"{mutant.module}.py").read_text()
    assert source.count(mutant.old) == 1, f"{mutant.name}: {mutant.old!r} is there {source.count(mutant.old)} times"
    path = folder / f"{mutant.module}.py"
    path.write_text(source.replace(mutant.old, mutant.new))
    spec = importlib.util.spec_from_file_location(f"{package.__name__}.{mutant.module}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def wrong_by(mutant: Mutant) -> float:
    """The error of a wrong kernel on its witness: every module of the package takes what it took from the wrong one."""
    from variants.backend.triton_split_kv import codes, kernel, launch, merge, pieces  # after TRITON_INTERPRET is set

    users = [vars(module) for module in (package, codes, kernel, launch, merge, pieces)]
    right = vars(importlib.import_module(f"{package.__name__}.{mutant.module}"))
    with tempfile.TemporaryDirectory() as folder:
        made = mutated(mutant, Path(folder))
        taken = {
            (index, name): value
            for index, user in enumerate(users)
            for name, value in user.items()
            if name in vars(made) and user is not right and right.get(name) is value
        }
        for index, name in taken:
            users[index][name] = vars(made)[name]
        vars(package)[mutant.module] = made
        found = error(mutant.witness)
        for (index, name), value in taken.items():
            users[index][name] = value
        vars(package)[mutant.module] = sys.modules[f"{package.__name__}.{mutant.module}"]
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of -inf - -inf and log(0), which the kernels mean
    torch.set_num_threads(1)
    part = sys.argv[1]
    if part == "mutants":
        right = cache(error)
        for mutant in MUTANTS:
            print(json.dumps({mutant.name: [right(mutant.witness), wrong_by(mutant)]}), flush=True)
    else:
        for case in PARTS[part]:
            print(json.dumps({str(case): error(case)}), flush=True)
