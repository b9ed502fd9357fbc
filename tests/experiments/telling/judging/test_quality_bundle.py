"""The bundle of the quality study: its rows give its report again, and the docs quote nothing else."""

from pathlib import Path

import pytest

from experiments.scored import LOSSES, Scored, read
from experiments.telling.folder import PAGE
from experiments.telling.judging.numbers import judged, original
from experiments.telling.judging.page import tell
from tests.builders import ROOT

BUNDLE = ROOT / "results" / "0003-quality-smollm2"
DOCS = ROOT / "docs" / "quality.md"


@pytest.fixture(scope="module")
def rows() -> list[Scored]:
    found, warnings = read(BUNDLE)
    assert warnings == []
    return list(found.values())


def test_its_rows_give_its_report_again(rows: list[Scored], tmp_path: Path) -> None:
    command = f"python -m experiments.report runs={BUNDLE.relative_to(ROOT)}"
    page, figures = tell(rows, BUNDLE, tmp_path / "told", command)
    assert page.read_text() == (BUNDLE / PAGE).read_text()
    assert [(BUNDLE / "figures" / path.name).is_file() for path in figures] == [True, True]


def test_it_is_whole(rows: list[Scored]) -> None:
    base, found = original(rows), judged(rows)
    assert {it.before.attention for it in found} == {"mha", "gqa", "mqa", "mla"}
    assert all(it.after or it.before.exact for it in found)
    assert {path.stem for path in (BUNDLE / LOSSES).iterdir()} == {row.key for row in rows if row.steps}
    assert len({(row.commit, row.command, row.corpus) for row in rows}) == 1
    assert "-dirty" not in base.commit


def test_exact_variants_lose_nothing_and_training_regains_some(rows: list[Scored]) -> None:
    base = original(rows)
    for it in judged(rows):
        if it.before.exact:
            assert it.before.perplexity == pytest.approx(base.perplexity, rel=1e-5)
        if it.after:
            assert it.after.divergence < it.before.divergence


def test_the_docs_quote_its_table() -> None:
    said = [line for line in DOCS.read_text().splitlines() if line.startswith("| ") and "KL" not in line]
    page = (BUNDLE / PAGE).read_text().splitlines()
    quoted = [line for line in said if line in page and line[2:5] in ("mha", "gqa", "mqa", "mla")]
    assert len(quoted) == len([line for line in page if line[2:5] in ("mha", "gqa", "mqa", "mla")]) > 4
