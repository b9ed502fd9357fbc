"""Predicted times are held against how far such predictions were off; what is shipped is what the fit's score says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.planning.load import NAMED
from experiments.planning.oracle import read_oracle
from experiments.planning.profile import kernel_of
from experiments.planning.score import score
from experiments.record import Measurement
from experiments.telling.decision import Decision, decide_all
from experiments.telling.doubt import Doubt, read_doubts
from tests.builders import CONF
from tests.experiments.planning.profiles import FITTED, GOLDEN, SHARED, shipped
from tests.experiments.telling.rows import pages, row, rule

H200 = "NVIDIA H200"
DOUBTS = {(H200, "profile:grouped"): Doubt(0.02, 0.10, (1, 64)), (H200, "profile:latent"): Doubt(0.03, 0.20, (16, 128))}


def predicted(attention: str, us: float, **given: Any) -> Measurement:
    kernel = "profile:latent" if attention == "mla" else "profile:grouped"
    return row(attention, us=us, origin="predicted", **{"device": H200, "kernel": kernel, **given})


def decided(*rows: Measurement, **asked: Any) -> Decision:
    (decision,) = decide_all(pages(*rows), rule(**asked), {}, DOUBTS)
    return decision


def test_predictions_tie_up_to_the_ratio_that_both_errors_could_turn() -> None:
    """(1 + 0.20) / (1 - 0.10) = 1.333: 100 us of GQA and up to 133 of MLA, which caches fewer bytes."""
    tie = decided(predicted("gqa", 100.0), predicted("mla", 133.0))
    assert tie.verdict == "choose mla"
    assert "predictions that are off by 10 % (gqa) and 20 % (mla) could turn a ratio of up to 1.33x" in tie.reasons[1]
    apart = decided(predicted("gqa", 100.0), predicted("mla", 134.0))
    assert apart.verdict == "choose gqa"
    assert "beyond what predictions are off by, 1.33x at most" in apart.reasons[1]
    other_way = decided(predicted("gqa", 122.0), predicted("mla", 100.0))  # (1 + 0.10) / (1 - 0.20) = 1.375
    assert other_way.verdict == "choose mla"
    assert "a tie" in other_way.reasons[1]


def test_an_undecided_prediction_asks_for_a_measurement_not_for_more_rounds() -> None:
    told = decided(*(predicted(a, 100.0, cache_bytes=1000) for a in ("gqa", "mqa")))
    assert told.verdict == "gqa or mqa"
    assert told.next_step == (
        "Measure step of gqa and mqa at this point: rows without an interval cannot tell them apart."
    )


def test_a_shape_beyond_the_held_out_ones_is_called_extrapolated() -> None:
    heads: dict[str, Any] = {"num_q_heads": 8, "num_kv_heads": 1}
    told = decided(predicted("gqa", 100.0, **heads), predicted("mla", 300.0, **heads))
    said = "mla is extrapolated (8 query heads per cached head, where 16 to 128 were held out): it may be further off."
    assert said in told.reasons
    assert not any(reason.startswith("gqa is extrapolated") for reason in told.reasons)


def test_a_prediction_rules_out_beyond_its_error_alone() -> None:
    """32 layers x 1 ms: GQA could take 29.1 ms, MLA 26.7."""
    rows = [predicted("gqa", 1000.0), predicted("mla", 1000.0)]
    assert decided(*rows, needs={"ms_per_token": 29.2, "other_ms": 0}).verdict == "choose mla"
    told = decided(*rows, needs={"ms_per_token": 29.0, "other_ms": 0})
    assert told.ruled_out == ("gqa is ruled out: a token takes 32.00 ms where 29.00 ms are asked for.",)
    assert decided(*rows, needs={"ms_per_token": 26.6, "other_ms": 0}).verdict == "none"


def test_measured_rows_and_unknown_devices_have_no_such_error() -> None:
    measured = [row("gqa", us=100.0, device=H200, kernel="sdpa:flash"), row("mla", us=120.0, device=H200)]
    assert decided(*measured).verdict == "choose gqa"
    unknown = [predicted("gqa", 100.0, device="NVIDIA B200"), predicted("mla", 120.0, device="NVIDIA B200")]
    told = decided(*unknown)
    assert told.verdict == "choose gqa"
    assert "Rows without a confidence interval were compared by the tie ratio alone." in told.reasons


def test_the_yaml_names_every_fitted_kernel_and_refuses_what_is_no_error(tmp_path: Path) -> None:
    found = read_doubts(CONF / "device")
    assert set(found) == {(shipped(d).name, f"profile:{k}") for d in FITTED for k in ("grouped", "latent")}
    wrong = "profile: {name: X}\nheld_out: {grouped: {points: 1, median: 0.2, p90: 0.1, rows: [1, 2], source: x}}\n"
    (tmp_path / "x.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(ValueError, match=r"x.yaml: held_out.grouped must have 0 <= median <= p90 < 1; got 0.2 and 0.1"):
        read_doubts(tmp_path)


@pytest.mark.parametrize("device", FITTED)
@pytest.mark.parametrize("layout", NAMED)
def test_what_is_shipped_is_what_held_out_points_say(device: str, layout: str) -> None:
    """To the digit with the whole table; the golden part of it, a third, says about the same on Hopper."""
    profile = shipped(device)
    kernel = kernel_of(NAMED[layout].geometry)
    doubt = read_doubts(CONF / "device")[profile.name, f"profile:{kernel}"]
    whole = SHARED.exists()
    points = read_oracle(SHARED if whole else GOLDEN, str(profile.oracle))[layout]
    told = score(profile, points)
    slack = 0.0006 if whole else 0.02 if device in ("h200", "h100_sxm") else 0.16
    assert (doubt.median, doubt.p90) == pytest.approx((told.pooled_median, told.pooled_p90), abs=slack)
    if whole:
        assert doubt.rows == (int(np.min(points.load.rows)), int(np.max(points.load.rows)))
