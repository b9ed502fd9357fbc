"""Cases cover what was asked for; a backend that is wrong, unsteady or broken is a row that says so."""

import pytest
import torch

from experiments.benching.caches import filled, oracle, query
from experiments.gpu_sections import oracle as section
from experiments.gpu_sections.oracle import Case, cases, checked, checks, errors
from experiments.gpu_sections.rig import Scale
from tests.experiments.builders import Faulty
from tests.experiments.gpu_sections.rigs import TINY, rig
from variants.contract.dtype import Dtype
from variants.storage.contiguous import Contiguous

ONE = Case("gqa8", 16, Dtype.BF16, "paged 16", 3)


def test_cases_cover_every_storage_dtype_and_shape() -> None:
    made = cases(Scale())
    assert len(made) == len({case.name for case in made}) == 96
    family = {
        ("mha", 32),
        ("gqa8", 32),
        ("mqa", 32),
        ("gta8", 32),
        ("mla", 32),
        ("gla2", 32),
        ("mla", 128),
        ("gla2", 128),
    }
    for storage in ("contiguous", "paged 1", "paged 16", "paged 64"):
        for queries in (1, 3):
            held = {
                (c.variant, c.heads) for c in made if (c.dtype, c.storage, c.queries) == (Dtype.BF16, storage, queries)
            }
            assert held == family
    for dtype in (Dtype.F16, Dtype.F32):
        assert {(c.variant, c.heads) for c in made if c.dtype is dtype} == family
    assert {0, 1, 64, 65} <= set(Scale().lengths)


def test_the_cpu_kernel_passes_or_refuses_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third one here: all shapes, storages and dtypes; all of them in the door's slow test."""
    third = cases(TINY)[::3]
    monkeypatch.setattr(section, "cases", lambda scale: third)
    rows = list(checks(rig()))
    assert [row["case"] for row in rows] == [case.name for case in third]
    assert {row["status"] for row in rows if " fp16 " in row["case"]} == {"refused"}
    assert {row["status"] for row in rows if " fp16 " not in row["case"]} == {"ok"}
    assert all(row["error"] <= row["budget"] and row["repeats"] for row in rows if row["status"] == "ok")


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section, "cases", lambda scale: [ONE])
    beside = rig(scale=Scale(**{**vars(TINY), "workers": 1}))
    (row,), (plain,) = list(checks(beside)), list(checks(rig()))
    assert {**row, "seconds": 0} == {**plain, "seconds": 0}
    assert row["status"] == "ok"


def spoilt(monkeypatch: pytest.MonkeyPatch, backend: object) -> dict[str, object]:
    monkeypatch.setattr(section, "find", lambda folder, kind: lambda: backend)
    return checked(ONE, TINY, "faulty", "cpu")


def test_a_wrong_backend_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    row = spoilt(monkeypatch, Faulty(lambda o: o * 1.1))
    assert (row["status"], row["error"]) == ("wrong", pytest.approx(0.1, rel=0.1))


def test_stale_output_for_an_empty_sequence_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    row = spoilt(monkeypatch, Faulty(lambda o: torch.where(o == 0, 1e-20, o)))
    assert (row["status"], row["error"]) == ("wrong", float("inf"))


def test_an_answer_that_changes_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    flips = iter([0.0, 1e-3])
    row = spoilt(monkeypatch, Faulty(lambda o: o + next(flips) * (o != 0)))
    assert (row["status"], row["repeats"]) == ("wrong", False)


def test_a_backend_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(o: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA error:\nillegal memory access")

    row = spoilt(monkeypatch, Faulty(fail))
    assert (row["case"], row["status"], row["reason"]) == (
        "gqa8 16 bf16 paged 16 q3",
        "error",
        "RuntimeError: CUDA error: illegal memory access",
    )


def test_errors_are_those_of_the_worst_row() -> None:
    o, lse = torch.tensor([[[[3.0, 4.0]], [[0.0, 0.0]]]]), torch.tensor([[[2.0], [-torch.inf]]])
    assert errors((o, lse), (o, lse)) == (0.0, 0.0)
    off = torch.tensor([[[[3.0, 4.5]], [[0.0, 0.0]]]])
    assert list(errors((off, lse + 0.3), (o, lse))) == pytest.approx([0.1, 0.1])
    assert errors((o, None), (o, lse)) == (0.0, 0.0)
    assert errors((o * torch.nan, lse), (o, lse)) == (float("inf"), 0.0)
    assert errors((o, lse.nan_to_num(neginf=-1e30)), (o, lse)) == (0.0, float("inf"))


def test_the_oracle_sees_ragged_lengths() -> None:
    spec = TINY.layer(16).spec("gqa8")
    geometry = spec.geometry()
    cache = filled(Contiguous(), spec.layout(Dtype.F32), 40, 33, 7, batch=2)
    cache.truncate(torch.tensor([33, 0], dtype=torch.int32))
    o, lse = oracle(geometry, cache.view, 33, query(geometry, Dtype.F32, 7, batch=2))
    assert o[0].abs().sum() > 0
    assert float(o[1].abs().sum()) == 0.0
    assert float(lse[1].max()) == -torch.inf
