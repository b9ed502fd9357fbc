"""numba_split_kv against eager in float64 on the same cache, and faults in its kernels that must be seen."""

import importlib.util
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from tests.builders import dense_geometry
from variants.attention.grouped.spec import GroupedSpec
from variants.backend.eager import Eager
from variants.backend.numba_split_kv import NumbaSplitKV, amx, launch, stream
from variants.backend.numba_split_kv.codes import decode
from variants.backend.numba_split_kv.kernel import digest
from variants.contract.dtype import Dtype
from variants.contract.layout import CacheLayout, Quant, Stream
from variants.contract.model import ModelShape
from variants.contract.plugin import find
from variants.protocols import Request
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged
from variants.storage.ring import Ring
from variants.view import TORCH_DTYPES

BUDGET = {Dtype.F32: 2e-6, Dtype.BF16: 2**-8}  # float32 sums; the rounded output
LENGTHS = (1, 2, 63, 0, 64, 65, 1000)
CPU = torch.device("cpu")
needs_matrix = pytest.mark.skipif(not amx.ready(), reason="this CPU has no matrix unit, or none for this process")


def model(heads, width):
    return ModelShape("tiny", "test", 64, 1, heads, heads, head_dim=width)


def grouped(heads, kv_heads, width, window=None):
    return GroupedSpec.from_model(model(heads, width), num_kv_heads=kv_heads, window=window)


def filled(spec, dtype, policy, lengths):
    cache = policy.allocate(spec.layout(dtype), len(lengths), max(lengths), CPU)
    cache.fill_noise(max(lengths), seed=3)
    if policy.kind != "ring":
        cache.truncate(torch.tensor(lengths, dtype=torch.int32))
    return cache


def error(spec, dtype, policy, lengths, queries=1, chunk=None, backend=NumbaSplitKV, rising=False):
    """Relative error of the output, after checking what must hold exactly; ``rising``: with ever larger scores."""
    cache, geometry = filled(spec, dtype, policy, lengths), spec.geometry()
    if rising:
        key = cache.view.stream("key")
        key.mul_(torch.linspace(0, 12, key.shape[2])[:, None])
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(len(lengths), queries, geometry.num_q_heads, geometry.d_qk, generator=generator)
    q = q.to(TORCH_DTYPES.get(dtype if dtype in BUDGET else Dtype.F32))
    o, lse = backend(chunk).plan(geometry, cache.view, max(lengths), queries).attend(q)
    exact, exact_lse = Eager().plan(geometry, cache.view, max(lengths), queries).attend(q.double())
    assert lse is not None
    assert exact_lse is not None
    seen = exact_lse.isfinite()
    assert torch.equal(lse.isneginf(), ~seen)
    assert (lse.double()[seen] - exact_lse[seen]).abs().max() < 1e-5
    assert not o[~seen].any()
    return ((o.double() - exact).norm() / exact.norm()).item()


SPECS = {
    "group 1": grouped(4, 4, 64),
    "group 3, width 80": grouped(6, 2, 80),
    "group 5, width 96": grouped(5, 1, 96),
    "group 8, width 128": grouped(16, 2, 128),
    "group 12, width 192": grouped(12, 1, 192),
    "group 32, width 256": grouped(32, 1, 256),
    "group 128": grouped(128, 1, 64),
    "GTA": find("attention", "tied").from_model(model(8, 128), num_kv_heads=2),
    "MLA 576/512": find("attention", "latent").from_model(model(5, 128)),
    "GLA": find("attention", "latent").from_model(model(8, 64), num_latent_heads=2),
    "MLA expanded": find("attention", "latent").from_model(model(4, 64), form="expanded"),
}


@pytest.mark.parametrize("dtype", BUDGET)
@pytest.mark.parametrize("name", SPECS)
def test_ragged_lengths_on_every_storage(name, dtype):
    for policy in (Contiguous(), Paged(page_size=1), Paged(page_size=16), Paged(page_size=64)):
        assert error(SPECS[name], dtype, policy, LENGTHS) < BUDGET[dtype], policy


