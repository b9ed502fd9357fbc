"""Scopes beyond attend and step: right ones are timed, wrong ones say so, and what cannot be is never tried."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.measuring import textbook, whole
from experiments.measuring.row import Where
from experiments.measuring.scopes import scope_obstacle
from experiments.record import Measurement
from tests.experiments.builders import TINY, Faulty, device, exact, rows_of, series
from variants.attention.grouped.module import GroupedAttention
from variants.attention.latent.module import LatentAttention
from variants.contract.cost import Point
from variants.contract.dtype import Dtype
from variants.contract.scopes import PARTS, scope_work
from variants.storage.cache import Cache

WHOLE = ["prefill", "recompute"]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mha": ("mha", {}),
    "gqa": ("gqa", {}),
    "gqa window": ("gqa", {"window": 24}),
    "gta": ("gta", {}),
    **{f"mla {form}": ("mla", {"form": form}) for form in ("absorbed", "materialized", "expanded")},
}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_prefill_and_recompute_are_measured_and_right(
    variant: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, options = VARIANTS[variant]
    made = series(attention, "eager", options=options, dtype=dtype, scopes=WHOLE, batch=2)
    rows = rows_of(made, monkeypatch)
    assert [(r.scope, r.context, r.status, r.reason) for r in rows] == [
        (scope, context, "ok", None) for context in (16, 64) for scope in WHOLE
    ]
    for row in rows:
        point = Point(2, exact_int(row.context), 1, Dtype.parse(dtype))
        work = scope_work(row.scope, made.spec, made.workload.kv_dtype, point)
        assert (row.io_bytes, row.flops) == (work.io_bytes, work.flops)
        assert row.bandwidth_gbps == work.io_bytes / exact(row.latency_us_p50) / 1e3
        assert "reference=ok" in str(row.audits)
        assert "allocated=ok" in str(row.audits)
        assert exact(row.first_call_us) > 0
        decompressed = row.scope == "prefill" and row.form in ("absorbed", "materialized")
        assert row.kernel == ("eager on decompressed keys and values" if decompressed else "eager")
    assert len({r.key for r in rows}) == 4


@pytest.mark.parametrize("storage", ["paged", pytest.param("ring", marks=pytest.mark.slow)])
def test_they_run_on_other_storages(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"window": 24} if storage == "ring" else {}
    made = series("gqa", "eager", options=options, storage=storage, scopes=WHOLE)
    assert {r.status for r in rows_of(made, monkeypatch)} == {"ok"}


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8_e4m3"])
@pytest.mark.parametrize("attention", ["gqa", "mla"])
def test_a_cache_of_codes_is_allowed_what_codes_cost(
    attention: str, kv_dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(series(attention, "eager", dtype="bf16", kv_dtype=kv_dtype, scopes=WHOLE), monkeypatch)
    assert {r.status for r in rows} == {"ok"}, [r.reason for r in rows]


def wrong(rows: list[Measurement]) -> set[str]:
    """Scopes whose rows say that their answer is wrong, and with what numbers."""
    found = [r for r in rows if r.status == "wrong"]
    assert all("budget" in str(r.reason) and r.latency_us_p50 is None for r in found)
    return {r.scope for r in found}


def test_a_module_that_decodes_rightly_but_not_many_rows_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a prompt are rotated as if they all stood where the first one stands; a single row is right."""
    right = GroupedAttention.query

    def query(self: GroupedAttention, x: Tensor, position: Tensor) -> Tensor:
        return right(self, x, position[:, :1].expand_as(position))

    made = series("gqa", "eager", scopes=["step", *WHOLE])
    exact_copy = textbook.in_float32

    def unspoilt(attention: Any) -> Any:
        copied: Any = exact_copy(attention)
        copied.query = right.__get__(copied)
        return copied

    monkeypatch.setattr(GroupedAttention, "query", query)
    monkeypatch.setattr(textbook, "in_float32", unspoilt)
    assert wrong(rows_of(made, monkeypatch)) == set(WHOLE)


def test_a_kernel_that_is_wrong_for_several_queries_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It attends rightly for one query, so attend and step are measured; of a chunk it forgets who came first."""

    def forget(o: Tensor) -> Tensor:
        return o.flip(1) if o.shape[1] > 1 else o

    made = replace(series("gqa", scopes=["attend", "step", *WHOLE]), backend=Faulty(forget))
    rows = rows_of(made, monkeypatch)
    assert wrong(rows) == set(WHOLE)
    assert {r.scope for r in rows if r.status == "ok"} == {"attend", "step"}


def test_a_prefill_that_does_not_write_all_it_should_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of MLA come from decompressed heads of the whole cache; here the cache keeps the first value twice."""
    write = Cache.write

    def forgetful(self: Cache, entries: Any, position: Tensor) -> None:
        many = position.shape[1] > 1
        write(self, {n: e[:, :1].expand_as(e) if many else e for n, e in entries.items()}, position)

    monkeypatch.setattr(Cache, "write", forgetful)
    assert "prefill" in wrong(rows_of(series("mla", "eager", scopes=["step", *WHOLE]), monkeypatch))


