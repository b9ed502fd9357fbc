"""A report's facts as one HTML file: no network, light and dark, for screen, keyboard and paper."""

from pathlib import Path
from typing import Any

import jinja2

from experiments.telling.figures.style import apart
from experiments.telling.frame import distinct, family_order, plain
from experiments.telling.html.body import body
from experiments.telling.html.data import picture, script_json
from experiments.telling.html.numbers import numbers
from experiments.telling.page import Facts

HERE = Path(__file__).parent
SCRIPTS = ("arithmetic.js", "sliders.js")


def render_html(facts: Facts, markdown: str, figures: Path, plan: dict[str, Any] | None) -> str:
    """The text of report.html; ``markdown`` is report.md's, ``figures`` the folder of its pictures.

    ``plan``: what the sliders compute with, as ``experiments.planned`` gives it; without it the page has none.
    """
    tables = numbers(facts)
    told = body(markdown, lambda stem: picture(figures, stem), tables.get)
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE, encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return engine.get_template("report.html.j2").render(
        told=told,
        style=_own("style.css"),
        scripts=[_own(name) for name in SCRIPTS],
        plan=None if plan is None else script_json(_with_looks(facts, plan)),
    )


def _own(name: str) -> str:
    """A file of this folder, which is ours and goes into the page as it is."""
    return (HERE / name).read_text(encoding="utf-8")


def _with_looks(facts: Facts, plan: dict[str, Any]) -> dict[str, Any]:
    """The variants in the colours of the figures, and the device of the rows where its profile is known."""
    models = [{**m, "variants": sorted(m["variants"], key=lambda v: family_order(v["name"]))} for m in plan["models"]]
    names = [variant["name"] for model in models for variant in model["variants"]]
    seen = distinct(plain(facts.tidy.table["device"]))
    device = next((it["id"] for it in plan["devices"] if it["name"] in seen), "cpu")
    colours = {name: look.colour for name, look in apart(names).items()}
    return {**plan, "models": models, "device": device, "colours": colours}
