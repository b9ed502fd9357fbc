"""What a variant costs in the whole model, what is asked of it, and what that does to the outcome."""

from typing import Any

import pytest

from experiments.record import Measurement
from experiments.telling.decision import Decision, decide_all
from experiments.telling.whole import whole_table
from tests.experiments.telling.rows import MATMUL_TFLOPS, READ_GBPS, pages, row, rule

LAYERS = 32  # of the rows
OTHERS = {"llama-3-8b": 3_000_000_000}  # bf16: 6 GB, by the rows' ceiling of 30 GB/s 200 ms
MIB = 2**20


def decided(*rows: Measurement, **needs: Any) -> Decision:
    """The outcome of one setting."""
    (decision,) = decide_all(pages(*rows), rule(needs=needs), OTHERS)
    return decision


def family(**given: Any) -> list[Measurement]:
    """At 1k: MHA 16 MiB and 3 ms per layer, GQA 4 MiB and 2 ms, MQA 0.5 MiB and 2.5 ms."""
    return [row(name, us=us, **given) for name, us in (("mha", 3000.0), ("gqa", 2000.0), ("mqa", 2500.0))]


def test_a_token_is_all_layers_and_the_other_weights_at_the_read_ceiling() -> None:
    told = decided(*family(), row("gqa", "prefill", us=50_000.0))
    by = {w.variant: w for w in told.wholes}
    assert by["gqa"].layers_ms == pytest.approx(LAYERS * 2.0)
    assert by["gqa"].other_ms == pytest.approx(2 * OTHERS["llama-3-8b"] / READ_GBPS / 1e6) == pytest.approx(200)
    assert by["gqa"].ms == pytest.approx(264)
    assert by["gqa"].prefill_ms == pytest.approx(LAYERS * 50.0)
    assert by["gqa"].prompt_ms == pytest.approx(2 * OTHERS["llama-3-8b"] * 1024 / MATMUL_TFLOPS / 1e9)
    assert by["gqa"].first_ms == pytest.approx(1600 + 4096)
    assert (by["mha"].prefill_ms, by["mha"].first_ms) == (None, None)
    assert by["mha"].bytes == LAYERS * 16 * MIB
    assert told.verdict == "choose gqa"
    assert told.ruled_out == ()


def test_the_table_says_the_numbers_and_what_is_not_known() -> None:
    told = decided(*family(batch=4), memory="3GiB")
    lines = {line[0]: line for line in whole_table(told.wholes).rows}
    assert lines["gqa"][1:9] == ("512 MiB", "3 GiB", "24", "64.00", "200.0", "264.0", "15.15", "n/a")
    (unknown,) = decide_all(pages(*family()), rule())
    assert whole_table(unknown.wholes).rows[0][1:5] == ("512 MiB", "n/a", "n/a", "96.00")
    assert whole_table(unknown.wholes).rows[0][5:9] == ("n/a",) * 4


def test_ranks_share_the_other_weights_and_the_tokens() -> None:
    told = decided(*family(tp=2))
    (gqa,) = [w for w in told.wholes if w.variant == "gqa"]
    assert gqa.other_ms == pytest.approx(100)
    table = {line[0]: line for line in whole_table(told.wholes).rows}
    assert float(table["gqa"][7]) == pytest.approx(1e3 / 164 / 2, rel=1e-3)


def test_what_does_not_fit_is_ruled_out_and_the_fastest_of_the_others_chosen() -> None:
    told = decided(*family(), memory="100MiB")
    assert told.verdict == "choose mqa"
    assert told.reasons[0] == f"mqa is the only one that meets what is asked for: {told.candidates[2].said}."
    assert told.reasons[2].startswith("Had it met the needs: gqa is 1.25x faster than mqa (p50 2,000 us")
    assert told.ruled_out == (
        "mha is ruled out: its caches take 512 MiB of a device that has 100 MiB for them, enough for 0 of 1 sequences.",
        "gqa is ruled out: its caches take 128 MiB of a device that has 100 MiB for them, enough for 0 of 1 sequences.",
    )
    assert decided(*family(), memory="128MiB").verdict == "choose gqa"


