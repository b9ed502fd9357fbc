"""Rows of quality told: the table's numbers, the figure's marks, a page that stands alone."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.scored import LOSSES
from experiments.telling.figures import canvas
from experiments.telling.figures.canvas import look
from experiments.telling.judging import figure as drawing
from experiments.telling.judging.losses import read_losses
from experiments.telling.judging.numbers import against, comparable, front, judged, original
from experiments.telling.judging.page import tell
from experiments.telling.judging.table import scores
from tests.experiments.scores import scored, study

Mark = tuple[str, bool, float, float]


def test_variants_stand_by_bytes_with_both_of_their_rows() -> None:
    found = judged(study())
    assert [it.label for it in found] == ["mha", "gqa (original)", "mla (160 + 32)", "mqa"]
    assert [len(it.rows) for it in found] == [1, 1, 2, 2]
    assert [it.last.steps for it in found] == [0, 0, 64, 64]


def test_a_ratio_is_of_the_same_windows_and_has_students_interval() -> None:
    base, row = scored(), scored("mqa", 0.5)
    it = against(row, base)
    apart = [0.5, 0.6, 0.5, 0.5]
    mean, deviation = sum(apart) / 4, 0.05
    assert it.ratio == pytest.approx(math.exp(mean))
    assert it.interval is not None
    half = 3.182446 * deviation / 2  # of Student's t with 3 degrees of freedom, 97.5 %
    assert it.interval == pytest.approx((math.exp(mean - half), math.exp(mean + half)), rel=1e-6)
    with pytest.raises(ValueError, match="zip"):
        against(scored(nll=(1.0,), kl=(0.0,), perplexity=math.e), base)


def test_one_window_has_no_interval() -> None:
    one = scored(nll=(1.0,), kl=(0.0,), perplexity=math.e)
    assert against(one, one).interval is None


def test_one_original_is_needed() -> None:
    assert original(study()).label == "gqa (original)"
    for rows, got in ((study()[1:], 0), ([*study(), scored(key="another")], 2)):
        with pytest.raises(ValueError, match=f"one row of the original; got {got}"):
            original(rows)


def test_the_table_has_every_row() -> None:
    table = scores(judged(study()), scored())
    assert [(row[0], row[4]) for row in table.rows] == [
        ("mha", "n/a"),
        ("gqa (original)", "n/a"),
        *(("mla (160 + 32)", steps) for steps in ("0", "64")),
        *(("mqa", steps) for steps in ("0", "64")),
    ]
    mha, own, mla, trained, *_ = table.rows
    assert mha[1:4] == ("4,608", "300 %", "heads repeated, exact")
    assert own[2:4] == ("100 %", "as it is")
    assert own[5:8] == ("9.974", "1", "0.0000")
    assert mla[1:4] == ("768", "50 %", "low rank")
    assert mla[5] == "13.67"  # exp(2.3 + 0.3 (3 + 1.2) / 4)
    assert mla[6].startswith("1.37x [1.306, 1.437]")
    assert mla[7:] == ("0.3000", "25 %", "n/a")
    assert trained[7:] == ("0.1000", "n/a", "0.0600 to 0.0200")


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Axes:
    drawn: list[Figure] = []
    save = canvas.save

    def keep(figure: Figure, *given: Any) -> None:
        drawn.append(figure)
        save(figure, *given)

    monkeypatch.setattr(drawing, "save", keep)
    rows = study()
    with look():
        drawing.draw(judged(rows), rows[0], tmp_path, "quality")
    (ax,) = drawn[0].axes
    return ax


def test_before_is_hollow_after_and_exact_are_filled_and_the_original_is_a_star(axes: Axes) -> None:
    marks = {
        (str(line.get_marker()), line.get_fillstyle() != "none", round(float(x), 2), round(float(y), 2))
        for line in axes.lines
        if line.get_marker() != "None"
        for x, y in np.asarray(line.get_xydata(), dtype=float)
    }
    by_label = {(it.label, row.steps): round(row.perplexity, 2) for it in judged(study()) for row in it.rows}
    assert {(x, filled, y) for _, filled, x, y in marks} == {
        (1536.0, True, by_label["gqa (original)", 0]),
        (4608.0, True, by_label["mha", 0]),
        *((768.0, steps > 0, by_label["mla (160 + 32)", steps]) for steps in (0, 64)),
        *((512.0, steps > 0, by_label["mqa", steps]) for steps in (0, 64)),
    }
    assert [x for marker, _, x, _ in marks if marker == "*"] == [1536.0]


def test_the_page_names_text_training_and_what_does_not_follow(tmp_path: Path) -> None:
    page, (figure,) = tell(study(), tmp_path, tmp_path / "told", "python -m experiments.report runs='a b'")
    assert figure.is_file()
    assert figure.with_suffix(".svg").is_file()
    said = page.read_text()
    assert "![Cache bytes against perplexity, log-log, some-model" in said
    assert "(figures/quality.png)" in said
    for part in (
        "2,044 tokens of pydoc_data.topics of Python 3.11.7 that nothing was fitted to or trained on, in 4 windows",
        "fitted to 4,096 tokens of other topics",
        "Distilled: 64 steps per layer on 16,384 tokens of further topics, learning rate 0.001",
        "no ranking for others follows",
        "python -m experiments.run study=quality",
        "python -m experiments.report runs='a b'",
    ):
        assert part in said
    assert said.count("| mqa |") == 2


def test_conversions_alone_are_told_as_such(tmp_path: Path) -> None:
    page, _ = tell([row for row in study() if not row.steps], tmp_path, tmp_path / "told", "as typed")
    said = page.read_text()
    assert "nothing was trained" in said
    assert "Distilled" not in said


def test_of_one_folder_the_rows_of_the_last_original_are_told(tmp_path: Path) -> None:
    longer = scored("mqa", 0.2, steps=200, key="longer")
    other = [scored(window=256, key="other"), scored("mqa", 1.0, window=256, key="other mqa")]
    found = comparable([*other, *study(), longer])
    assert [row.key for row in found if row.label == "mqa"] == ["mqa-0", "longer"]
    assert {row.window for row in found} == {512}
    page, _ = tell([*other, *study(), longer], tmp_path, tmp_path / "told", "as typed")
    assert "3 rows of the folder are not shown" in page.read_text()


def test_the_front_is_what_no_other_beats() -> None:
    found = judged([*study(), scored("gqa (9 heads)", 3.0, bytes_per_token=700.0)])
    assert [it.label for it in front(found)] == ["mqa", "mla (160 + 32)", "gqa (original)"]


def test_losses_are_drawn_where_their_files_are(tmp_path: Path) -> None:
    rows = [row for row in study() if row.steps]
    (tmp_path / LOSSES).mkdir()
    curve = np.linspace(0.06, 0.02, 64) * np.ones((30, 1))
    np.save(tmp_path / LOSSES / f"{rows[0].key}.npy", curve)
    np.save(tmp_path / LOSSES / f"{rows[1].key}.npy", curve[:, :5])  # of another run
    assert read_losses(tmp_path, study()).keys() == {rows[0].key}
    page, figures = tell(study(), tmp_path, tmp_path / "told", "as typed")
    assert [path.name for path in figures] == ["quality.png", "quality-losses.png"]
    assert f"{rows[0].label} 0.0600 to 0.0200." in page.read_text()
