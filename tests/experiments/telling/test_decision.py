"""The outcome follows from the rule, names its rows, and never says more than they do."""

from typing import Any

import pytest

from experiments.record import Measurement
from experiments.telling.consequences import consequences
from experiments.telling.decision import Decision, decide_all
from experiments.telling.rule import Rule
from tests.experiments.telling.rows import failed, pages, row, rule


def _decide(*rows: Measurement, by: Rule | None = None) -> Decision:
    (decision,) = decide_all(pages(*rows), by or rule())
    return decision


def _text(decision: Decision) -> str:
    return " ".join([*decision.reasons, *(a.why for a in decision.absent), decision.next_step or ""])


def test_the_fastest_beyond_noise_is_chosen_though_another_caches_less() -> None:
    told = _decide(row("mha", us=300.0), row("gqa", us=100.0, key="g"), row("mqa", us=150.0, key="q"))
    assert (told.verdict, told.winners, told.next_step) == ("choose gqa", ("gqa",), None)
    assert "mqa is 1.50x slower than gqa" in _text(told)
    assert "beyond noise" in _text(told)
    assert {"g", "q"} <= set(_text(told).replace(".", " ").replace(")", " ").replace(",", " ").split())


def test_overlapping_intervals_are_a_tie_that_fewer_bytes_settle() -> None:
    wide: dict[str, Any] = {"latency_us_ci_low": 80.0, "latency_us_ci_high": 140.0}
    told = _decide(row("gqa", us=100.0, **wide), row("mqa", us=120.0, **wide))
    assert told.verdict == "choose mqa"
    assert "a tie, because their confidence intervals overlap" in _text(told)
    assert "gqa 4,194,304 B (4 MiB)" in _text(told)


def test_intervals_apart_and_a_ratio_beyond_the_tie_ratio_are_no_tie() -> None:
    narrow: dict[str, Any] = {"latency_us_ci_low": 99.0, "latency_us_ci_high": 101.0}
    slower: dict[str, Any] = {"latency_us_ci_low": 105.5, "latency_us_ci_high": 107.0}
    assert _decide(row("gqa", us=100.0, **narrow), row("mqa", us=106.0, **slower)).verdict == "choose gqa"
    within: dict[str, Any] = {"latency_us_ci_low": 103.0, "latency_us_ci_high": 105.0}
    told = _decide(row("gqa", us=100.0, **narrow), row("mqa", us=104.0, **within))
    assert told.verdict == "choose mqa"
    assert "within the tie ratio of 1.05" in _text(told)


def test_a_tie_in_time_and_bytes_is_undecided_and_says_what_would_decide() -> None:
    told = _decide(row("mla", us=100.0), row("gla", us=101.0, cache_bytes=1024 * 1152))
    assert told.verdict == "gla or mla"
    assert told.winners == ("gla", "mla")
    assert "More rounds of gla and mla" in (told.next_step or "")


def test_one_candidate_is_not_enough_and_the_lacking_rows_are_named() -> None:
    told = _decide(
        row("mha", key="have"),
        row("gqa", context=512),
        failed("mla", "step", 1024, "crash", "signal 9", key="dead"),
        by=rule(context=1024, expected=("mha", "gqa", "mqa", "mla")),
    )
    assert told.verdict == "not enough evidence"
    text = _text(told)
    assert "mha has an ok step row (row have)" in text
    assert "Without one: gqa (not run at this point; it has ok rows at 512)" in text
    assert "Without one: mla (crash, signal 9 (row dead))" in text
    assert "Without one: mqa (never run" in text
    assert "An ok step row of gqa, mla, mqa at context 1k" in text


def test_none_when_all_are_refused_or_too_large() -> None:
    rows = [failed("mha", "step", 1024, "too_large", "64 GiB"), failed("gqa", "step", 1024, "refused", "no bf16")]
    told = _decide(*rows)
    assert (told.verdict, told.winners) == ("none", ())
    assert "64 GiB" in _text(told)
    assert _decide(*rows, failed("mla", "step", 1024, "crash", "signal 9")).verdict == "not enough evidence"
    assert _decide(*rows, by=rule(expected=("mha", "gqa", "mqa"))).verdict == "not enough evidence"  # mqa was not tried


