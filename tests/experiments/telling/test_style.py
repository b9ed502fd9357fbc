"""One look per variant: distinct, stable, and visible on white."""

import pytest

from experiments.telling.figures.style import COLOURS, apart, styles


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_has_three_to_one_contrast_on_white() -> None:
    assert [c for c in COLOURS if 1.05 / (_luminance(c) + 0.05) < 3] == []


def test_the_family_looks_the_same_whatever_else_is_there() -> None:
    alone, among = styles(["mla", "gqa"]), styles(["mha", "gqa", "mqa", "mla", *map(str, range(20))])
    assert alone["mla"] == among["mla"]
    assert alone["gqa"] == among["gqa"]
    assert [among[n].colour for n in ("mha", "gqa", "mqa", "mla")] == ["#0173b2", "#029e73", "#d55e00", "#cc78bc"]


def test_sixty_variants_can_be_told_apart_by_colour_and_marker_alone() -> None:
    looks = styles(f"variant-{i}" for i in range(60))
    assert len({(s.colour, s.marker) for s in looks.values()}) == 60


def test_a_form_keeps_its_familys_colour() -> None:
    looks = styles(["mla", "mla (absorbed)", "mla (expanded)"])
    assert {s.colour for s in looks.values()} == {"#cc78bc"}
    assert len(set(looks.values())) == 3


def test_a_name_alone_decides_the_look_of_an_unknown_variant() -> None:
    assert styles(["gta"])["gta"] == styles(["gta", "mha", "mqa"])["gta"]


def test_names_of_one_figure_have_colours_of_their_own_while_there_are_any() -> None:
    names = ["mha", "mla (512+64)", "one", "two", "three", "four"]
    looks = apart(names)
    assert looks["mha"] == styles(["mha"])["mha"]
    assert looks["mla (512+64)"].colour == styles(["mla"])["mla"].colour
    assert len({look.colour for look in looks.values()}) == len(names)
    many = apart(map(str, range(60)))
    assert len({(s.colour, s.marker, s.dash) for s in many.values()}) == 60
    with pytest.raises(ValueError, match="can be told apart in a figure; got 300"):
        apart(map(str, range(300)))
