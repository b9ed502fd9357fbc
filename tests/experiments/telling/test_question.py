"""What a report is asked: which settings and variants, mixes of contexts and batches, what is kept where all tie."""

from typing import Any

import pytest

from experiments.record import Measurement
from experiments.telling.consequences import consequences
from experiments.telling.decision import Decision, decide_all
from experiments.telling.mix import Mix
from experiments.telling.whole import whole_table
from tests.experiments.telling.rows import failed, pages, row, rule

TWO = ("gqa", "mla")


def decided(*rows: Measurement, others: dict[str, int] | None = None, **asked: Any) -> Decision:
    (decision,) = decide_all(pages(*rows), rule(**asked), others or {})
    return decision


def crossing(context: int, **given: Any) -> list[Measurement]:
    """GQA takes 100 us per 1k of context, MLA 300 us."""
    us = {"gqa": context / 1024 * 100, "mla": 300.0}
    return [row(a, context=context, us=us[a], key=f"{a}-{context}-{given.get('batch', 1)}", **given) for a in TWO]


def test_only_settings_that_are_asked_about_are_decided() -> None:
    rows = [*crossing(1024, tp=8), *crossing(8192, tp=1), *crossing(8192, tp=8, device="H200")]
    told = decided(*rows, question={"device": "h200", "tp": 8})
    assert (told.setting.values["device"], told.verdict) == ("H200", "choose mla")
    assert len(decide_all(pages(*rows), rule(question={"tp": 8}))) == 2
    with pytest.raises(ValueError, match="report.question.device must be one that was run, of H200, Xeon; got B200"):
        decided(*rows, question={"device": "B200"})
    with pytest.raises(ValueError, match="report.question.tp must be one that was run, of 8; got 4"):
        decided(*rows, question={"device": "H200", "tp": 4})


def test_only_variants_that_are_asked_about_compete_and_those_never_run_are_missed() -> None:
    rows = [row("gqa", us=200.0), row("mla", us=300.0), row("mqa", us=100.0)]
    assert decided(*rows).verdict == "choose mqa"
    told = decided(*rows, question={"variants": ["gqa", "mla"]})
    assert (told.verdict, told.absent) == ("choose gqa", ())
    lacking = decided(*rows[:1], question={"variants": ["gqa", "mla"]})
    assert lacking.verdict == "not enough evidence"
    assert [(a.variant, a.why) for a in lacking.absent] == [("mla", "never run: the records hold no row of it")]


def test_what_the_model_has_is_kept_where_time_and_bytes_tie() -> None:
    even = [row(a, us=100.0, cache_bytes=1000, key=a) for a in ("gqa", "mqa")]
    undecided = decided(*even)
    assert undecided.verdict == "gqa or mqa"
    assert (undecided.next_step or "").startswith("More rounds of gqa and mqa at this point")
    kept = decided(*even, question={"own": "gqa"})
    assert (kept.verdict, kept.winners, kept.next_step) == ("choose gqa", ("gqa",), None)
    assert "gqa is what the model has: nothing need be converted or trained." in kept.reasons
    fewer = [row("gqa", us=100.0, cache_bytes=1000), row("mqa", us=100.0, cache_bytes=999)]
    assert decided(*fewer, question={"own": "gqa"}).verdict == "choose mqa"


def test_a_change_of_attention_is_named_with_what_no_row_prices() -> None:
    asked: dict[str, Any] = {"question": {"own": "gqa"}, "baseline": "gqa"}
    moved = consequences(decided(*crossing(8192), **asked), rule(**asked))
    assert any("its weights must be converted to mla and trained on" in said for said in moved)
    stays = consequences(decided(*crossing(1024), **asked), rule(**asked))
    assert "Good, because gqa is what the model has: no weights are converted, none are trained again." in stays


def test_a_cache_that_every_rank_keeps_whole_is_named_with_its_row() -> None:
    rows = [
        row("gqa", us=100.0, tp=8, tp_mode="sharded"),
        row("mla", us=200.0, tp=8, tp_mode="replicated", key="whole"),
    ]
    said = consequences(decided(*rows), rule())
    (named,) = [s for s in said if "replicated" in s]
    assert named.startswith("Bad, because at tp 8 what mla caches is replicated: every rank keeps 1,152 B per token")
    assert named.endswith("(row whole).")
    assert any("two all-reduces per layer" in s for s in said)
    assert not any("all-reduces" in s for s in consequences(decided(*crossing(1024)), rule()))


