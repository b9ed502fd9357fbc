"""The Triton backend: interpreted against the oracle, compiled for GPUs that are not here, and what it refuses.

Both run in processes of their own: TRITON_INTERPRET must be set before triton is imported, and a driver is global.
"""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.backend.triton import compile as compiling
from tests.backend.triton.cases import CONTIGUOUS, GROUPS, PARTS, SHAPES, dense, latent, shape, tied
from tests.backend.triton.mutants import MUTANTS
from tests.blocking import not_installed
from tests.builders import ROOT, SPECS, STORAGES, dense_geometry, dense_layout, request
from variants.backend.triton_split_kv import TritonSplitKV
from variants.backend.triton_split_kv.reading import reading
from variants.backend.triton_split_kv.tiles import FAMILIES, choose, family, merged_rows, tokens_per_split
from variants.contract.codes import CODES
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Every, Window
from variants.contract.layout import CacheLayout, Quant, Stream

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def lines(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What a process prints, one JSON object per line, together."""
    command = [sys.executable, "-m", f"tests.backend.triton.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(item for line in done.stdout.splitlines() for item in json.loads(line).items())


@needs_triton
@pytest.mark.parametrize(
    "part", ["quick", *(pytest.param(part, marks=pytest.mark.slow) for part in ("shapes", "storages", "codes"))]
)
def test_interpreted_kernels_match_float64(part):
    """Outputs, log-sum-exp and empty sequences, with NaN in unused slots and in all that the kernels write."""
    errors = lines("interpret", part, TRITON_INTERPRET="1")
    assert list(errors) == [str(case) for case in PARTS[part]]
    assert {case: error for case, error in errors.items() if not error <= 1} == {}


@needs_triton
@pytest.mark.slow
def test_wrong_kernels_are_caught():
    errors = lines("interpret", "mutants", TRITON_INTERPRET="1")
    assert list(errors) == [mutant.name for mutant in MUTANTS]
    assert {name: right for name, (right, _) in errors.items() if not right <= 1} == {}
    assert {name: wrong for name, (_, wrong) in errors.items() if not wrong > 1} == {}


@needs_triton
@pytest.mark.slow
def test_interpreted_it_meets_the_contract():
    """Every attention on every storage, by the tests that all backends meet; in this process it refuses them all."""
    chosen = "triton_split_kv and not match_float64"  # whose shapes are among the cases above
    quiet = (f"-Wignore::{category}" for category in ("RuntimeWarning", "DeprecationWarning"))  # the interpreter's
    command = [sys.executable, "-m", "pytest", "-q", "tests/backend/test_contract.py", "-k", chosen, *quiet]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 3 * 2 * len(SPECS)  # float32, bf16 and fp16; even and ragged; on more than one storage


def test_the_quick_part_covers_every_value_of_every_axis():
    cases = PARTS["quick"]
    names = {case.name for case in cases}
    assert {name.split(" x ")[0] for name in names} >= set(SHAPES)
    assert {int(name.split(" x ")[1]) for name in names if " x " in name} == set(GROUPS)
    assert {case.page for case in cases} >= {CONTIGUOUS, 1, 16, 64}
    assert {case.dtype for case in cases} == {Dtype.BF16, Dtype.F16, Dtype.F32}
    assert {case.codes for case in cases} == {None, *CODES}
    assert {length for case in cases for length in case.lengths} >= {0, 1, 2, 63, 64, 65, 1000}


@needs_triton
@pytest.mark.parametrize("gpu", ["quick", *(pytest.param(g, marks=pytest.mark.slow) for g in compiling.GPUS)])
def test_compiled_kernels_fit_the_gpu(gpu, tmp_path):
    """No spills, memory within the card's, matrix instructions, and all loads of tiles asynchronous and 16 bytes wide.

    That there are as many loads as stages, and as much memory, says that pages do not cost the pipeline its depth.
    """
    builds = lines("compile", gpu, TRITON_CACHE_DIR=str(tmp_path))
    assert len(builds) == (1 if gpu == "quick" else len(list(compiling.builds(gpu))))
    shared: dict[tuple[str, ...], set[int]] = {}
    for name, build in builds.items():
        split = build["kernels"][0]
        single = ", fp32" in name  # for checking, not for speed: its operands pass through registers
        for kernel in build["kernels"]:
            assert kernel["spilled"] == 0, name
            assert kernel["registers"] <= 255, name
            assert kernel["shared"] <= build["limit"], name
            assert kernel["tensor_columns"] <= 512, name
        assert split["HMMA"] + split["HGMMA"] + split["tcgen05"] > 0, name
        if build["rows"] == 64 and not single:
            assert (split["HGMMA"] > 0) == name.startswith("sm_90"), name
            assert (split["tcgen05"] > 0) == name.startswith("sm_100"), name
        if not single:
            # of codes, scales are loaded as well, four bytes at a time
            copies = split["copies_of_16" if build["coded"] else "copies"]
            assert build["coded"] or split["copies"] == split["copies_of_16"], name
            # products of tcgen05 are pipelined as well, which writes loads out again
            assert copies >= build["copies"] if split["tcgen05"] else copies == build["copies"], name
        if build["coded"]:
            continue
        shared.setdefault((name.split(",")[0], name.split(", ")[3], build["tile"]), set()).add(split["shared"])
    assert all(len(sizes) == 1 for sizes in shared.values()), shared


def gpu_like(monkeypatch, capability):
    """As if this machine had one GPU."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


def coded(dtype, block=64, axis="width"):
    """Keys and values as codes, beside their scales."""
    codes = [Stream(name, 2, 64, dtype, quant=Quant(f"{name} scale", block, axis)) for name in ("key", "value")]
    scales = [Stream(f"{name} scale", 2, 64 // block, Dtype.F32) for name in ("key", "value")]
    return CacheLayout((*codes, *scales), rows=(tuple(stream.name for stream in (*codes, *scales)),))


BF16 = Dtype.BF16
PLAIN = replace(request(dense_geometry(4, 2, 64, 64), dense_layout(2, 64, 64, BF16)), device="cuda")
COMPRESSED = CacheLayout(tuple(Stream(n, 2, 64, BF16, Every(4)) for n in ("key", "value")))
WINDOWED = CacheLayout(tuple(Stream(n, 2, 64, BF16, Window(4)) for n in ("key", "value")))
THREE = AttentionGeometry(4, 2, tuple(Span("key", i, i + 16) for i in (0, 16, 32)), (Span("value", 0, 64),), 1.0)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)])
@needs_triton
def test_it_does_every_attention_on_every_storage(monkeypatch, capability):
    gpu_like(monkeypatch, capability)
    backend = TritonSplitKV()
    for spec, storage, dtype in itertools.product(SPECS.values(), STORAGES.values(), (BF16, Dtype.F16, Dtype.F32)):
        unpacked = spec.unpacked() or spec
        point = request(unpacked.geometry(), unpacked.layout(dtype), storage, queries=3, ragged=True)
        assert backend.refuses(replace(point, device="cuda")) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"layout": WINDOWED}, []),
        ({"device": "cpu"}, ["not on cpu"]),
        ({"dtype": Dtype.F64}, ["queries of fp64", "other than the queries' fp64"]),
        ({"dtype": Dtype.F16}, ["other than the queries' fp16"]),
        ({"layout": coded(Dtype.INT8)}, []),
        ({"layout": coded(Dtype.FP8_E4M3), "dtype": Dtype.F32}, []),
        ({"layout": coded(Dtype.INT8), "dtype": Dtype.F16}, ["queries of fp16 (bf16 and fp32 only)"]),
        ({"layout": replace(coded(Dtype.INT8), rows=())}, ["in the same row"]),
        ({"layout": coded(Dtype.INT8, block=32)}, ["one per 128 columns"]),
        ({"layout": coded(Dtype.INT8, axis="tokens")}, ["one per 128 columns"]),
        ({"layout": coded(Dtype.INT4)}, ["int8 and fp8_e4m3"]),
        ({"layout": dense_layout(2, 64, 64, Dtype.FP8_E4M3)}, ["other than the queries' bf16", "int8 and fp8_e4m3"]),
        ({"layout": COMPRESSED}, ["every token"]),
        ({"geometry": THREE}, ["two key spans"]),
        (
            {"layout": dense_layout(2, 640, 640, BF16), "geometry": dense_geometry(4, 2, 640, 640)},
            ["this wide in bf16"],
        ),
        ({"layout": COMPRESSED, "device": "meta"}, ["every token", "not on meta"]),
    ],
)
@needs_triton
def test_refusals_are_all_reasons(monkeypatch, changes, said):
    gpu_like(monkeypatch, (9, 0))
    reasons = TritonSplitKV().refuses(replace(PLAIN, **changes))
    assert len(reasons) == len(said)
    assert all(word in reason for word, reason in zip(said, reasons, strict=True))