def test_none_feasible_says_what_comes_closest_and_by_how_much_to_relax() -> None:
    told = decided(*family(), memory="8MiB", ms_per_token=240)
    assert (told.verdict, told.winners) == ("none", ())
    assert told.next_step == (
        "mqa comes closest: its caches take 16 MiB of a device that has 8 MiB for them, enough for 0 of 1 sequences "
        "(2.00x) and a token takes 280.0 ms where 240.0 ms are asked for (1.17x)."
    )


def test_a_time_rules_out_beyond_noise_alone() -> None:
    """GQA takes 264 ms by its median, 263.36 by the lower end of its interval."""
    assert decided(*family(), ms_per_token=263.5).verdict == "choose gqa"
    assert decided(*family(), ms_per_token=263).verdict == "none"


def test_other_time_may_be_given_and_the_first_token_asked_for() -> None:
    """GQA's prompt takes 1,600 ms of attention and 4,096 of other weights, MQA's 320 and 4,096."""
    first = [row("gqa", "prefill", us=50_000.0), row("mqa", "prefill", us=10_000.0)]
    assert decided(*family(), *first, other_ms=0, ms_per_token=70).verdict == "choose gqa"
    told = decided(*family(), *first, ms_to_first_token=5000)
    assert told.verdict == "choose mqa"
    assert told.ruled_out == ("gqa is ruled out: the first token takes 5,696 ms where 5,000 ms are asked for.",)


def test_a_prefill_of_several_prompts_is_shared_among_them() -> None:
    told = decided(*family(batch=4), row("gqa", "prefill", us=50_000.0, batch=4))
    assert [w.prefill_ms for w in told.wholes] == pytest.approx([None, LAYERS * 50.0 / 4, None])


def test_what_is_asked_for_and_not_known_is_not_enough_evidence() -> None:
    told = decided(*family(), row("mqa", "prefill", us=10_000.0), ms_to_first_token=5000)
    assert (told.verdict, told.winners) == ("not enough evidence", ())
    lacks = "time to first token is not known: it has no prefill row"
    assert told.next_step == f"What is asked for and not known: gqa: {lacks}."
    assert f"gqa would be chosen by its time, but {lacks}." in told.reasons
    (unknown,) = decide_all(pages(*family()), rule(needs={"ms_per_token": 200}))
    assert unknown.verdict == "not enough evidence"
    assert "what a token takes beside the attention layers is unknown" in (unknown.next_step or "")


def test_memory_was_given_for_the_weights_that_the_model_has() -> None:
    """MLA's weights take a MiB per layer more than GQA's, 32 MiB in all."""
    rows = [row("gqa", us=2000.0, weight_bytes=4 * MIB), row("mla", us=1000.0, weight_bytes=5 * MIB)]
    asked: dict[str, Any] = {"needs": {"memory": "100MiB"}, "question": {"own": "gqa"}}
    (told,) = decide_all(pages(*rows), rule(**asked))
    assert [w.room for w in told.wholes] == [100 * MIB, 68 * MIB]
    assert [w.fits for w in told.wholes] == [0, 1]  # 128 MiB and 36 MiB each
    asked["needs"] = {"memory": "67MiB"}
    (tight,) = decide_all(pages(*rows), rule(**asked))
    assert tight.next_step is not None
    assert tight.next_step.startswith("mla comes closest: its caches take 36 MiB of a device that has 35 MiB for them")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"memory": 80}, "report.needs.memory must be whole bytes with a unit"),
        ({"ms_per_token": 0}, "report.needs.ms_per_token must be milliseconds, a number > 0; got 0"),
        ({"ms_to_first_token": "soon"}, "report.needs.ms_to_first_token must be milliseconds"),
        ({"other_ms": -1}, "report.needs.other_ms must be milliseconds, a number >= 0; got -1"),
        ({"speed": 1}, "report.needs must have exactly the fields memory, ms_per_token"),
    ],
)
def test_needs_that_are_none_are_refused_by_name(needs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        rule(needs=needs)