def test_the_context_is_the_largest_that_two_variants_share() -> None:
    rows = [row(a, context=c, us=c) for a in ("mha", "gqa") for c in (1024, 4096)]
    assert _decide(*rows, row("gqa", context=8192)).context == 4096
    assert _decide(*rows, row("gqa", context=8192), by=rule(context="1k")).context == 1024
    assert _decide(row("gqa", context=1024), failed("gqa", "step", 4096, "oom", "x")).context == 1024


def test_only_ok_rows_of_the_decided_scope_compete() -> None:
    doubtful = row("mqa", us=1.0, status="quarantined", reason="above ceiling")
    told = _decide(row("mha", us=200.0), row("gqa", us=100.0), row("mha", "attend", us=1.0), doubtful)
    assert told.verdict == "choose gqa"
    assert {a.variant: a.status for a in told.absent} == {"mqa": "quarantined"}


def test_a_warm_time_is_never_put_beside_a_cold_one() -> None:
    told = _decide(row("mha", us=200.0), row("gqa", us=100.0), row("mqa", us=1.0, temperature="warm"))
    assert (told.verdict, told.temperature) == ("choose gqa", "cold")
    assert ("mqa", "ok") in {(a.variant, a.status) for a in told.absent}
    assert "is warm" in _text(told)


def test_each_machine_and_batch_has_its_own_outcome_without_ratios_across() -> None:
    rows = [
        row(a, us=u, device=d)
        for d, a, u in (("A", "mha", 1.0), ("A", "gqa", 2.0), ("B", "mha", 20.0), ("B", "gqa", 10.0))
    ]
    first, second = decide_all(pages(*rows), rule())
    assert (first.verdict, second.verdict) == ("choose mha", "choose gqa")
    assert not any(
        "10.0x" in s or "20.0x" in s for d in (first, second) for s in (*d.reasons, *consequences(d, rule()))
    )


def test_a_batch_that_was_not_run_is_bad_input() -> None:
    rows = [row(a, batch=b) for a in ("mha", "gqa") for b in (1, 4)]
    assert [d.setting.values["batch"] for d in decide_all(pages(*rows), rule(batch=4))] == [4]
    with pytest.raises(ValueError, match=r"one of \[1, 4\]; got 8"):
        decide_all(pages(*rows), rule(batch=8))


def test_a_variant_below_half_of_its_roofline_is_called_kernel_limited() -> None:
    told = _decide(
        row("gqa", us=100.0, roofline_fraction=0.8),
        row("gqa", "attend", us=100.0, roofline_fraction=0.7),
        row("mla", us=150.0, roofline_fraction=0.3),
        row("mla", "attend", roofline_fraction=0.2, key="slow"),
        row("mqa", us=160.0, roofline_fraction=0.5),
        row("mqa", "attend", context=512, roofline_fraction=0.2),  # not at the point where it is decided
        row("mqa", "attend", temperature="warm", roofline_fraction=0.2),  # held against another roof
    )
    assert list(told.kernel_limited) == ["mla"]
    assert "attend at 20 % of its roofline, row slow, and step at 30 %" in told.kernel_limited["mla"]
    assert any(
        s.startswith("Bad, because mla is held back by its kernel (rows slow, ") for s in consequences(told, rule())
    )


def _of_three(gqa: float = 0.8, mha: float = 0.8, mla: float = 0.8, **given: Any) -> Decision:
    """gqa is chosen, mha the runner-up, mla the last; their shares of the roofline."""
    shares = {"gqa": gqa, "mha": mha, "mla": mla}
    return _decide(
        *(
            row(a, us=100.0 + 50 * i, roofline_fraction=f, key=f"row-{a}", **given)
            for i, (a, f) in enumerate(shares.items())
        )
    )


