"""numba_split_kv against eager in float64 on the same cache, and faults in its kernels that must be seen."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from tests.builders import dense_geometry
from variants.attention.grouped.spec import GroupedSpec
from variants.backend.eager import Eager
from variants.backend.numba_split_kv import NumbaSplitKV, launch
from variants.contract.layout import CacheLayout, Dtype, Quant, Stream
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


def error(spec, dtype, policy, lengths, queries=1, chunk=None):
    """Relative error of the output, after checking what must hold exactly."""
    cache, geometry = filled(spec, dtype, policy, lengths), spec.geometry()
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(len(lengths), queries, geometry.num_q_heads, geometry.d_qk, generator=generator)
    q = q.to(TORCH_DTYPES[dtype])
    o, lse = NumbaSplitKV(chunk).plan(geometry, cache.view, max(lengths), queries).attend(q)
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
        "numba_split_kv needs queries in the cache's dtype"
    ]
    assert refuses(request(spec.layout(Dtype.F64), spec.geometry(), dtype=Dtype.F64)) == [
        "numba_split_kv reads fp32 and bf16 caches only"
    ]
    codes = CacheLayout(
        (
            Stream("key", 1, 8, Dtype.INT8, quant=Quant("s", 8)),
            Stream("value", 1, 8, Dtype.INT8, quant=Quant("s", 8)),
            Stream("s", 1, 1, Dtype.F32),
        )
    )
    assert "numba_split_kv does not dequantise" in refuses(request(codes, dense_geometry(1, 1, 8, 8)))


MUTANTS = {
    "no rescale": ("total[row, c] *= rescale", "total[row, c] *= np.float32(1.0)"),
    "page dropped": ("table[b, min(position // slots, table.shape[1] - 1)]", "table[b, 0]"),
    "mask removed": ("stop = min(last + row % queries + 1, tokens)", "stop = tokens"),
    "a split left out": ("low = oldest + split * chunk", "low = oldest + split * chunk + split"),
    "another head's keys": ("fetch(key, places[0], page, g, slot", "fetch(key, places[0], page, 0, slot"),
}


def is_seen():
    """Whether the checks above reject what the kernel in place computes."""
    try:
        got = error(SPECS["group 8, width 128"], Dtype.F32, Paged(page_size=16), (300, 65), 3, chunk=64)
    except AssertionError:
        return True
    return got >= BUDGET[Dtype.F32]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_in_the_kernel_is_seen(mutant, tmp_path, monkeypatch):
    source = Path(launch.__file__).with_name("stream.py").read_text(encoding="utf-8")
    old, new = MUTANTS[mutant]
    assert source.count(old) == 1
    place = tmp_path / "mutated_stream.py"
    place.write_text(source.replace(old, new).replace("cache=True", "cache=False"), encoding="utf-8")
    loader = importlib.util.spec_from_file_location("mutated_stream", place)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    monkeypatch.setitem(sys.modules, "mutated_stream", module)
    loader.loader.exec_module(module)
    assert not is_seen()
    monkeypatch.setattr(launch, "stream", module.stream)
    assert is_seen()


@pytest.mark.slow
def test_combine_weights_matter(monkeypatch):
    """Without the weights of the splits the merge is wrong."""

    def unweighted(sums, state, o, lse):
        o[:] = sums.sum(3) / state[..., 1].sum(3)[..., None]
        lse[:] = 0

    monkeypatch.setattr(launch, "combine", unweighted)
    with pytest.raises(AssertionError):
        assert error(SPECS["group 8, width 128"], Dtype.F32, Contiguous(), (300, 65), chunk=64) < BUDGET[Dtype.F32]
