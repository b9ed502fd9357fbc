"""report.html: nothing but itself, nothing from a record as markup, every figure with its numbers."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from experiments.planned import planner
from experiments.record import Measurement
from experiments.telling.figures.behind import MOST
from experiments.telling.html.body import body
from experiments.telling.html.data import picture, script_json
from experiments.telling.html.numbers import numbers
from experiments.telling.html.render import render_html
from experiments.telling.page import render
from experiments.telling.tell import Beside, tell
from tests.builders import CONF
from tests.experiments.telling.rendering import facts
from tests.experiments.telling.rows import failed, row, rule, write

EVIL = """<script>alert(1)</script><img src=x onerror=alert(2)> "'><b> </script> | `a` [l](javascript:alert(3))"""
TEXTS = ("attention", "kind", "form", "storage", "order", "backend", "model", "dtype", "kv_dtype", "tp_mode")
MORE = ("bound", "reason", "audits", "device", "host", "kernel", "versions", "commit", "command", "started_at", "study")


class Page(HTMLParser):
    """Start tags with their attributes, and the text between them, as a browser would find them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


def html_of(folder: Path, *rows: Measurement, plan: dict[str, Any] | None = None) -> str:
    """The page of some rows; its pictures are one dot."""
    told = facts(*rows)
    for name in ("cache", "latency", "bandwidth", "roofline", "support"):
        (folder / f"{name}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
        (folder / f"{name}.png").write_bytes(b"png")
    return render_html(told, render(told), folder, plan)


def family() -> list[Measurement]:
    return [row(a, s, c, us=c / 10) for a in ("mha", "gqa", "mla") for s in ("attend", "step") for c in (1024, 2048)]


def test_a_page_names_nothing_outside_itself(tmp_path: Path) -> None:
    page = Page(html_of(tmp_path, *family(), plan=planner(CONF)(["llama-3-8b"])))
    sources = [v for _, a in page.tags for k, v in a.items() if k in ("src", "href", "srcset", "action", "poster")]
    assert sources
    assert [s for s in sources if s is None or not s.startswith(("data:", "#"))] == []
    (policy,) = [m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


def test_no_text_of_a_record_becomes_markup(tmp_path: Path) -> None:
    given: dict[str, Any] = dict.fromkeys([*TEXTS, *MORE], EVIL)
    good = {k: v for k, v in given.items() if k not in ("reason", "attention")}
    rows = [row(EVIL, **good), row("gqa", **good), failed("mla", "step", 1024, "crash", EVIL, **_but(good, "backend"))]
    plain = Page(html_of(tmp_path, *family()))
    page = Page(html_of(tmp_path, *rows))
    kinds = {tag for tag, _ in plain.tags}
    assert {tag for tag, _ in page.tags} <= kinds | {"ol", "h4", "pre", "code"}
    assert page.of("script") == []
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    assert [a["href"] for a in page.of("a") if not (a["href"] or "").startswith("#")] == []
    assert "<script>alert(1)</script>" in "".join(page.words)


def _but(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k not in names}


def test_a_name_in_the_plan_cannot_end_its_script(tmp_path: Path) -> None:
    plan = planner(CONF)(["llama-3-8b"])
    assert plan is not None
    plan["models"][0]["name"] = EVIL
    html = html_of(tmp_path, *family(), plan=plan)
    assert html.count("</script") == 3
    assert json.loads(html.split('id="plan">')[1].split("</script>")[0])["models"][0]["name"] == EVIL


def test_numbers_that_are_none_cannot_be_embedded() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        script_json({"us": float("nan")})


def test_the_page_says_what_report_md_says(tmp_path: Path) -> None:
    told = facts(*family())
    markdown = render(told)
    page = Page(html_of(tmp_path, *family()))
    words = " ".join("".join(page.words).split())
    for line in ("choose", "Confirmation", "The outcome is confirmed when the commands under", "Cold rows are never"):
        assert line in markdown
        assert line in words
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    assert [h for h in headings if h.split(":")[0] not in words] == []


def test_every_figure_has_its_alt_text_and_its_numbers(tmp_path: Path) -> None:
    told = facts(*family())
    page = Page(html_of(tmp_path, *family()))
    assert [i["alt"] for i in page.of("img")] == [drawn.alt for drawn in told.figures[0]]
    assert len(page.of("details")) == 4
    tables = numbers(told)
    assert tables["latency"].rows[0] == ("mha", "attend", "1k", "102.4 us [101.4, 103.4] n=30")
    assert tables["cache"].rows[-1] == ("mla", "2k", "2,359,296")
    assert tables["bandwidth"].rows[0][2:] == ("1k", "20.00", "30.00")
    assert len(tables["roofline"].rows) == 12


def test_a_figure_of_thousands_of_points_says_how_many_it_lists() -> None:
    told = facts(*(row(context=64 * n) for n in range(1, MOST + 11)))
    lines = numbers(told)["latency"].rows
    assert len(lines) == MOST + 1
    assert lines[-1][0] == "and 10 more rows, which the records hold"


def test_equal_headings_have_places_of_their_own() -> None:
    told = body("---\ndate: today\n---\n\n# T\n\n## A b\n\n## A b\n\n## !\n", lambda stem: "", lambda stem: None)
    assert told.about == (("date", "today"),)
    assert [name for _, name, _ in told.contents] == ["a-b", "a-b--2", "section"]


def test_the_smaller_of_two_pictures_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text("<svg/>" * 9, encoding="utf-8")
    (tmp_path / "a.png").write_bytes(b"png")
    assert picture(tmp_path, "a") == "data:image/png;base64,cG5n"


def test_without_a_known_model_there_are_no_sliders_and_no_script(tmp_path: Path) -> None:
    page = Page(html_of(tmp_path, *family()))
    assert page.of("script") == []
    assert page.of("section") == []


def test_the_page_is_written_beside_the_other(tmp_path: Path) -> None:
    write(tmp_path / "runs", *family())
    told = tell(tmp_path / "runs", tmp_path / "out", rule(), "again", Beside(planner=planner(CONF)))
    html = told.page.with_name("report.html").read_text(encoding="utf-8")
    assert len(html) < 3e6
    assert len(Page(html).of("script")) == 3
    tell(tmp_path / "runs", tmp_path / "out", rule(), "again")  # a report with both pages is a report
