"""Two variants against each other, by rows whose crossing is known, and every key followed to its row."""

import re
from typing import Any

from experiments.record import Measurement
from experiments.telling.duel import duels
from tests.experiments.telling.rows import pages, row, rule

CONTEXTS = (1024, 2048, 4096)
KEY = re.compile(r"\b[gl][as]\d+b\d+t\d+\b")


def rows(batch: int = 16, tp: int = 1, **given: Any) -> list[Measurement]:
    """GQA attends in a tenth of its context in us, MLA in 150; absorption takes MLA another 150, GQA nothing.

    GQA caches 4,096 B per token over all ranks, MLA 1,152 on each.
    """
    made = []
    for context in CONTEXTS:
        common: dict[str, Any] = {"context": context, "batch": batch, "tp": tp, **given}
        size = {"gqa": batch * context * 4096 // tp, "mla": batch * context * 1152}
        for scope, extra in (("attend", 0.0), ("step", 150.0)):
            at = f"{scope[0]}{context}b{batch}t{tp}"
            made.append(row("gqa", scope, us=context / 10, key=f"g{at}", cache_bytes=size["gqa"], **common))
            made.append(row("mla", scope, us=150.0 + extra, key=f"l{at}", cache_bytes=size["mla"], **common))
    return made


def said(*given: Measurement, **asked: Any) -> list[str]:
    return duels(pages(*given), rule(**{"question": {"own": "gqa"}, **asked}), {})


def test_absorption_moves_the_context_from_which_mla_wins() -> None:
    """By attend alone 150 us against 204.8 at 2k; with absorption 300 against 409.6 at 4k."""
    (told,) = said(*rows())
    assert told == (
        "At tp 1, mla beats gqa per step from context 4k on (not yet at 2k) at batch 16; by the kernel alone from "
        "context 2k on (not yet at 1k) at batch 16; at best 1.37x faster at context 4k, batch 16, at worst 2.93x "
        "slower at context 1k, batch 16 (rows gs2048b16t1, ls2048b16t1, gs4096b16t1, ls4096b16t1, gs1024b16t1, "
        "ls1024b16t1)."
    )


def test_bytes_per_device_turn_where_ranks_share_what_the_other_replicates() -> None:
    """4,096 / tp against 1,152: 2,048 at tp 2 are more, 1,024 at tp 4 fewer."""
    told = said(*(r for tp in (1, 2, 4, 8) for r in rows(tp=tp)))[-1]
    assert told.startswith(
        "gqa caches fewer bytes per device than mla from tp 4 on (at tp 2 mla caches 1.78x fewer) (rows"
    )
    assert {"gs4096b16t2", "ls4096b16t2", "gs4096b16t4", "ls4096b16t8"} <= set(KEY.findall(told))


def test_batches_of_one_turn_share_a_clause_and_never_is_said_so() -> None:
    slow = [r for r in rows(batch=1) if r.attention == "gqa"]
    slow += [row("mla", r.scope, r.context or 0, us=9000.0, key=r.key.replace("g", "l", 1)) for r in slow]
    (told,) = said(*rows(batch=16), *rows(batch=32), *slow)
    assert "per step at no context run at batch 1, from context 4k on (not yet at 2k) at batch 16, 32;" in told


def test_a_tie_is_no_win() -> None:
    even = [row(a, context=c, us=us, key=f"{a}{c}") for c in CONTEXTS for a, us in (("gqa", 100.0), ("mla", 98.0))]
    (told, _) = (*said(*even), "")
    assert "mla beats gqa per step at no context run at batch 1" in told
    assert "at best 1.02x faster, a tie at context" in told


def test_every_key_is_a_row_of_what_the_sentence_is_about() -> None:
    every = [*rows(), *rows(batch=1), *rows(tp=4), *rows(batch=1, tp=4)]
    by = {r.key: r for r in every}
    told = said(*every)
    assert len(told) == 3
    for sentence in told:
        keys = KEY.findall(sentence)
        assert keys
        assert {by[key].scope for key in keys} == {"step"}
        if sentence.startswith("At tp "):
            assert {by[key].tp for key in keys} == {int(sentence.split()[2].rstrip(","))}


def test_without_rows_of_what_the_model_has_there_is_nothing_to_hold_against() -> None:
    assert said(*(r for r in rows() if r.attention == "mla")) == []
    assert said(*rows(), question={"own": "gqa", "variants": ["gqa", "mqa"]}) == []
