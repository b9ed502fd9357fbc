"""Figures handed to a test as they were drawn, instead of being saved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from experiments.telling.figures import canvas
from experiments.telling.figures.canvas import Drawn
from experiments.telling.figures.style import styles
from experiments.telling.setting import Setting
from tests.experiments.telling.drawing import Draw


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Draw]:
    """Draw a figure module's figure and hand it over instead of saving it."""
    kept: list[Figure] = []

    def drawn(module: Any, page: Setting) -> tuple[Figure, Drawn]:
        monkeypatch.setattr(module, "save", lambda figure, *_: kept.append(figure))
        told = module.draw(page, styles(page.variants), tmp_path, "stem")
        return kept[-1], told

    with canvas.look():
        yield drawn