@pytest.mark.parametrize("name", ["group 3, width 80", "MLA 576/512"])
def test_several_queries_see_no_key_of_their_future(name):
    lengths = (3, 64, 65, 300)
    for policy in (Contiguous(), Paged(page_size=16)):
        assert error(SPECS[name], Dtype.F32, policy, lengths, queries=3) < BUDGET[Dtype.F32]


@pytest.mark.parametrize("dtype", BUDGET)
@pytest.mark.parametrize("kv_heads", [1, 8])
def test_sums_are_rescaled_when_a_maximum_grows(kv_heads, dtype):
    """Ever larger scores: many blocks find a maximum that is far above the one before."""
    spec = grouped(32, kv_heads, 64)
    assert error(spec, dtype, Contiguous(), (1000,), rising=True) < 4 * BUDGET[dtype]


@pytest.mark.parametrize("dtype", BUDGET)
@pytest.mark.parametrize("queries", [2, 5])
@pytest.mark.parametrize("name", ["group 5, width 96", "group 32, width 256", "group 128"])
def test_several_queries_of_wide_groups(name, queries, dtype):
    """Rows of one tile see different tokens, and rows that only pad a tile see what the last one sees."""
    assert error(SPECS[name], dtype, Paged(page_size=16), (5, 64, 65, 300), queries) < BUDGET[dtype]


@pytest.mark.parametrize("chunk", [1, 31, 32, 33, 999, 5000])
def test_the_answer_does_not_depend_on_the_split(chunk):
    assert error(SPECS["group 5, width 96"], Dtype.F32, Paged(page_size=16), LENGTHS, chunk=chunk) < BUDGET[Dtype.F32]


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_windows_on_every_storage(kv_heads, queries):
    spec = grouped(4, kv_heads, 64, window=50)
    for policy in (Contiguous(), Paged(page_size=16)):
        assert error(spec, Dtype.F32, policy, (300, 20, 51), queries) < BUDGET[Dtype.F32]
    assert error(spec, Dtype.F32, Ring(queries=queries), (300, 300), queries) < BUDGET[Dtype.F32]


@pytest.mark.parametrize("queries", [1, 3])
def test_windows_of_a_wide_group_of_bfloat16(queries):
    spec = grouped(8, 1, 64, window=50)
    for policy in (Contiguous(), Paged(page_size=16)):
        assert error(spec, Dtype.BF16, policy, (300, 20, 51), queries) < BUDGET[Dtype.BF16]
    assert error(spec, Dtype.BF16, Ring(queries=queries), (300, 300), queries) < BUDGET[Dtype.BF16]


@pytest.mark.parametrize("dtype", BUDGET)
@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_nan_in_a_used_slot_shows(name, dtype, everywhere):
    """In one token of two splits, or in all of them: stale memory must not look like an answer, or like no token."""
    spec = SPECS["group 32, width 256"]
    cache = filled(spec, dtype, Contiguous(), (300,))
    cache.view.stream(name)[0, 0, slice(None) if everywhere else 290] = torch.nan
    q = torch.randn(1, 1, 32, 256, dtype=TORCH_DTYPES[dtype])
    o, lse = NumbaSplitKV(200).plan(spec.geometry(), cache.view, 300).attend(q)
    assert o.isnan().all()
    assert lse is not None
    assert lse.isnan().all() == (name == "key")


def test_lengths_are_read_when_it_runs_not_when_it_is_planned():
    spec = SPECS["group 3, width 80"]
    cache = filled(spec, Dtype.F32, Contiguous(), (300, 300))
    plan = NumbaSplitKV().plan(spec.geometry(), cache.view, 300)
    cache.truncate(torch.tensor([17, 0], dtype=torch.int32))
    q = torch.randn(2, 1, 6, 80)
    exact, _ = Eager().plan(spec.geometry(), cache.view, 300).attend(q)
    assert torch.allclose(plan.attend(q)[0], exact, atol=1e-5)


def request(layout, geometry, device="cpu", dtype=Dtype.F32):
    return Request(geometry, layout, Contiguous(), device, dtype, 1, ragged=True)


