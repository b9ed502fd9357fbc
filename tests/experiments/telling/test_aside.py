"""Rows beside the question: another machine's order, never its times; neighbours only tell what would flip."""

import re
from pathlib import Path
from typing import Any

from experiments.record import Measurement
from experiments.telling.aside import aside_table
from experiments.telling.decision import decide_all
from experiments.telling.focus import Focus
from experiments.telling.rule import Rule
from experiments.telling.tell import tell
from tests.experiments.telling.rows import pages, row, rule, write

H200: dict[str, Any] = {"device": "NVIDIA H200", "origin": "predicted", "backend": "profile"}
ASKED: dict[str, Any] = {"text": "Keep GQA?", "device": "NVIDIA H200", "tp": 8, "own": "gqa"}


def rows() -> list[Measurement]:
    """On the H200 GQA is first at 8k, on the CPU MLA; the H200 also at tp 4."""
    made = []
    for device, tp, gqa, mla in ((H200, 8, 50.0, 90.0), (H200, 4, 80.0, 70.0), ({}, 8, 9000.0, 7000.0)):
        for attention, us in (("gqa", gqa), ("mla", mla)):
            for scope in ("attend", "step"):
                key = f"{attention}-{scope}-{'h' if device else 'c'}{tp}"
                made.append(row(attention, scope, 8192, us=us, tp=tp, key=key, **device))
    return made


def asked() -> Rule:
    return rule(question=ASKED, batch=1, context="8k")


def focused() -> Focus:
    every = pages(*rows())
    return Focus.of(every, decide_all(every, asked()), asked())


def test_another_machine_stands_beside_and_another_tp_is_a_neighbour() -> None:
    focus = focused()
    assert [(p.values["device"], p.values["tp"]) for p in focus.about] == [("NVIDIA H200", 8)]
    assert [(p.values["device"], p.values["tp"]) for p in focus.near] == [("NVIDIA H200", 4)]
    assert [(p.values["device"], p.values["tp"]) for p in focus.beyond] == [("Xeon", 8)]
    assert focus.silent == {focus.pages.index(focus.near[0]) + 1}
    assert set(map(id, focus.aside)) == set(map(id, (*focus.near, *focus.beyond)))


def test_without_a_question_all_settings_are_alike() -> None:
    every = pages(*rows())
    plain = rule()
    focus = Focus.of(every, decide_all(every, plain), plain)
    assert (len(focus.about), focus.near, focus.beyond, focus.silent) == (3, (), (), frozenset())


def test_orders_are_put_beside_each_other_and_no_times() -> None:
    focus = focused()
    (line,) = aside_table({1: focus.beyond[0]}, focus.about, asked(), {}).rows
    assert line == ("1", "8k", "choose mla", "mla, gqa", "gqa, mla", "gqa-step-c8, mla-step-c8")


def test_the_report_asks_the_question_draws_no_neighbour_and_says_what_it_does_not_compare(tmp_path: Path) -> None:
    told = tell(write(tmp_path / "runs", *rows()), tmp_path / "out", asked(), "again")
    text = told.page.read_text(encoding="utf-8")
    assert "# Keep GQA? Predicted: choose gqa" in text
    for said in ("* device: NVIDIA H200", "* tensor parallel: 8", "* context: 8k", "* the model has: gqa"):
        assert said in text
    assert text.count("**choose ") == 1
    figures = {path.name for path in told.figures}
    assert not any("tp-4" in name and "crossover" not in name for name in figures)
    assert "1 further settings are of the question's machine and model" in text
    assert "| choose mla | mla, gqa | gqa, mla |" in text
    assert "At tp 8, mla beats gqa per step" not in text  # one context is no line
    assert "two all-reduces per layer" in text


def test_the_options_are_the_questions_alone_where_it_has_no_neighbours(tmp_path: Path) -> None:
    """MHA ran on another machine only."""
    mine = [it for it in rows() if it.tp == 8]
    told = tell(write(tmp_path / "runs", *mine, row("mha", "step", 8192, us=5.0, tp=8)), tmp_path / "out", asked(), "x")
    options = told.page.read_text(encoding="utf-8").split("## Considered Options")[1].split("## Decision Outcome")[0]
    assert [line.split(" | ")[0] for line in options.splitlines() if line.startswith(("| gqa", "| mla", "| mha"))] == [
        "| gqa",
        "| mla",
    ]


def test_every_key_in_the_report_is_a_row(tmp_path: Path) -> None:
    every = rows()
    told = tell(write(tmp_path / "runs", *every), tmp_path / "out", asked(), "again")
    keys = re.findall(r"\b(?:gqa|mla)-(?:step|attend)-[hc]\d\b", told.page.read_text(encoding="utf-8"))
    assert {row.key for row in every if row.scope == "step"} <= set(keys) <= {row.key for row in every}
