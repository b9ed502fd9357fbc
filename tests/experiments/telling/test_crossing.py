"""Where an outcome turns: found by the rule itself at every place, with rows that are there."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.record import Measurement
from experiments.telling.crossing import Map, flips, maps
from experiments.telling.figures import crossover
from experiments.telling.figures.canvas import look
from experiments.telling.figures.style import styles
from tests.experiments.telling.rows import pages, row, rule

CONTEXTS = (1024, 2048, 4096, 8192)


def crossing(batch: int = 1, tp: int = 1, **given: Any) -> list[Measurement]:
    """GQA takes a tenth of its context in us, MLA 300 us whatever the context: they cross at 3000."""
    common: dict[str, Any] = {"batch": batch, "tp": tp, "bound": "memory", **given}
    made = []
    for context in CONTEXTS:
        made.append(row("gqa", context=context, us=context / 10, key=f"g{context}b{batch}t{tp}", **common))
        made.append(row("mla", context=context, us=300.0, key=f"l{context}b{batch}t{tp}", **common))
    return made


def mapped(*rows: Measurement) -> list[Map]:
    return maps(pages(*rows), rule(), ["gqa", "mla"], {})


def test_an_outcome_turns_between_the_contexts_around_the_crossing() -> None:
    (it,) = mapped(*crossing())
    assert [cell.winners for cell in it.cells] == [("gqa",), ("gqa",), ("mla",), ("mla",)]
    assert [cell.lead for cell in it.cells] == pytest.approx([300 / 102.4, 300 / 204.8, 409.6 / 300, 819.2 / 300])
    assert flips(it) == [
        "Between context 2k and 4k the outcome turns: from gqa (memory-bound, 1.46x ahead) to mla (memory-bound, 1.37x "
        "ahead) (rows g2048b1t1, l2048b1t1, l4096b1t1, g4096b1t1)."
    ]


def test_turns_of_one_kind_are_one_sentence_and_what_never_turns_is_said() -> None:
    (it,) = mapped(*crossing(1), *crossing(4), *crossing(4, tp=8))
    said = flips(it)
    assert len(said) == 3
    assert said[0].startswith("Between context 2k and 4k the outcome turns at 3 places; closest at batch 1, tp 1: ")
    assert said[1].startswith("From batch 1 to 4 nothing turns at 4 places; closest at context 4k, tp 1: mla (")
    assert said[2].startswith("From tp 1 to 8 nothing turns at 4 places; closest at context 4k, batch 4: mla (")


def test_every_key_that_a_sentence_names_is_a_row_with_the_place_it_tells_of() -> None:
    rows = [*crossing(1), *crossing(4)]
    by = {r.key: r for r in rows}
    (it,) = mapped(*rows)
    said = " ".join(flips(it))
    keys = re.findall(r"\b[gl]\d+b\d+t\d+\b", said)
    assert keys
    assert set(keys) <= set(by)
    first = flips(it)[0]
    told = {by[key].context for key in re.findall(r"\b[gl]\d+b\d+t\d+\b", first)}
    assert told == {2048, 4096}


def test_a_tie_is_no_winner_and_turns_are_to_it() -> None:
    even = [row(a, context=4096, us=us, cache_bytes=1000) for a, us in (("gqa", 300.0), ("mla", 301.0))]
    (it,) = mapped(*(r for r in crossing() if r.context != 4096), *even)
    assert [cell.winners for cell in it.cells][2] == ("gqa", "mla")
    assert "to gqa or mla (rows" in flips(it)[0]


def test_other_machines_models_and_backends_are_maps_of_their_own() -> None:
    two = mapped(*crossing(), *crossing(device="another"))
    assert len(two) == 2
    assert len(mapped(*crossing(1), *crossing(2, model="another"))) == 2


def test_one_place_has_no_neighbour() -> None:
    assert mapped(*(r for r in crossing() if r.context == 1024)) == []


def test_the_figure_has_a_square_per_place_in_its_winners_colour(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = []
    monkeypatch.setattr(crossover, "save", lambda figure, *_: kept.append(figure))
    (it,) = mapped(*crossing(1), *crossing(4))
    looks = styles(["gqa", "mla"])
    with look():
        drawn = crossover.draw(it, looks, tmp_path, "x")
    (ax,) = kept[0].axes
    colours = [patch.get_facecolor()[:3] for patch in ax.patches]
    assert len(colours) == 8
    by_rgb = {tuple(round(int(s.colour[i : i + 2], 16) / 255, 3) for i in (1, 3, 5)): v for v, s in looks.items()}
    names = [by_rgb[tuple(np.round(c, 3))] for c in colours]
    assert names == ["gqa", "gqa", "mla", "mla"] * 2
    assert [t.get_text() for t in ax.texts][:3] == ["gqa\n2.93x", "gqa\n1.46x", "mla\n1.37x"]
    assert "batch 1 to 4" in drawn.alt
    assert "context 4096, batch 4, tp 1: mla (memory-bound, 1.37x ahead)" in drawn.alt
