"""Every figure as it looks, held to a small picture of it in tests/golden/figures.

The pictures are grey and about 320 pixels wide. Two are the same where their root mean square difference is within
``TOLERANCE`` of 255: what drawing again leaves is less than 0.1, a variant that is missing or a name that has moved by
a few points more than twice as much as is tolerated. After a wanted change, draw them anew and look at each:
``RENEW_FIGURES=1 python -m pytest tests/experiments/telling/test_gallery_images.py``.
"""

import os
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from experiments.telling.figures import axes, endings
from tests.builders import ROOT
from tests.experiments.telling.drawn import FAMILY, FIGURES, draw

GOLDEN = ROOT / "tests" / "golden" / "figures"
WIDE = 320  # pixels, at least
TOLERANCE = 1.5
(PINNED,) = re.findall(r"^matplotlib==(.*)$", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = pytest.mark.skipif(
    mpl.__version__ != PINNED, reason=f"pictures are of matplotlib {PINNED}; got {mpl.__version__}"
)


@pytest.fixture(autouse=True)
def no_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time, and nothing here looks at it."""
    save = Figure.savefig

    def png(figure: Figure, target: Any, **given: Any) -> None:
        if str(target).endswith(".svg"):
            Path(target).touch()
        else:
            save(figure, target, **given)

    monkeypatch.setattr(Figure, "savefig", png)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the figures of all variants are drawn, each once."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where those without GQA are."""
    return tmp_path_factory.mktemp("fewer")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_looks_as_it_did(whole: Path, name: str) -> None:
    drawn = small(draw(name, FAMILY, whole))
    golden = GOLDEN / f"{name}.png"
    if os.environ.get("RENEW_FIGURES"):
        Image.fromarray(drawn.round().astype(np.uint8)).save(golden, optimize=True)
        pytest.skip("drawn anew: look at it")
    assert difference(drawn, small(golden)) < TOLERANCE


@pytest.mark.parametrize("name", [*FIGURES[:2], *(pytest.param(it, marks=pytest.mark.slow) for it in FIGURES[2:])])
def test_a_missing_variant_is_more_than_the_tolerance(fewer: Path, name: str) -> None:
    drawn = small(draw(name, [variant for variant in FAMILY if variant != "gqa"], fewer))
    assert difference(drawn, small(GOLDEN / f"{name}.png")) > 2 * TOLERANCE


def test_names_that_move_by_four_points_are_more_than_the_tolerance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(endings, "NAME_AT", endings.NAME_AT + 4)
    assert difference(small(draw("cache", FAMILY, tmp_path)), small(GOLDEN / "cache.png")) > 2 * TOLERANCE


def test_an_axis_named_otherwise_is_more_than_the_tolerance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(axes, "format_tokens", str)
    assert difference(small(draw("latency", FAMILY, tmp_path)), small(GOLDEN / "latency.png")) > TOLERANCE


def test_there_is_a_picture_of_every_figure_and_they_are_small() -> None:
    files = list(GOLDEN.glob("*.png"))
    assert {path.stem for path in files} == {*FIGURES}
    assert sum(path.stat().st_size for path in files) < 400_000


def small(path: Path) -> NDArray[np.float64]:
    """Grey, 0 to 255, each pixel the mean of a square of the picture's."""
    with Image.open(path) as image:
        grey = np.asarray(image.convert("L"), dtype=np.float64)
    by = max(grey.shape[1] // WIDE, 1)
    high, wide = (length // by for length in grey.shape)
    squares = grey[: high * by, : wide * by].reshape(high, by, wide, by)
    return np.asarray(squares.mean(axis=(1, 3)), dtype=np.float64)


def difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Root mean square of pixels; two shapes are as different as can be."""
    return float(np.sqrt(((a - b) ** 2).mean())) if a.shape == b.shape else 255.0
