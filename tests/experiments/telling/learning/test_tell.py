"""The page on trainings: what it says, what it draws, and that it is written whole or not at all."""

import re
from pathlib import Path

import pytest

from experiments.door import Composed
from experiments.learned import LEARNED, append
from experiments.report import report
from experiments.telling.learning.tell import tell
from experiments.telling.markdown import escape
from tests.experiments.lessons import training

RANKED = "mla (kv_lora_rank 24)"


def filled(folder: Path, best: float = 0.99) -> Path:
    for seed in range(3):
        for name, lower in (("mha", 0.0), (RANKED, 0.1)):
            at = best - lower - seed / 1000
            append(folder, training(name, at, seed=seed))
            append(folder, training(name, 2 + at, seed=seed, task="text", pairs=None))
    return folder


def test_the_page_says_the_ranking_chance_and_every_figure(tmp_path: Path) -> None:
    told = tell(filled(tmp_path / "runs"), tmp_path / "out", "again")
    text = told.page.read_text()
    assert f"recall, by recall accuracy: {escape(RANKED)} worse than mha." in text
    assert "| mha | 512 | 86,336 | 128 | 0.9890 [0.9865, 0.9915] |" in text
    assert "[-0.1000, -0.1000] | 0 of 3 |" in text
    assert "guess among all values: 3.1 %. One that finds the values and not the right one: 25 %." in text
    images = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert images == ["figures/learned.png", "figures/curves.png"]
    assert sorted(p.name for p in (tmp_path / "out" / "figures").iterdir()) == [
        "curves.png", "curves.svg", "learned.png", "learned.svg",
    ]  # fmt: skip
    assert "by recall accuracy" in told.summary


def test_a_task_too_hard_is_drawn_and_not_ranked(tmp_path: Path) -> None:
    text = tell(filled(tmp_path / "runs", best=0.6), tmp_path / "out", "again").page.read_text()
    assert "No ranking: recall is too hard at these settings: mha reaches 59.8%" in text
    assert "worse than" not in text


def test_the_report_door_knows_trainings_by_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = filled(tmp_path / "runs")
    values = {"runs": str(runs), "out": str(tmp_path / "out"), "report": {}}
    for _ in range(2):  # over its own earlier report
        assert report([Composed(values, {})], "again") == 0
    assert f"report: {tmp_path}/out/report.md" in capsys.readouterr().out


def test_no_readable_training_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / LEARNED).write_text("{\n")
    with pytest.raises(ValueError, match=r"at least one readable training; it has none; the first: .*:1: skipped"):
        tell(tmp_path, tmp_path / "out", "again")
    assert not (tmp_path / "out").exists()