def test_it_says_why_it_refuses():
    spec = SPECS["group 1"]
    refuses = NumbaSplitKV().refuses
    assert refuses(request(spec.layout(Dtype.F32), spec.geometry())) == []
    assert refuses(request(spec.layout(Dtype.F32), spec.geometry(), "cuda")) == ["numba_split_kv runs on a CPU only"]
    assert refuses(request(spec.layout(Dtype.BF16), spec.geometry())) == [
        "numba_split_kv reads a cache in the queries' dtype, or codes"
    ]
    assert refuses(request(spec.layout(Dtype.F64), spec.geometry(), dtype=Dtype.F64)) == [
        "numba_split_kv takes fp32 and bf16 queries only"
    ]
    assert refuses(request(spec.layout(Dtype.INT8), spec.geometry())) == []
    key, scale = Stream("key", 1, 8, Dtype.INT8, quant=Quant("s", 8)), Stream("s", 1, 1, Dtype.F32)
    for value in (Stream("value", 1, 8, Dtype.F32), Stream("value", 1, 8, Dtype.FP8_E4M3, quant=Quant("s", 8))):
        assert refuses(request(CacheLayout((key, value, scale)), dense_geometry(1, 1, 8, 8))) == [
            "numba_split_kv needs keys and values coded alike"
        ]
    by_token = Stream("value", 1, 8, Dtype.INT8, quant=Quant("s", 8, axis="tokens"))
    assert refuses(request(CacheLayout((key, by_token, scale)), dense_geometry(1, 1, 8, 8))) == [
        "numba_split_kv decodes int8 and fp8_e4m3 with scales per block of columns"
    ]


@needs_matrix
def test_a_wide_group_of_bfloat16_goes_to_the_matrix_unit():
    names = {}
    for spec, dtype in ((SPECS["group 32, width 256"], Dtype.BF16), (SPECS["group 32, width 256"], Dtype.F32)):
        cache = filled(spec, dtype, Contiguous(), (300,))
        names[dtype] = NumbaSplitKV(256).plan(spec.geometry(), cache.view, 300).kernel
    assert names == {Dtype.BF16: "numba_split_kv[256, matrix unit]", Dtype.F32: "numba_split_kv[256]"}


@pytest.mark.parametrize("name", ["group 32, width 256", "MLA 576/512"])
def test_without_a_matrix_unit_the_answer_is_the_same(name, monkeypatch):
    monkeypatch.setattr(amx, "ready", lambda: False)
    assert error(SPECS[name], Dtype.BF16, Paged(page_size=16), LENGTHS) < BUDGET[Dtype.BF16]


def test_torch_keeps_its_number_of_threads():
    spec = SPECS["group 1"]
    cache = filled(spec, Dtype.F32, Contiguous(), (300,))
    before = torch.get_num_threads()
    NumbaSplitKV().plan(spec.geometry(), cache.view, 300).attend(torch.randn(1, 1, 4, 64))
    assert torch.get_num_threads() == before


def test_codes_of_e4m3_are_all_decoded_exactly():
    """All 256 codes, those for NaN included, one per column and each with another scale."""
    codes = torch.arange(256, dtype=torch.uint8)
    out, at = np.zeros(256, np.float32), np.array([0, 0])
    scales = np.linspace(0.5, 2, 256, dtype=np.float32)
    decode_all(codes.numpy(), at, scales, out)
    exact = codes.view(torch.float8_e4m3fn).float() * torch.from_numpy(scales)
    assert torch.equal(torch.from_numpy(out).nan_to_num(nan=1e9), exact.nan_to_num(nan=1e9))


@numba.njit
def decode_all(codes, at, scales, out):
    decode(codes, at, 0, 1, 256, scales, 1, 1, True, out, 0)


def test_machine_code_is_kept_per_state_of_the_sources(tmp_path):
    """Not per file: what a kernel calls stands in other files, and a change there must not be missed."""
    places = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "called.py").write_text(text)
        places.append(digest(tmp_path))
    assert places[0] == places[2] != places[1]
    assert digest(Path(launch.__file__).parent) in stream.stream.stats.cache_path


