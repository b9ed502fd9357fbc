"""A report folder is whole or not there, and never takes the place of anything else."""

from pathlib import Path

import pytest

from experiments.telling.folder import report_folder


def _write(target: Path, text: str) -> None:
    with report_folder(target) as folder:
        (folder / "report.md").write_text(text, encoding="utf-8")
        (folder / "figures" / "cache.png").write_bytes(b"png")


def test_a_report_appears_whole_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    target = tmp_path / "results" / "reports" / "quick"
    _write(target, "one")
    (target / "figures" / "old.svg").write_text("left over", encoding="utf-8")
    _write(target, "two")
    assert (target / "report.md").read_text(encoding="utf-8") == "two"
    assert [p.name for p in (target / "figures").iterdir()] == ["cache.png"]
    assert [p.name for p in target.parent.iterdir()] == ["quick"]


def test_a_failure_leaves_the_earlier_report_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "quick"
    _write(target, "one")
    with pytest.raises(TypeError):
        _write(target, None)  # type: ignore[arg-type]
    assert (target / "report.md").read_text(encoding="utf-8") == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["quick"]


@pytest.mark.parametrize("foreign", ["records.jsonl", "figures/notes.txt"])
def test_a_folder_with_anything_else_in_it_is_refused_untouched(tmp_path: Path, foreign: str) -> None:
    target = tmp_path / "precious"
    (target / "figures").mkdir(parents=True)
    (target / foreign).write_text("data", encoding="utf-8")
    with pytest.raises(ValueError, match="also holds"):
        _write(target, "one")
    assert (target / foreign).read_text(encoding="utf-8") == "data"
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "quick").write_text("a file", encoding="utf-8")
    with pytest.raises(ValueError, match="must be a folder"):
        _write(tmp_path / "quick", "one")
