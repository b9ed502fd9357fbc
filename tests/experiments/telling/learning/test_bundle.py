"""The committed run: what its rows were trained on is what the study says, and its page follows from its rows."""

import re
from pathlib import Path

import pytest

from experiments.learned import read
from experiments.telling.learning.results import ENOUGH, obstacle, results, score
from experiments.telling.learning.tell import tell
from tests.builders import ROOT
from tests.experiments.lessons import FAMILY, shipped

BUNDLE = ROOT / "results" / "0004-train-small-cpu"
COMMAND = "python -m experiments.report runs=results/0004-train-small-cpu"


def test_it_is_the_study_as_shipped_and_whole() -> None:
    (told, warnings), study = read(BUNDLE), shipped()
    rows = list(told.values())
    assert warnings == []
    assert {(row.task, row.attention, row.seed) for row in rows} == {
        (task, name, seed) for task in study["tasks"] for name in FAMILY for seed in study["seeds"]
    }
    assert {row.status for row in rows} == {"ok"}
    assert {row.command for row in rows} == {"python -m experiments.run study=train_small"}
    for row in rows:
        assert (row.steps, row.context) == (study[row.task]["steps"], study[row.task]["context"])


def test_variants_saw_the_same_data_with_the_same_number_of_parameters() -> None:
    rows = read(BUNDLE)[0].values()
    assert len({row.data for row in rows}) == 6  # two tasks, three seeds
    for task in ("recall", "text"):
        counts = [row.parameters for row in rows if row.task == task]
        assert max(counts) < 1.01 * min(counts)


def test_mha_solves_recall_with_every_seed_so_that_there_is_a_ranking() -> None:
    found = results(list(read(BUNDLE)[0].values()))
    (recall,) = (it for it in found if it.task == "recall")
    assert recall.baseline is not None
    assert min(score(row) for row in recall.baseline.rows) >= ENOUGH
    assert obstacle(found) is None


@pytest.mark.slow
def test_the_bundle_tells_its_page_again_byte_for_byte(tmp_path: Path) -> None:
    text = (BUNDLE / "report.md").read_text(encoding="utf-8")
    assert tell(BUNDLE, tmp_path / "out", COMMAND).page.read_text(encoding="utf-8") == text
    assert sorted(p.name for p in (BUNDLE / "figures").iterdir()) == sorted(
        p.name for p in (tmp_path / "out" / "figures").iterdir()
    )


def test_numbers_in_the_docs_are_those_of_the_bundle() -> None:
    """Every row of the docs' table stands in the page of the bundle."""
    page = (BUNDLE / "report.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?:mha|gqa|mqa|mla|gla|gta) \|.*$", (ROOT / "docs" / "learning.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 2 * len(FAMILY)
    assert [row for row in rows if row not in page] == []