MUTANTS = {
    "no rescale": ("block", "sums[out, c] *= rescale", "sums[out, c] *= np.float32(1.0)"),
    "page dropped": ("block", "table[b, min((first + t) // slots, table.shape[1] - 1)]", "table[b, 0]"),
    "mask removed": ("block", "stop = max(min(last + 1, tokens), 0)", "stop = tokens"),
    "a token left out": ("block", "low = oldest + split * chunk", "low = oldest + split * chunk + split"),
    "combine weights dropped": ("combine", "weight = np.float32(math.exp(", "weight = np.float32(1.0 + 0.0 * ("),
    "another head's keys": ("stream", "locate(key_place, table, b, slots, g,", "locate(key_place, table, b, slots, 0,"),
    "one scale for all": ("codes", "builder.add(builder.load(factor), index)", "number(0)"),
    "another head's values": (
        "wide",
        "locate(value_place, table, b, slots, g,",
        "locate(value_place, table, b, slots, 0,",
    ),
    "no rescale on the unit": ("columns", "builder.fmul(load(builder, tile, at), factor)", "load(builder, tile, at)"),
    "total not rescaled": (
        "columns",
        "load(builder, total_at, number(0)), factor)",
        "load(builder, total_at, number(0)), every(1.0))",
    ),
    "mask removed on the unit": ("wide", "range(max(0, min(last + 1, tokens)), upto)", "range(tokens, upto)"),
    "rows that pad are not repeated": ("wide", "r = min(row, rows - 1)", "r = min(row, rows - 2)"),
    "values woven the other way round": ("tiles", "for half in (0, 4)]", "for half in (4, 0)]"),
}
# Where a fault shows: by the mutant's name, or by its file.
F32, BF16 = (Dtype.F32,), (Dtype.BF16,)
WHERE = {"no rescale": F32, "mask removed": F32, "stream": F32, "codes": (Dtype.FP8_E4M3,)}
WHERE |= dict.fromkeys(("wide", "columns", "tiles"), BF16)
SEEDED = [(m, d) for m, (file, *_) in MUTANTS.items() for d in WHERE.get(m, WHERE.get(file, F32 + BF16))]


def is_seen(backend, dtype):
    """Whether the checks above reject what a kernel computes."""
    spec, policy, budget = SPECS["group 8, width 128"], Paged(page_size=16), BUDGET.get(dtype, BUDGET[Dtype.F32])
    try:
        got = [error(spec, dtype, policy, (300, 65), 3, 200, backend, r) for r in {False, dtype in BUDGET}]
    except AssertionError:
        return True
    return max(got) >= budget


def mutated(mutant, folder, monkeypatch):
    """The package with one line of one file changed, as ``mutated.NumbaSplitKV``."""
    file, old, new = MUTANTS[mutant]
    for path in Path(launch.__file__).parent.glob("*.py"):
        source = path.read_text(encoding="utf-8").replace("cache=True", "cache=False")
        assert path.stem != file or source.count(old) == 1
        source = source.replace(old, new) if path.stem == file else source
        (folder / path.name).write_text(source.replace("variants.backend.numba_split_kv", "mutated"), encoding="utf-8")
    place = importlib.util.spec_from_file_location(
        "mutated", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "mutated", module)
    place.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "dtype"), SEEDED)
def test_a_fault_in_a_kernel_is_seen(mutant, dtype, tmp_path, monkeypatch):
    if dtype is Dtype.BF16 and not amx.ready():
        pytest.skip("no matrix unit")
    for name in [name for name in sys.modules if name.startswith("mutated.")]:
        monkeypatch.delitem(sys.modules, name)
    assert not is_seen(NumbaSplitKV, dtype)
    assert is_seen(mutated(mutant, tmp_path, monkeypatch).NumbaSplitKV, dtype)
    for name in [name for name in sys.modules if name.startswith("mutated.")]:
        del sys.modules[name]
