"""Data-parallel attention on the same devices: from rows of fewer ranks and a smaller batch, summed by hand."""

from typing import Any

import pytest

from experiments.record import Measurement
from experiments.telling.decision import Decision, decide_all
from experiments.telling.spread import Laid, laid_out, spread_said, spread_table
from tests.experiments.telling.rows import READ_GBPS, pages, row, rule

LAYERS, MIB = 32, 2**20
OTHERS = {"llama-3-8b": 3_000_000_000}  # 6 GB; over 4 devices 50 ms at 30 GB/s
ASKED: dict[str, Any] = {"tp": 4, "own": "gqa"}
ROWS = [
    row("gqa", us=1000.0, batch=8, tp=4, key="g4", allocated_bytes=2 * MIB, weight_bytes=3 * MIB),
    row("mla", us=2000.0, batch=8, tp=4, key="l4", allocated_bytes=4 * MIB, weight_bytes=4 * MIB),
    row("gqa", us=1100.0, batch=2, tp=1, key="g1", allocated_bytes=2 * MIB, weight_bytes=12 * MIB),
    row("mla", us=600.0, batch=2, tp=1, key="l1", allocated_bytes=1 * MIB, weight_bytes=16 * MIB),
]


def laid(*rows: Measurement, memory: str | None = "1GiB", **given: Any) -> tuple[Decision, list[Laid]]:
    by = rule(batch=8, question=ASKED, needs={"memory": memory}, **given)
    (decision,) = decide_all(pages(*rows), by, OTHERS)
    return decision, laid_out(decision, pages(*rows), by, OTHERS)


def test_a_group_serves_its_share_with_the_other_weights_over_all_devices() -> None:
    decision, found = laid(*ROWS)
    assert decision.verdict == "choose gqa"
    assert [(it.whole.variant, it.tp, it.groups, it.whole.batch) for it in found] == [
        ("gqa", 4, 1, 8),
        ("mla", 4, 1, 8),
        ("gqa", 1, 4, 2),
        ("mla", 1, 4, 2),
    ]
    other = 2 * OTHERS["llama-3-8b"] / 4 / READ_GBPS / 1e6
    assert [it.whole.ms for it in found] == pytest.approx(
        [LAYERS * 1.0 + other, LAYERS * 2.0 + other, LAYERS * 1.1 + other, LAYERS * 0.6 + other]
    )


def test_what_fits_counts_the_weights_that_each_way_keeps_on_a_device() -> None:
    """1 GiB beside GQA's weights at tp 4; alone on a device MLA's take 32 x 13 MiB more: 608 MiB, GQA's 736."""
    _, found = laid(*ROWS)
    assert [it.whole.room for it in found] == [1024 * MIB, 992 * MIB, 736 * MIB, 608 * MIB]
    assert [it.fits for it in found] == [1024 * 8 // 64, 992 * 8 // 128, 4 * (736 * 2 // 64), 4 * (608 * 2 // 32)]
    table = {line[0] + line[1]: line for line in spread_table(found).rows}
    assert table["mla1"][2:7] == ("4", "2", "32 MiB", "608 MiB", "152")
    assert float(table["mla1"][8]) == pytest.approx(1e3 * 2 / 69.2, rel=1e-3)  # tokens of two sequences by one device


def test_what_beats_the_chosen_is_said_with_its_rows() -> None:
    decision, found = laid(*ROWS)
    assert spread_said(found, decision) == (
        "gqa at tp 4 takes 82.00 ms per token and holds 128 sequences of this length (rows g4); the same devices with "
        "data-parallel attention: mla in 4 data-parallel groups of tp 1 takes 69.20 ms, 1.18x less (rows l1); mla in 4 "
        "data-parallel groups of tp 1 holds 152 sequences (rows l1). Details under what would flip it."
    )


def test_without_a_gain_or_another_way_nothing_is_said() -> None:
    decision, found = laid(*ROWS[:3])
    assert len(found) == 3
    assert spread_said(found, decision) is None
    alone, ways = laid(*ROWS[:2])
    assert (ways, spread_said(ways, alone)) == ([], None)


def test_a_batch_of_another_size_is_no_way_to_serve_this_one() -> None:
    half = [row(a, us=500.0, batch=1, tp=1) for a in ("gqa", "mla")]
    assert laid(*ROWS[:2], *half)[1] == []
