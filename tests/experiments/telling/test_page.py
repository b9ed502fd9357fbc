"""report.md: MADR's headings, every row accounted for, every claim traceable, nothing smuggled in by a record."""

import re

from markdown_it import MarkdownIt

from experiments.record import Measurement
from experiments.telling.decision import decide_all
from experiments.telling.setting import settings
from experiments.telling.summary import summary_table
from tests.experiments.telling.rendering import text_of
from tests.experiments.telling.rows import failed, row, rule, table, unbuildable

FAMILY = ("mha", "gqa", "mqa", "mla")
SCOPES = ("attend", "step")
MADR = [
    "Context and Problem Statement",
    "Decision Drivers",
    "Considered Options",
    "Decision Outcome",
    "Consequences",
    "Confirmation",
    "More Information",
]


def _family() -> list[Measurement]:
    return [row(a, s, c, us=c / 10 + i) for i, a in enumerate(FAMILY) for s in SCOPES for c in (1024, 2048)]


def _headings(text: str) -> list[str]:
    tokens = MarkdownIt().parse(text.split("---\n", 2)[2])
    return [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]


def _section(text: str, heading: str) -> str:
    return re.split(r"\n#+ ", text.split(f"# {heading}\n", 1)[1])[0]


def test_the_headings_are_madrs_in_madrs_order() -> None:
    headings = _headings(text_of(*_family()))
    assert [h for h in headings if h in MADR] == MADR
    assert headings[0] == "Attention for llama-3-8b by decode cost: choose mqa"


def test_quality_is_said_to_be_unknown_where_the_reader_decides() -> None:
    text = text_of(*_family())
    for heading in ("Context and Problem Statement", "Consequences"):
        assert "quality is not measured in these rows" in _section(text, heading)


def test_the_rule_is_stated_with_its_numbers() -> None:
    drivers = _section(text_of(*_family()), "Decision Drivers")
    assert "at most 1.05 times as long" in drivers
    assert "below 0.5 of its roofline" in drivers


def test_every_row_the_outcome_names_is_in_the_records() -> None:
    rows = _family()
    text = text_of(*rows)
    outcome = _section(text, "Decision Outcome") + _section(text, "Consequences")
    named = set(re.findall(r"\b[0-9a-f]{16}\b", outcome))
    assert len(named) >= 4
    assert named <= {r.key for r in rows}


def test_the_points_table_gives_bytes_to_the_byte_and_both_scopes_with_n() -> None:
    line = next(ln for ln in _section(text_of(*_family()), "Points").splitlines() if ln.startswith("| mla | 2k "))
    assert "| 1,152 | 2,359,296 B (2.25 MiB) |" in line
    assert "207.8 [205.7, 209.9] n=30" in line
    assert line.count("n=30") == 2
    assert "| 20.00 | 80 % |" in line


def test_scopes_of_different_temperature_share_a_line_that_says_so() -> None:
    text = text_of(row("mha", "attend", temperature="warm"), row("mha", "step"), row("gqa", "step"))
    assert "| warm / cold |" in text


def test_every_row_that_is_not_ok_is_listed_once_with_its_reason() -> None:
    bad = [
        failed("mla", "step", 2048, "crash", "signal 9 | killed", key="dead"),
        failed("mha", "attend", 2048, "too_large", "needs 64 GiB", key="large", threads=None),
        row("gqa", "step", 2048, status="quarantined", reason="above ceiling", key="doubt"),
    ]
    good = [row(a, s, 1024, batch=b) for a in ("mha", "gqa", "mla") for s in SCOPES for b in (1, 4)]
    gaps = _section(text_of(*good, *bad), "Gaps")
    for measurement in bad:
        assert len(re.findall(rf"\| {measurement.status} \| .* \| {measurement.key} \|", gaps)) == 1
    assert r"signal 9 \| killed" in gaps
    assert "15 rows read = 12 ok + 1 too_large + 1 crash + 1 quarantined." in gaps


def test_every_variants_best_stands_by_the_outcome_with_its_gap_to_the_roofline() -> None:
    rows = [row("mha", roofline_fraction=0.55, bound="memory", key="m"), row("gqa", us=90.0, roofline_fraction=0.4)]
    outcome = _section(text_of(*rows), "Decision Outcome")
    line = "| mha | step | sdpa on contiguous | 100.0 [99.00, 101.0] n=30 | 1.82x | 55 % | memory | m |"
    assert line in outcome
    assert "| 2.50x | 40 % | kernel-limited |" in outcome
    assert "The kernel, not the architecture, sets the time of gqa" in outcome
    assert "### Support" not in text_of(*rows)


def test_several_backends_have_a_support_matrix_and_their_refusals_are_not_listed_again() -> None:
    rows = [row(a, s, backend=b) for a in ("mha", "gqa") for s in SCOPES for b in ("eager", "sdpa")]
    refused = [failed("mla", s, 1024, "refused", "too | wide; got 576", backend="sdpa") for s in SCOPES]
    broken = failed("mla", "step", 1024, "crash", "signal 9", backend="eager", key="dead")
    text = text_of(*rows, *refused, broken)
    told, gaps = _section(text, "Support"), _section(text, "Gaps")
    assert "| sdpa | contiguous | " in told
    assert "no [1] |" in told
    assert "\n1. too \\| wide; got 576\n" in told
    assert "![alt of support](figures/support.png)" in told
    assert "too" not in gaps
    assert "| 1 | mla by eager on contiguous | step | 1k | crash | signal 9 | dead |" in gaps
    assert "11 rows read = 8 ok + 2 refused + 1 crash. Refused combinations are listed under Support." in gaps


