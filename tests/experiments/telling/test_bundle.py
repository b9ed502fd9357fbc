"""The bundle with a real question: its commands give its report again, and every key it names is a row."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from experiments.foretold import foreteller
from experiments.planned import planner
from experiments.planning.others import other_weight_elements
from experiments.record import Measurement
from experiments.records import load
from experiments.telling.decision import Decision, decide_all
from experiments.telling.doubt import read_doubts
from experiments.telling.evidence import read_evidence
from experiments.telling.frame import tidy
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting, settings
from experiments.telling.spread import laid_out
from experiments.telling.tell import Beside, tell
from tests.builders import CONF, ROOT

BUNDLE = ROOT / "results" / "0002-llama3-70b-8xh200"
LAYERS, CONTEXT, BATCH = 80, 131_072, 16


@pytest.fixture(scope="module")
def rows() -> tuple[Measurement, ...]:
    return tuple(load(BUNDLE).rows)


@pytest.fixture(scope="module")
def pages() -> list[Setting]:
    return settings(tidy(load(BUNDLE), BUNDLE).table)


def asked(**changed: object) -> Rule:
    """The shipped question, some of its fields changed."""
    default, own = (
        yaml.safe_load((CONF / "report" / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("default", "llama3_70b_h200")
    )
    own.pop("defaults")
    default.pop("evidence")
    needs = default["needs"] | own.pop("needs") | changed.pop("needs", {})
    return Rule.parse(default | own | changed | {"needs": needs})


def decided(pages: list[Setting], rule: Rule) -> Decision:
    (decision,) = decide_all(pages, rule, other_weight_elements(), read_doubts(CONF / "device"))
    return decision


def test_measured_and_predicted_rows_never_share_a_setting(pages: list[Setting]) -> None:
    for page in pages:
        assert page.rows["origin"].nunique() == 1
    assert {page.values["origin"] for page in pages} == {"measured", "predicted"}


def test_gqa_is_kept_at_tp_8_and_room_not_time_alone_is_what_mla_lacks(pages: list[Setting]) -> None:
    told = decided(pages, asked())
    assert (told.verdict, told.context) == ("choose gqa", CONTEXT)
    fits = {whole.variant: (whole.bytes, whole.fits) for whole in told.wholes}
    assert fits["gqa"] == (LAYERS * BATCH * CONTEXT * 512, 21)  # one of 8 kv heads, keys and values of 128 in bf16
    assert fits["mla"][0] == LAYERS * BATCH * CONTEXT * 1152  # 512 + 64 in bf16, on every rank
    assert fits["mla"][1] == 9
    (out,) = [said for said in told.ruled_out if said.startswith("mla")]
    assert out.endswith(
        "its caches take 180 GiB of a device that has 104.1 GiB for them, enough for 9 of 16 sequences."
    )


def test_data_parallel_attention_turns_it_and_the_rows_say_by_how_much(pages: list[Setting]) -> None:
    rule = asked()
    found = laid_out(decided(pages, rule), pages, rule, other_weight_elements())
    by = {(it.whole.variant, it.tp): it for it in found}
    assert by["mla", 1].whole.ms < by["gqa", 8].whole.ms < by["mla", 8].whole.ms
    assert (by["mla", 1].fits or 0) > 2 * (by["gqa", 8].fits or 0)


@pytest.mark.parametrize(
    ("needs", "verdict", "next_step"),
    [
        ({"memory": "60GB"}, "none", "gqa comes closest: its caches take 80 GiB of a device that has 55.88 GiB"),
        (
            {"ms_per_token": 20},
            "none",
            "gqa comes closest: a token takes 25.32 ms where 20.00 ms are asked for (1.27x).",
        ),
        ({"ms_to_first_token": 5000}, "none", "gqa comes closest: the first token takes 7,"),
    ],
)
def test_none_feasible_is_reached_with_what_to_relax(
    pages: list[Setting], needs: dict[str, object], verdict: str, next_step: str
) -> None:
    told = decided(pages, asked(needs=needs))
    assert told.verdict == verdict
    assert (told.next_step or "").startswith(next_step)


def test_undecided_and_not_enough_evidence_are_reached(pages: list[Setting]) -> None:
    rule = asked()
    nobodys = replace(rule, question=replace(rule.question, own=None))
    told = decided(pages, nobodys)
    assert told.verdict == "gqa or mqa"
    assert (told.next_step or "").startswith("Measure step of gqa and mqa at this point")
    longer = decided(pages, asked(context="256k"))
    assert longer.verdict == "not enough evidence"
    assert longer.next_step == "An ok step row of mha, gqa, mqa, mla at context 256k in this setting."


def test_every_key_in_the_report_is_one_of_its_rows_and_those_of_flips_are_of_their_place(
    rows: tuple[Measurement, ...],
) -> None:
    text = (BUNDLE / "report.md").read_text(encoding="utf-8")
    by = {row.key: row for row in rows}
    keys = re.findall(r"\b[0-9a-f]{16}\b", text)
    assert len(set(keys)) > 50
    assert set(keys) <= set(by)
    sentences = [line for line in text.splitlines() if line.startswith("* At tp ")]
    assert sentences
    for line in sentences:
        tp, variant = re.match(r"\* At tp (\d+), (\w+) beats gqa", line).groups()  # type: ignore[union-attr]
        named = [by[key] for key in re.findall(r"\b[0-9a-f]{16}\b", line)]
        assert {row.tp for row in named} == {int(tp)}
        assert {row.attention for row in named} == {"gqa", variant}


@pytest.mark.slow
def test_the_bundle_tells_its_report_again_byte_for_byte(tmp_path: Path) -> None:
    text = (BUNDLE / "report.md").read_text(encoding="utf-8")
    command = "python -m experiments.report runs=results/0002-llama3-70b-8xh200 report=llama3_70b_h200"
    assert command in text
    evidence, doubts = read_evidence(CONF / "evidence", "all"), read_doubts(CONF / "device")
    beside = Beside(evidence, other_weight_elements(), planner(CONF), foreteller(CONF), doubts)
    told = tell(BUNDLE, tmp_path / "out", asked(), command, beside)
    assert told.page.read_text(encoding="utf-8") == text
    assert {path.name for path in told.figures} == {path.name for path in (BUNDLE / "figures").glob("*.png")}


def test_the_bundle_is_small_and_holds_no_page_that_a_command_makes() -> None:
    files = [path for path in BUNDLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000
    assert not [path for path in files if path.suffix == ".html"]