def test_a_cache_filled_behind_the_outputs_back_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs are right, the last step is right, but the oldest token's entry is not what it should be."""
    error = whole.Wholes._content_error
    seen: list[float] = []

    def spoil(self: Any, attention: Any) -> float:
        self.step.cache.view.slabs[0][:, :, 0] = 0
        seen.append(error(self, attention))
        return seen[-1]

    monkeypatch.setattr(whole.Wholes, "_content_error", spoil)
    assert "prefill" in wrong(rows_of(series("gqa", "eager", scopes=["prefill"]), monkeypatch))
    assert min(seen) > 0.01


# the parts of a step


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_are_measured_and_their_bytes_add_up(variant: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attention, options = VARIANTS[variant]
    made = series(attention, "eager", options=options, dtype=dtype, context=16, batch=2, scopes=["step", *PARTS])
    step, *parts = rows_of(made, monkeypatch)
    absorbs = variant == "mla absorbed"
    by = {r.scope: r for r in parts}
    assert {r.scope for r in parts if r.status == "ok"} == {p for p in PARTS if p != "absorb" or absorbs}
    if not absorbs:
        assert by["absorb"].status == "refused"
        assert "nothing to absorb" in str(by["absorb"].reason)
    assert sum(r.io_bytes or 0 for r in parts) == step.io_bytes
    assert sum(r.flops or 0 for r in parts) == step.flops
    alone = [by[p] for p in PARTS if p not in ("attend", "absorb") or (p == "absorb" and absorbs)]
    assert all("parts=ok" in str(r.audits) and r.kernel == "torch" for r in alone)
    if variant != "mla materialized":  # kv_b is multiplied while attending
        assert sum(r.weight_bytes or 0 for r in alone) == made.workload.dtype.bytes(
            sum(m.weights for m in made.spec.matmuls())
        )


def test_a_part_that_is_not_what_the_step_does_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LatentAttention.absorb_query
    monkeypatch.setattr(LatentAttention, "absorb_query", lambda self, q: 2 * right(self, q))
    rows = rows_of(series("mla", "eager", context=16, scopes=["step", *PARTS]), monkeypatch)
    assert wrong(rows) == {"project", "absorb", "append", "output"}


# never tried


def where(scope: str, free: int, context: int = 64, **changes: Any) -> tuple[str, str] | None:
    made = series("mha", changes.pop("backend", "eager"), scopes=[scope], **changes)
    found = scope_obstacle(Where(made, Point(1, context, 1, made.workload.dtype), device(free=free), 1), scope)
    return None if found is None else (found.status, found.reason)


def test_the_workspace_is_refused_by_arithmetic_with_its_sum() -> None:
    """T = 64, H = 4, d = 16, D = 64, fp32; weights 4 x 64 x 64 x 4 = 65536 B, the cache 64 x 2 x 64 x 4 = 32768 B."""
    found = where("prefill", free=1_200_000)
    assert found is None
    status, reason = where("prefill", free=500_000) or ("", "")
    assert status == "too_large"
    held = 65_536 + 32_768  # of one replica: two would take more than a third
    parts = {
        "caches and weights": held,
        "x and y of the prompt": 2 * 64 * 64 * 4,
        "its queries and attended values": 3 * 64 * 64 * 4,
        "its new entries": 2 * 64 * 128 * 4,
        "keys and values in float32": 4 * 64 * 4 * (16 + 16),
        "scores of a chunk": 4 * 4 * 4 * 64 * 64,
        "the reference in float32": 65536 + 3 * 4 * 4 * 64 * 64,
    }
    names = {name: name if name == "caches and weights" else f"{name} (prefill)" for name in parts}
    sums = " + ".join(f"{names[name]} {size} B" for name, size in parts.items())
    assert reason == f"prefill needs {sum(parts.values())} B: {sums}; free: 450000 B"


def test_a_prompt_whose_full_scores_would_take_32_gib_is_planned_in_chunks() -> None:
    model = {**TINY, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    made = series("gqa", model=model, dtype="bf16", context="16k", scopes=["prefill"])
    parts = whole.workspace_bytes("prefill", made, Point(1, 16384, 1, Dtype.BF16))
    assert 32 * 16384**2 * 4 == 32 * 2**30
    assert parts["scores of a chunk"] <= 4 * 2**28


def test_what_a_backend_refuses_of_a_chunk_is_the_scopes_refusal() -> None:
    status, reason = where("prefill", free=2**30, backend="sdpa", options={"window": 8}) or ("", "")
    assert (status, reason) == ("refused", "sdpa cannot do windowed or compressed streams")


def test_a_scope_that_cannot_be_leaves_the_others_of_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "PROVED", 64)
    small = device(free=500_000)
    rows = rows_of(series("mha", "eager", context=64, scopes=["step", "prefill"]), monkeypatch, on=small)
    assert [(r.scope, r.status) for r in rows] == [("step", "ok"), ("prefill", "too_large")]


def exact_int(value: int | None) -> int:
    """The number, which must be there."""
    assert value is not None
    return value