def test_what_was_never_run_is_listed_too() -> None:
    rows = [row(a, s, c) for a in ("mha", "gqa") for s in SCOPES for c in (1024, 2048)]
    gaps = _section(text_of(*rows[:-1], expected=FAMILY), "Gaps")
    assert "1 of 8 points have no ok row" in gaps
    assert "| 1 | gqa | step | 2k |" in gaps
    assert "Never run, though the rule expects them: mla, mqa." in gaps


def test_a_config_that_could_not_be_built_is_a_gap_of_its_variant_and_not_compared() -> None:
    reason = "num_kv_heads must divide num_q_heads; got num_q_heads=32, num_kv_heads=7"
    text = text_of(*(row(a, us=u) for a, u in (("mha", 2.0), ("mqa", 1.0))), unbuildable("gqa", reason))
    assert f"| 1 | gqa | step | n/a | error | {reason} | unbuildable-gqa |" in _section(text, "Gaps")
    assert f"* Not compared: gqa (error, {reason} (row unbuildable-gqa))." in _section(text, "Decision Outcome")
    assert "**choose mqa**" in text


def test_superseded_and_unreadable_rows_are_counted() -> None:
    text = text_of(
        row("mha", key="k"), row("mha", key="k"), row("gqa"), warnings=("a/records.jsonl:3: skipped a line: torn",)
    )
    assert "3 rows read = 2 ok + 1 superseded." in text
    assert "* a/records.jsonl:3: skipped a line: torn" in _section(text, "Warnings")


def test_several_settings_have_an_outcome_each_and_are_named() -> None:
    text = text_of(*(row(a, batch=b, us=u) for b in (1, 8) for a, u in (("mha", 2.0 / b), ("gqa", 1.0))))
    outcome = _section(text, "Decision Outcome")
    assert "Setting 1: **choose gqa** at context 1k, batch 1" in outcome
    assert "Setting 2: **choose mha** at context 1k, batch 8" in outcome
    assert "2 settings, 2 different outcomes" in text


def test_a_predicted_outcome_says_that_nothing_was_measured() -> None:
    text = text_of(*(row(a, origin="predicted", us=u) for a, u in (("mha", 2.0), ("gqa", 1.0))))
    assert "from PREDICTED rows: nothing was measured" in _section(text, "Decision Outcome")
    assert _headings(text)[0] == "Attention for llama-3-8b by decode cost: predicted, choose gqa"
    method = _section(text, "Method")
    assert "it has no samples" in method
    assert "median" not in method
    assert "| 1.000, predicted |" in text


def test_of_measured_beside_predicted_rows_the_statistic_is_of_the_measured() -> None:
    text = text_of(*(row(a, origin=o) for a in ("mha", "gqa") for o in ("measured", "predicted")))
    assert "samples: 30; rounds: 5" in _section(text, "Method")
    assert "They are not compared with each other" in text


def test_the_environment_names_machine_versions_commit_and_ceilings() -> None:
    told = _section(text_of(*_family()), "Environment")
    for name, value in (("device", "Xeon"), ("versions", "torch 2.13.0"), ("commit", "abc1234"), ("threads", "2")):
        assert f"| {name} | {value} |" in told
    assert "| read ceiling, GB/s | 30.00 |" in told


def test_both_commands_that_reproduce_it_are_given() -> None:
    told = _section(text_of(*_family()), "Reproduce")
    assert "python -m experiments.run study=quick\n" in told
    assert "python -m experiments.report runs=x\n" in told


def test_nothing_from_a_record_becomes_markup() -> None:
    evil = "<script>x</script> | `a` [l](http://e.org)\n# h **b**"
    rows = [
        row(a, device=evil, model=evil, commit=evil, kernel=evil, versions=evil, command=evil) for a in ("mha", "gqa")
    ]
    text = text_of(
        *rows, failed(evil, "step", 1024, "crash", evil, device=evil, model=evil, versions=evil), warnings=(evil,)
    )
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text.split("---\n", 2)[2])
    inner = [c for t in tokens for c in t.children or []]
    assert not any(t.type.startswith("html") for t in [*tokens, *inner])
    assert not any(c.type == "link_open" for c in inner)
    assert "h \\*\\*b" in text
    assert not any(h.startswith("h ") for h in _headings(text))


def test_the_summary_has_a_line_per_variant_and_the_verdict() -> None:
    rows = [
        row("mha", "attend", us=90.0),
        row("mha", us=200.0),
        row("gqa", us=100.0),
        failed("gqa", "attend", 1024, "oom", "x"),
    ]
    (decision,) = decide_all(settings(table(*rows).table), rule())
    lines = summary_table([decision]).splitlines()
    assert lines[0] == "Xeon, llama-3-8b, batch 1, bf16, sdpa on contiguous, 2 threads; context 1k; one layer"
    cells = {ln.split()[0]: ln.split()[1:] for ln in lines[2:5]}
    assert cells["mha"] == ["16,384", "90.00", "20.00", "80", "%", "200.0", "20.00", "80", "%"]
    assert cells["gqa"] == ["4,096", "oom", "100.0", "20.00", "80", "%"]
    assert "verdict: choose gqa" in lines


def test_what_codes_cost_in_accuracy_stands_beside_the_bytes_they_save() -> None:
    coded = [row("mha", kv_dtype="int8", kv_error=e) for e in (0.004, 0.0061)]
    text = text_of(row("mha"), *coded, row("mla", kv_dtype="fp8_e4m3", kv_error=0.039), row("gqa"))
    lines = [line for line in _section(text, "Considered Options").splitlines() if line.startswith("| ")]
    assert lines[0].endswith("| attended values off by codes |")
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["int8: 0.6 %", "n/a", "fp8_e4m3: 3.9 %"]
    assert "off by codes" not in text_of(row("mha"), row("gqa"))