def test_wide_float32_is_refused(monkeypatch):
    """Absorbed MLA in float32: its products would spill."""
    gpu_like(monkeypatch, (9, 0))
    for dtype, refused in ((BF16, 0), (Dtype.F32, 1)):
        layout, geometry = latent(8)(dtype)
        reasons = TritonSplitKV().refuses(replace(request(geometry, layout), device="cuda"))
        assert sum("this wide" in reason for reason in reasons) == refused


@pytest.mark.parametrize(("capability", "said"), [(None, "needs a CUDA GPU"), ((7, 5), "8.0 or newer"), ((8, 0), None)])
def test_the_gpu_must_be_there_and_new_enough(monkeypatch, capability, said):
    gpu_like(monkeypatch, capability)
    reasons = TritonSplitKV().refuses(PLAIN)
    assert any("GPU" in reason for reason in reasons) == (said is not None)
    assert said is None or any(said in reason for reason in reasons)


def test_interpreted_it_runs_on_the_cpu_only(monkeypatch):
    gpu_like(monkeypatch, (9, 0))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not any("runs on" in reason for reason in TritonSplitKV().refuses(replace(PLAIN, device="cpu")))
    assert any("not on cuda" in reason for reason in TritonSplitKV().refuses(PLAIN))


def test_without_triton_it_is_found_and_refuses():
    code = """
from tests.backend.test_triton_split_kv import PLAIN
from variants.contract import plugin
print(plugin.find("backend", "triton_split_kv")().refuses(PLAIN))
"""
    blocked = f"{not_installed('triton')}\nimport importlib.util\nfound = importlib.util.find_spec\n"
    blocked += "importlib.util.find_spec = lambda name, *a: None if name == 'triton' else found(name, *a)\n"
    done = subprocess.run([sys.executable, "-c", blocked + code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "triton is not installed" in done.stdout, done.stderr


@pytest.mark.parametrize("changes", [{"chunk": 0}, {"chunk": 1.5}, {"partials": "int8"}, {"partials": "fp63"}])
def test_settings_are_checked(changes):
    with pytest.raises(ValueError, match=r"chunk|partials|dtype"):
        TritonSplitKV(**changes)


@needs_triton
def test_the_import_hook_of_the_tests_leaves_kernels_to_triton():
    """On a machine with a GPU these functions are compiled under the hook; a wrapped one has no source."""
    from variants.backend.triton_split_kv import kernel, merge, pieces

    for function in (kernel.split, merge.merge, pieces.store, pieces.dot, pieces.token_range):
        assert Path(function.fn.__code__.co_filename).parent.name == "triton_split_kv"


class NoOperation(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} ran")


class Recorded:
    """Stands for a kernel: remembers its grids."""

    def __init__(self):
        self.grids = []

    def __getitem__(self, grid):
        return lambda *_, **__: self.grids.append(grid)


@needs_triton
def test_attending_is_two_launches_and_nothing_else(monkeypatch):
    """No tensor operation, so no allocation, copy or wait; and always the same two tensors."""
    from variants.backend.triton_split_kv import launch

    split, merge = Recorded(), Recorded()
    monkeypatch.setattr(launch, "split", split)
    monkeypatch.setattr(launch, "merge", merge)
    layout, geometry = latent(128)(BF16)
    view = STORAGES["contiguous"].allocate(layout, 3, 1000, torch.device("meta")).view
    q = torch.empty(3, 2, 128, 576, dtype=torch.bfloat16, device="meta")
    plan = TritonSplitKV(chunk=256).plan(geometry, view, 1000, queries=2)
    assert plan.kernel == "triton_split_kv:64x64 w8 s2 chunk256"
    with NoOperation():
        first, again = plan.attend(q), plan.attend(q)
    assert first[0] is again[0]
    assert first[1] is again[1]
    assert [tuple(t.shape) for t in first if t is not None] == [(3, 2, 128, 512), (3, 2, 128)]
    assert split.grids == [(4, 4, 3)] * 2  # row blocks, splits, sequences
    assert merge.grids[0] == (3, 32, 4)  # sequences, rows, columns
    with pytest.raises(ValueError, match=r"\[3, 2, 128, 576\]"):
        plan.attend(q[:, :1])
    TritonSplitKV(chunk=1000).plan(geometry, view, 1000, queries=2).attend(q)
    assert (split.grids[2:], len(merge.grids)) == ([(4, 1, 3)], 2)


def read(geometry):
    how = reading(geometry)
    assert how is not None
    return how


def parts(point, dtype=BF16):
    how = read(point(dtype)[1])
    return tuple(
        None if span is None else (span.stream, span.start, span.stop) for span in (how.state, how.tail, how.value)
    )


def test_what_is_loaded():
    """State, tail, value: what lies in both key and value is loaded once."""
    assert parts(dense(8, 128, 128)) == (("key", 0, 128), None, ("value", 0, 128))
    assert parts(dense(8, 192, 128)) == (("key", 0, 128), ("key", 128, 192), ("value", 0, 128))
    assert parts(latent(16)) == (("latent", 0, 512), ("rope", 0, 64), None)
    assert parts(tied(8)) == (("tied", 0, 128), ("rope", 0, 64), None)
    assert read(tied(8)(BF16)[1]).key == Span("tied", 0, 64)
    one = AttentionGeometry(4, 1, (Span("s", 0, 576),), (Span("s", 0, 512),), 1.0)
    assert parts(lambda _: (None, one)) == (("s", 0, 512), ("s", 512, 576), None)
    same = AttentionGeometry(4, 1, (Span("s", 0, 96),), (Span("s", 0, 96),), 1.0)
    assert parts(lambda _: (None, same)) == (("s", 0, 96), None, None)
    second = AttentionGeometry(4, 1, (Span("r", 0, 24), Span("s", 0, 96)), (Span("s", 8, 72),), 1.0)
    assert parts(lambda _: (None, second)) == (("s", 0, 96), ("r", 0, 24), None)
    assert (read(second).q_state, read(second).q_tail, read(second).value_at) == (24, 0, 8)


@pytest.mark.parametrize("cards", FAMILIES)
def test_every_shape_has_a_tile(cards):
    """The whole group in one program up to 64 rows, in equal ones beyond."""
    for name, group, queries, page in itertools.product(SHAPES, GROUPS, (1, 2, 3), (0, 1, 16, 64)):
        how = read(shape(name, group)(BF16)[1])
        widest = max(how.state_block, how.value_block)
        tile = choose(cards, group * queries, widest, how.loaded, BF16, page)
        assert tile is not None
        assert tile.rows in (16, 32, 64)
        assert tile.rows >= min(group * queries, 64) or (cards == 86 and widest == 512)
        single = choose(cards, group * queries, widest, how.loaded, Dtype.F32, page)
        assert (single is None) == (widest == 512)


def test_families_of_gpus():
    assert [
        family(c) for c in ((7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (13, 0))
    ] == [*(None, 80, 86, 80, 86, 90, 100, 100, 86, 86)]


@pytest.mark.parametrize(
    ("tokens", "programs", "chunk"),
    [
        (8192, 32 * 8, 8192),  # GQA-8, batch 32: 256 programs for 132 processors are even enough
        (8192, 16 * 2, 2048),  # MLA of 128 heads, batch 16: four splits make 128
        (32768, 2, 512),  # the same, batch 1
        (131072, 128 * 8, 8192),  # many programs: still short enough for a ragged batch
        (100, 1, 128),
        (1, 1, 64),
    ],
)
def test_tokens_per_split(tokens, programs, chunk):
    assert tokens_per_split(tokens, programs, 132, 64) == chunk


def test_splits_keep_processors_busy():
    for tokens, programs, step in itertools.product(
        (1, 63, 1000, 8192, 131072), (1, 3, 8, 100, 132, 133, 4096), (32, 64)
    ):
        chunk = tokens_per_split(tokens, programs, 132, step)
        splits = -(-tokens // chunk)
        assert chunk % step == 0
        assert splits == 1 or chunk >= min(128, step)
        assert splits <= max(128, -(-tokens // 8192))
        if tokens == 131072 and programs <= 132:
            assert programs * splits >= 0.7 * 132


def test_merged_rows():
    assert [merged_rows(programs, 132) for programs in (1, 132 * 8, 132 * 16, 132 * 64, 10**6)] == [1, 1, 2, 8, 8]
