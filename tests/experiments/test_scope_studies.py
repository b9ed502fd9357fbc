"""The studies of whole prompts and of a step's parts, in small, from the command line to the report."""

import pytest

from experiments import report
from experiments.record import Measurement
from experiments.records import load
from experiments.run import main
from tests.experiments.builders import SMALL, Street

FAMILY = ("gqa", "mha", "mla", "mqa")


def study(street: Street, name: str, *arguments: str) -> tuple[list[Measurement], str]:
    """Rows of a study in small, and its report."""
    answer = street.knock(main, f"study={name}", *SMALL, *arguments)
    assert answer.code == 0, answer
    told = street.knock(report.main, f"runs=results/runs/{name}")
    assert told.code == 0, told
    page = street.folder / "results" / "reports" / name / "report.md"
    return list(load(street.folder / "results").rows), page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_the_cache_saves(street: Street) -> None:
    rows, page = study(street, "what_the_cache_saves", "workload.context=[16,32,64]")
    assert {(r.attention, r.scope, r.context) for r in rows if r.status == "ok"} == {
        (a, s, c) for a in FAMILY for s in ("step", "recompute", "prefill") for c in (16, 32, 64)
    }
    assert "### What the cache saves" in page
    assert "| variant | prefix | step | recompute | the cache saves | prefill |" in page
    assert "| variant | scope | a, us | b, us/token | c, us/token^2 |" in page
    assert "| variant | scope | 16 to 32 | 32 to 64 |" in page
    figures = {p.name for p in (street.folder / "results/reports/what_the_cache_saves/figures").glob("*.png")}
    assert {"saving-step.png", "saving-added.png"} <= figures


@pytest.mark.slow
def test_step_parts(street: Street) -> None:
    rows, page = study(street, "step_parts", "workload.context=32", "workload.batch=[1,3]")
    assert {(r.batch, r.attention, r.scope) for r in rows if r.status == "ok"} == {
        (b, a, s)
        for b in (1, 3)
        for a in FAMILY
        for s in ("step", "project", "absorb", "append", "attend", "output")
        if s != "absorb" or a == "mla"
    }
    assert {(r.attention, r.scope) for r in rows if r.status == "refused"} == {(a, "absorb") for a in FAMILY[:2]} | {
        ("mqa", "absorb")
    }
    assert page.count("### Where a step's time and bytes go in setting") == 2
    assert page.count("absorb of mha, gqa, mqa: there is nothing to absorb") == 2
    assert "there is nothing to absorb" not in page.split("### Gaps")[1]  # the sections say it
    figures = {p.name for p in (street.folder / "results/reports/step_parts/figures").glob("*-parts.png")}
    assert len(figures) == 2