def test_an_outcome_that_a_kernel_set_says_so() -> None:
    for told, named, then in (
        (_of_three(gqa=0.3), ["gqa (chosen; step at 30 % of its roofline, row row-gqa)"], "would only help it"),
        (
            _of_three(mha=0.4),
            ["mha (runner-up; step at 40 % of its roofline, row row-mha)"],
            "may reverse this outcome",
        ),
        (_of_three(gqa=0.3, mha=0.4), ["gqa (chosen; ", "mha (runner-up; "], "may reverse this outcome"),
    ):
        assert told.verdict == "choose gqa"
        assert told.caution is not None
        assert told.caution.startswith("The kernel, not the architecture, sets the time of ")
        assert [name in told.caution for name in named] == [True] * len(named)
        assert told.caution.count("; ") == len(named)
        assert told.caution.endswith(f": a better kernel {then}.")


def test_an_outcome_that_no_kernel_set_has_no_caution() -> None:
    assert _of_three().caution is None
    assert _of_three(gqa=0.5, mha=0.5).caution is None
    assert _of_three(mla=0.1).caution is None  # the last is held back; the two that the outcome rests on are not
    assert _decide(row("mha", roofline_fraction=0.1)).caution is None  # nothing was chosen


def test_a_predicted_time_is_no_verdict_on_a_kernel() -> None:
    told = _of_three(gqa=0.1, mha=0.1, mla=0.1, origin="predicted")
    assert (told.kernel_limited, told.caution) == ({}, None)


def test_several_backends_compete_by_the_best_of_each_variant() -> None:
    told = _decide(
        row("mha", us=100.0, backend="eager"),
        row("mha", us=300.0, backend="sdpa"),
        row("gqa", us=250.0, backend="eager"),
        row("gqa", us=90.0, backend="numba", storage="paged", key="g"),
        failed("mla", "step", 1024, "refused", "too wide", backend="sdpa"),
        failed("mla", "step", 1024, "crash", "signal 9", backend="eager"),
    )
    assert told.verdict == "choose gqa"
    assert "by numba on paged, row g" in _text(told)
    assert "mha is 1.11x slower than gqa" in _text(told)
    assert "crash, signal 9" in _text(told)  # of all reasons why mla has no time, not that one backend is too narrow


def test_rows_without_an_interval_are_compared_by_ratio_and_it_is_said() -> None:
    bare: dict[str, Any] = {"latency_us_ci_low": None, "latency_us_ci_high": None, "samples": 1}
    told = _decide(row("mha", us=100.0, **bare), row("gqa", us=90.0, **bare))
    assert told.verdict == "choose gqa"
    assert "without a confidence interval were compared by the tie ratio alone" in _text(told)
    assert "beyond noise" not in _text(told)


def test_consequences_state_ratios_in_the_right_direction() -> None:
    told = _decide(row("mha", us=100.0, key="m"), row("gqa", us=80.0, key="g"))
    said = consequences(told, rule())
    assert "Good, because gqa is 1.25x faster than mha per layer and step (rows g, m)." in said
    assert "Good, because gqa caches 4.00x fewer bytes than mha (rows g, m)." in said
    whole = 32 * 1024 * 4096
    assert f"Neutral, because gqa caches {whole:,} B (128 MiB) for a sequence of 1k tokens over 32 layers." in said


def test_what_is_given_up_is_a_consequence_too() -> None:
    told = _decide(row("gqa", us=80.0, key="g"), row("mqa", us=100.0, key="q"))
    assert any(
        s.startswith("Bad, because mqa caches 8.00x fewer bytes than gqa, and its time rules it out")
        for s in consequences(told, rule())
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scope": "prefill"}, "report.scope must be attend or step"),
        ({"tie_ratio": 0.9}, "report.tie_ratio must be >= 1"),
        ({"tie_ratio": "much"}, "report.tie_ratio must be a number"),
        ({"kernel_limited_below": 2}, "report.kernel_limited_below must be from 0 to 1"),
        ({"context": "12q"}, "report.context must be a whole number"),
        ({"batch": 0}, "report.batch must be a whole number >= 1"),
        ({"margin": 3}, "check 'margin'"),
    ],
)
def test_a_wrong_rule_names_its_field(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rule(**given)
