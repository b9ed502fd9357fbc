"""Published evidence: the papers' numbers to the digit, bytes by hand, bad files refused by name, nothing averaged."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.telling.evidence import Evidence, read_evidence
from experiments.telling.figures import evidence as drawing
from experiments.telling.figures.canvas import look
from experiments.telling.figures.style import KNOWN
from experiments.telling.published import HEADING, POINTER, of_variants, published
from experiments.telling.tell import Beside, tell
from tests.builders import CONF
from tests.experiments.telling.rows import row, rule, write

FOLDER = CONF / "evidence"
# as the papers print them
MMLU = {"mha": "45.2", "gqa": "41.2", "mqa": "37.9"}
T5_XXL = {"mha": ("47.2", "1.51"), "mqa": ("46.6", "0.24"), "gqa": ("47.1", "0.28")}
PERPLEXITY = {"mha": "13.860", "mqa": "14.306", "gqa": "14.139", "mla": "13.727", "gta": "13.972", "gla": "13.779"}
FAMILY = ("mha", "gqa", "mqa", "mla")


def _all() -> dict[str, Evidence]:
    return {it.name: it for it in read_evidence(FOLDER, "all")}


def _said(it: Evidence) -> dict[str, Any]:
    said = {f.variant: tuple(metric.said(f) for metric in it.metrics) for f in it.findings}
    return {variant: values[0] if len(values) == 1 else values for variant, values in said.items()}


def _raw() -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((FOLDER / "gqa_t5_xxl.yaml").read_text())
    return raw


def _refusal(folder: Path, raw: Any) -> str:
    (folder / "paper.yaml").write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw))
    with pytest.raises(ValueError, match="paper") as refused:
        read_evidence(folder, "all")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_values_are_the_papers() -> None:
    found = _all()
    assert _said(found["deepseek_v2_dense"]) == MMLU
    assert _said(found["gqa_t5_xxl"]) == T5_XXL
    assert _said(found["mlra_2_9b"]) == PERPLEXITY
    assert {it.name: [m.better for m in it.metrics] for it in found.values()} == {
        "deepseek_v2_dense": ["higher"],
        "gqa_t5_xxl": ["higher", "lower"],
        "mlra_2_9b": ["lower"],
    }


def test_sources_are_named() -> None:
    assert {it.source[:16] for it in _all().values()} == {"arXiv 2405.04434", "arXiv 2305.13245", "arXiv 2603.02188"}
    assert sorted(it.date for it in _all().values()) == ["2023-05-22", "2024-05-07", "2026-03-02"]


def test_bytes_are_counted_for_the_papers_own_heads_or_not_at_all() -> None:
    sizes = {it.name: {f.variant: f.bytes_per_token for f in it.findings} for it in _all().values()}
    assert set(sizes["deepseek_v2_dense"].values()) == {None}
    assert sizes["gqa_t5_xxl"] == {"mha": 2 * 64 * 64 * 2, "mqa": 2 * 64 * 2, "gqa": 2 * 8 * 64 * 2}
    assert sizes["mlra_2_9b"] == {
        "mha": 2 * 24 * 128 * 2,
        "mqa": 2 * 128 * 2,
        "gqa": 2 * 6 * 128 * 2,
        "mla": (512 + 64) * 2,
        "gta": (6 * 128 + 64) * 2,
        "gla": (512 + 64) * 2,
    }


def test_files_are_chosen_by_name() -> None:
    assert [it.name for it in read_evidence(FOLDER, ["mlra_2_9b", "gqa_t5_xxl"])] == ["mlra_2_9b", "gqa_t5_xxl"]
    assert read_evidence(FOLDER, None) == read_evidence(FOLDER, []) == ()
    for wanted in (["nobody"], "mlra_2_9b", 3):
        with pytest.raises(ValueError, match=r"^report\.evidence must be .*; got "):
            read_evidence(FOLDER, wanted)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": None}, "paper.yaml: source must be a text; got None"),
        ({"date": "last year"}, "paper.yaml: date must be a day such as 2024-05-07; got 'last year'"),
        ({"extra": 1}, "paper.yaml: the file must be a mapping of title, source"),
        ({"metrics": {}}, "metrics must be a mapping with at least one name; got {}"),
        (
            {"metrics": {"average": {"name": "a", "better": "more", "decimals": 1}}},
            "metrics.average.better must be higher",
        ),
        ({"metrics": {"average": {"name": "a", "better": "lower", "decimals": 9}}}, "metrics.average.decimals must be"),
        ({"points": []}, "points must be a list of two models or more; got []"),
        ({"shape": None}, "points[0].attention must be given where the paper's shape is, and only there"),
        ({"shape": {"dtype": "bf16"}}, "shape must be a mapping of source, dtype"),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_key(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    assert said in _refusal(tmp_path, _raw() | change)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("values", {"average": "47", "seconds": 1.0}, "points[1].values.average must be a number; got '47'"),
        ("values", {"average": 47.0}, "points[1].values must be a mapping of average, seconds"),
        ("values", {"average": float("nan"), "seconds": 1.0}, "points[1].values.average must be a number; got nan"),
        ("attention", {"kind": "os", "num_kv_heads": 1}, "points[1].attention: attention kind must be one of"),
        ("attention", {"kind": "grouped", "num_kv_heads": 7}, "points[1].attention: num_kv_heads must be"),
        ("attention", {"kind": "grouped", "wings": 2}, "points[1].attention: "),
        ("variant", 3, "points[1].variant must be a text; got 3"),
    ],
)
def test_a_malformed_point_is_refused_by_name_and_key(tmp_path: Path, key: str, value: Any, said: str) -> None:
    raw = _raw()
    raw["points"][1][key] = value
    assert said in _refusal(tmp_path, raw)


@pytest.mark.parametrize("text", ["a: [", "!!python/object/apply:os.system ['true']", "- a list"])
def test_only_safe_yaml_of_the_right_shape_is_read(tmp_path: Path, text: str) -> None:
    assert _refusal(tmp_path, text).startswith("evidence paper.yaml: ")


def test_a_report_quotes_what_concerns_its_variants_and_averages_nothing(tmp_path: Path) -> None:
    write(tmp_path / "runs", *(row(a, s) for a in FAMILY for s in ("attend", "step")))
    told = tell(tmp_path / "runs", tmp_path / "out", rule(), "python -m x", Beside(read_evidence(FOLDER, "all")))
    text = told.page.read_text(encoding="utf-8")
    section = text.split(f"### {HEADING}\n")[1].split("\n### ")[0]
    cells = {cell for line in section.splitlines() if line.startswith("|") for cell in line.strip("| ").split(" | ")}
    decimals = {cell for cell in cells if re.fullmatch(r"\d+\.\d+", cell)}
    shown = {PERPLEXITY[variant] for variant in FAMILY}
    assert decimals == {*MMLU.values(), *(v for pair in T5_XXL.values() for v in pair), *shown}
    assert "| mla | MLA | 1,152 | 13.727 |" in section
    assert "| mha | MHA | n/a | 45.2 |" in section
    assert "no number below was measured here" in section
    assert "nothing is averaged" in section
    assert text.count(POINTER) == 2  # where quality is said to be unknown
    assert (tmp_path / "out" / "figures" / "evidence.svg").is_file()


def test_a_report_of_other_variants_says_nothing_of_it(tmp_path: Path) -> None:
    write(tmp_path / "runs", *(row("mha", s) for s in ("attend", "step")))
    told = tell(tmp_path / "runs", tmp_path / "out", rule(), "python -m x", Beside(read_evidence(FOLDER, "all")))
    text = told.page.read_text(encoding="utf-8")
    assert HEADING not in text  # a single model of a paper compares nothing
    assert published(of_variants(read_evidence(FOLDER, "all"), ["gta"]), None) is None


def test_points_are_hollow_where_the_papers_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = []
    monkeypatch.setattr(drawing, "save", lambda figure, folder, stem: figures.append(figure))
    with look():
        drawn = drawing.draw(read_evidence(FOLDER, "all"), dict(KNOWN), tmp_path, "evidence")
    assert drawn is not None
    assert "not measured here" in drawn.alt
    t5, baselines = figures[0].axes  # DeepSeek's models have no heads to count bytes for
    front, *dots = t5.lines
    assert list(zip(front.get_xdata(), front.get_ydata(), strict=True)) == [(256, 46.6), (2048, 47.1), (16384, 47.2)]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots] == [
        (16384, 47.2),
        (256, 46.6),
        (2048, 47.1),
    ]
    assert len(baselines.lines) == 1 + len(PERPLEXITY)
    assert {line.get_fillstyle() for ax in (t5, baselines) for line in ax.lines[1:]} == {"none"}
    assert (dots[0].get_color(), dots[0].get_marker()) == (KNOWN["mha"].colour, KNOWN["mha"].marker)
    for ax in (t5, baselines):
        assert "published" in [text.get_text() for text in ax.texts]
        left, right = ax.get_xlim()
        assert all(left < line.get_xdata()[0] < right for line in ax.lines)


def test_without_any_shape_there_is_no_figure(tmp_path: Path) -> None:
    assert drawing.draw(read_evidence(FOLDER, ["deepseek_v2_dense"]), dict(KNOWN), tmp_path, "evidence") is None