def test_over_a_mix_of_contexts_the_mean_time_decides() -> None:
    """GQA: 0.7 x 100 + 0.3 x 800 = 310 us, MLA 300; with 0.8 to 0.2 GQA takes 240."""
    rows = [*crossing(1024), *crossing(8192)]
    assert decided(*rows, context={"1k": 0.8, "8k": 0.2}).verdict == "choose gqa"
    told = decided(*rows, context={"1k": 0.7, "8k": 0.3}, tie_ratio=1.0)
    gqa = told.candidates[0]
    assert gqa.us == pytest.approx(310)
    assert (gqa.low, gqa.high) == pytest.approx((310 * 0.99, 310 * 1.01))
    assert gqa.keys == ("gqa-1024-1", "gqa-8192-1")
    assert gqa.bytes == round((0.7 * 1024 + 0.3 * 8192) * 4096)
    assert told.verdict == "choose mla"
    assert told.point == "context 1k (70 %), 8k (30 %)"
    assert "mean 310.0 us (70 % at context 1k: " in " ".join(told.reasons)


def test_every_point_of_a_mix_must_meet_the_needs_and_the_worst_is_named() -> None:
    rows = [*crossing(1024), *crossing(8192)]
    asked: dict[str, Any] = {"context": {"1k": 0.9, "8k": 0.1}, "needs": {"ms_per_token": 20, "other_ms": 0}}
    told = decided(*rows, **asked)
    assert told.verdict == "choose mla"  # the mean of gqa, 170 us in 32 layers, would be 5.4 ms
    assert told.ruled_out == ("gqa is ruled out: at context 8k a token takes 25.60 ms where 20.00 ms are asked for.",)
    table = whole_table(told.wholes)
    assert table.header[1] == "at"
    assert [line[:2] for line in table.rows] == [(a, f"context {c}") for c in ("1k", "8k") for a in TWO]


def test_a_mix_of_batches_takes_each_from_its_own_setting() -> None:
    """GQA at batch 1 takes 200 us, at batch 4 800; MLA 300 at both: 0.75 x 200 + 0.25 x 800 = 350."""
    rows = crossing(2048)
    asked: dict[str, Any] = {"batch": {1: 0.75, 4: 0.25}, "context": "2k"}
    long = [row(a, context=2048, us=us, batch=4, key=f"{a}-4") for a, us in (("gqa", 800.0), ("mla", 300.0))]
    told = decided(*rows, *long, **asked)
    assert told.verdict == "choose mla"
    assert told.candidates[0].us == pytest.approx(350)
    assert told.candidates[0].keys == ("gqa-2048-1", "gqa-4")
    assert told.batch == "1 (75 %), 4 (25 %)"
    with pytest.raises(ValueError, match=r"one of \[1, 4\]; got 1 \(50 %\), 8 \(50 %\)"):
        decided(*rows, *long, batch={1: 0.5, 8: 0.5})


def test_a_variant_that_lacks_a_point_of_a_mix_is_told_by_that_point() -> None:
    rows = [*crossing(1024), row("gqa", context=8192), failed("mla", "step", 8192, "oom", "8 GiB", key="dead")]
    told = decided(*rows, context={"1k": 0.5, "8k": 0.5})
    assert told.verdict == "not enough evidence"
    assert [(a.variant, a.why) for a in told.absent] == [("mla", "oom, 8 GiB (row dead)")]
    assert told.next_step == "An ok step row of mla at context 1k and 8k in this setting."


def test_nothing_that_fits_says_what_comes_closest_and_what_it_takes() -> None:
    none = decided(
        failed("mha", "step", 1024, "too_large", "needs 64 GiB, 8 GiB are there", cache_bytes=64 * 2**30, key="m"),
        failed("gqa", "step", 1024, "too_large", "needs 16 GiB, 8 GiB are there", cache_bytes=16 * 2**30, key="g"),
        failed("mla", "step", 1024, "refused", "no bf16", cache_bytes=1, key="l"),
    )
    assert none.verdict == "none"
    assert (none.next_step or "").startswith("gqa comes closest: too_large, needs 16 GiB, 8 GiB are there (row g). ")


def test_a_mix_is_sizes_with_shares() -> None:
    assert str(Mix.parse({"8k": 0.7, "128k": 0.3}, "x")) == "8k (70 %), 128k (30 %)"
    assert Mix.parse("8k", "x") == Mix(((8192, 1.0),))
    assert Mix.parse(None, "x") is None
    for wrong in ({"8k": 0.7}, {"8k": 1.5, "1k": -0.5}, {"8k": True}, {"8k": 0.5, 8192: 0.5}, {}):
        with pytest.raises(ValueError, match="report.context must give sizes, each once, shares > 0 that add up to 1"):
            rule(context=wrong)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"speed": 1}, "report.question must have exactly the fields text, model, device, tp, variants, own"),
        ({"tp": 0}, "report.question.tp must be a whole number of ranks >= 1 or null; got 0"),
        ({"device": 200}, "report.question.device must be a text or null; got 200"),
        ({"variants": ["gqa"]}, "report.question.variants must be a list of two names or more, or null"),
        ({"variants": ["gqa", "mla"], "own": "mha"}, "report.question.own must be one of its variants gqa, mla"),
    ],
)
def test_a_question_that_is_none_is_refused_by_name(question: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rule(question=question)
