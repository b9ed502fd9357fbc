"""The study covers the grid with what matters first; rates and targets follow from latency, bytes and ceilings."""

import itertools

import pytest
import torch

from experiments.gpu_sections import studies as section
from experiments.gpu_sections.rig import Scale
from experiments.gpu_sections.studies import FAMILY, Study, numbers, plans, studied, studies, work_of
from experiments.measuring.statistics import summarise
from tests.experiments.builders import Faulty, array, device
from tests.experiments.gpu_sections.rigs import TINY, rig
from variants.contract.cost import Work

MIDDLE = Study("gqa8", 16, 2, 48)


def test_the_grid_is_whole_and_what_has_a_target_comes_first() -> None:
    made = plans(Scale())
    assert len({study.case for study in made}) == len(made)
    ours = {
        (s.variant, s.heads, s.batch, s.context) for s in made if s.backend == "ours" and not s.options and not s.page
    }
    for variant, batch, context in itertools.product(FAMILY, (1, 16, 32, 128), (1024, 8192, 32768)):
        assert (variant, 32, batch, context) in ours
    assert [study.case for study in made[:4]] == [
        "mla 128 16x8192 ours",
        "mla 128 16x8192 ours guarded=True",
        "mha 32 16x8192 ours",
        "gqa8 32 16x8192 ours",
    ]
    assert {study.backend for study in made} == {"ours", "sdpa", "flex", "eager"}
    assert "gqa8 32 16x8192 ours page 64" in {study.case for study in made}


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """What comes before the grid, which has the same shapes at other sizes."""
    first = plans(TINY)[: 2 + len(FAMILY) + 1 + 2 + 4 + 1]
    monkeypatch.setattr(section, "plans", lambda scale: first)
    return first


def test_every_point_becomes_a_row_on_any_device(head: list[Study]) -> None:
    rows = {row["case"]: row for row in studies(rig())}
    assert list(rows) == [study.case for study in head]
    assert rows["gqa8 16 2x48 ours"]["status"] == "ok"
    assert rows["mla 32 2x48 ours guarded=True"] == {
        "case": "mla 32 2x48 ours guarded=True",
        "status": "refused",
        "reason": "backend numba_split_kv: NumbaSplitKV.__init__() got an unexpected keyword argument 'guarded'",
    }
    sdpa = {case: row["status"] for case, row in rows.items() if " sdpa" in case}
    assert set(sdpa.values()) == {"ok"}
    assert rows["gqa8 16 2x48 eager"]["kernel"] == "eager"
    others = {row["status"] for case, row in rows.items() if "guarded" not in case}
    assert others == {"ok"}


def test_rates_follow_from_the_median() -> None:
    """100 GB/s and 1 TFLOP/s are the roof; 2 MB and 1 GFLOP in 40 us are 50 GB/s and 25 TFLOP/s."""
    found = numbers(rig(), MIDDLE, Work(2_000_000, 10_000_000), summarise(array([[40.0, 40.0], [40.0, 90.0]])))
    assert (found["latency_us"], found["samples"], found["gbps"], found["tflops"]) == (40.0, 4, 50.0, 0.25)
    assert (found["read_share"], found["roofline_fraction"], found["bound"]) == (0.5, 0.5, "memory")
    bound = numbers(rig(), MIDDLE, Work(2_000_000, 40_000_000), summarise(array([[80.0]])))
    assert (bound["roofline_fraction"], bound["bound"]) == (0.5, "compute")


@pytest.mark.parametrize(
    ("study", "us", "target", "met"),
    [
        (Study("mha", 32, 16, 8192), 100.0, "read_share >= 0.85", True),
        (Study("gqa8", 32, 128, 32768), 120.0, "read_share >= 0.85", False),
        (Study("mla", 128, 16, 8192), 139.0, "latency_us < 140", True),
        (Study("mla", 128, 16, 8192), 140.0, "latency_us < 140", False),
        (Study("mla", 128, 16, 8192, options={"guarded": True}), 116.0, "latency_us < 115", False),
        (Study("mla", 128, 32, 8192), 999.0, None, None),
        (Study("mha", 32, 16, 1024), 999.0, None, None),
        (Study("mha", 32, 1, 8192), 999.0, None, None),
        (Study("mha", 32, 16, 8192, "sdpa"), 999.0, None, None),
        (Study("mqa", 32, 16, 8192), 999.0, None, None),
    ],
)
def test_targets(study: Study, us: float, target: str | None, met: bool | None) -> None:
    """8.6 MB at 100 GB/s are 86 us: 100 us is a share of 0.86, 120 us one of 0.72."""
    found = numbers(rig(), study, Work(8_600_000, 1), summarise(array([[us]])))
    assert (found.get("target"), found.get("met")) == (target, met)


def test_samples_go_round_over_as_many_caches_as_keep_them_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rig(device=device(last_level_cache=2**10), scale=Scale(**{**vars(TINY), "replicas": 5}))
    io_bytes = work_of(TINY.layer(16).spec("gqa8"), MIDDLE).io_bytes
    assert io_bytes > 6 * 2**10
    assert studied(made, MIDDLE)["samples"] == 1 * TINY.rounds  # one cache evicts itself
    large = rig(device=device(last_level_cache=2**20), scale=made.scale)
    assert studied(large, MIDDLE)["samples"] == 5 * TINY.rounds
    assert studied(large, MIDDLE)["cold"] is True


def test_what_does_not_fit_is_not_tried() -> None:
    row = studied(rig(device=device(free=10_000)), MIDDLE)
    assert row == {"status": "too_large", "reason": "the cache takes 49152 B; free: 8000 B"}


def test_a_wrong_answer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rig()
    monkeypatch.setattr(made, "backend", lambda kind, options: Faulty(lambda o: o * 1.1))
    row = studied(made, MIDDLE)
    assert (row["status"], "latency_us" in row) == ("wrong", False)


@pytest.mark.parametrize(
    ("error", "status"), [(torch.OutOfMemoryError("no room"), "oom"), (RuntimeError("broken"), "error")]
)
def test_a_point_that_fails_does_not_end_the_study(
    monkeypatch: pytest.MonkeyPatch, head: list[Study], error: Exception, status: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(section, "studied", fail)
    rows = list(studies(rig()))
    assert len(rows) == len(head)
    assert {(row["status"], row["reason"]) for row in rows} == {(status, f"{type(error).__name__}: {error}")}
