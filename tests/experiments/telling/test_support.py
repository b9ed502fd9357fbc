"""The support matrix and the best of each variant: like with like, each reason once, every combination there."""

from typing import Any

from experiments.record import Measurement, apart, together
from experiments.telling.best import best_table
from experiments.telling.decision import Decision, decide_all
from experiments.telling.rule import Rule
from experiments.telling.support import Support, support, support_table
from tests.experiments.telling.rows import failed, pages, row, rule

WIDE, RUN = "a_lib takes widths up to 256; got 576", "a_lib needs one run of slots; got paged"


def _decide(*rows: Measurement, by: Rule | None = None) -> Decision:
    (decision,) = decide_all(pages(*rows), by or rule())
    return decision


def _support(*rows: Measurement) -> Support:
    it = support(_decide(*rows), rule())
    assert it is not None
    return it


def _refused(attention: str, *reasons: str, storage: str = "contiguous", **given: Any) -> list[Measurement]:
    rest: dict[str, Any] = {"backend": "a_lib", "storage": storage, **given}
    return [
        failed(attention, s, c, "refused", together(reasons), **rest) for s in ("attend", "step") for c in (512, 1024)
    ]


def _lines(it: Support) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(line[0], line[1]): line[2:] for line in support_table(it).rows}


def test_reasons_are_put_together_and_taken_apart() -> None:
    assert apart(together([WIDE, RUN])) == [WIDE, RUN]  # each holds a semicolon of its own


def test_the_matrix_shows_time_and_share_or_the_numbers_of_reasons_told_once() -> None:
    it = _support(
        row("mha", "attend", us=40.0, backend="ours", roofline_fraction=0.55),
        row("mha", "attend", us=30.0, backend="ours", storage="paged", roofline_fraction=0.75),
        row("mla", "attend", us=20.0, backend="ours"),
        *(row(a, us=90.0, backend="ours") for a in ("mha", "mla")),
        *_refused("mha", RUN, storage="paged"),
        *_refused("mla", WIDE),
        *_refused("mla", WIDE, RUN, storage="paged"),
    )
    assert support_table(it).header == ("backend", "storage", "mha", "mla")
    assert _lines(it) == {
        ("a_lib", "contiguous"): ("not run", "no [1]"),
        ("a_lib", "paged"): ("no [2]", "no [1, 2]"),
        ("ours", "contiguous"): ("40.00 us, 55 %", "**20.00 us, 80 %**"),
        ("ours", "paged"): ("**30.00 us, 75 %**", "not run"),
    }
    assert it.notes == (WIDE, RUN)
    assert len(it.explained) == 12  # both scopes and both contexts of three combinations


def test_storages_that_a_backend_refuses_alike_share_a_line() -> None:
    it = _support(row("mha", backend="ours"), *_refused("mha", WIDE), *_refused("mha", WIDE, storage="paged"))
    assert list(_lines(it)) == [("a_lib", "contiguous, paged"), ("ours", "contiguous")]


def test_other_failures_keep_their_status_and_their_row_in_the_gaps() -> None:
    it = _support(
        row("mha", "attend", backend="ours"),
        row("mha", backend="ours"),
        failed("mha", "attend", 1024, "too_large", "needs 64 GiB; free: 1 GiB", backend="a_lib", key="large"),
    )
    assert _lines(it)["a_lib", "contiguous"] == ("too_large [1]",)
    assert it.notes == ("too_large: needs 64 GiB; free: 1 GiB",)
    assert it.explained == frozenset()


def test_the_matrix_holds_one_context_one_scope_and_one_temperature() -> None:
    it = _support(
        row("mha", "attend", us=10.0, backend="ours"),
        row("mha", "attend", us=1.0, context=512, backend="ours"),
        row("mha", "attend", us=2.0, temperature="warm", backend="ours"),
        row("mha", "attend", us=3.0, temperature="warm", backend="a_lib"),
        *(row(a, backend="ours") for a in ("mha", "gqa")),
    )
    assert (it.scope, it.context) == ("attend", 1024)
    assert _lines(it)["ours", "contiguous"] == ("**10.00 us, 80 %**", "not run")
    assert _lines(it)["a_lib", "contiguous"] == ("warm only", "not run")


def test_pages_of_two_sizes_are_two_lines() -> None:
    it = _support(
        *(row("mha", us=float(n), storage="paged", page_size=n, backend="ours") for n in (16, 64)),
        *_refused("mha", RUN),
    )
    assert list(_lines(it)) == [("a_lib", "contiguous"), ("ours", "paged page_size 16"), ("ours", "paged page_size 64")]


def test_one_backend_has_no_matrix() -> None:
    for page in pages(row("mha"), row("mha", storage="paged")):
        (decision,) = decide_all([page], rule())
        assert support(decision, rule()) is None


def test_the_best_of_each_variant_is_told_with_its_gap_at_the_point_of_the_decision() -> None:
    rows = [
        row("mha", "attend", us=10.0, backend="eager", roofline_fraction=0.55, bound="memory", key="kept"),
        row("mha", "attend", us=20.0, backend="sdpa", roofline_fraction=0.275),
        row("mha", us=60.0, backend="eager", roofline_fraction=0.4, bound="memory"),
        row("mha", us=50.0, backend="sdpa", storage="paged", roofline_fraction=0.48, bound="memory"),
        row("gqa", us=70.0, backend="sdpa", roofline_fraction=0.5, bound="compute"),
        row("gqa", us=1.0, context=512, backend="eager"),
        row("gqa", us=1.0, backend="eager", temperature="warm"),
    ]
    assert [(*line[:3], *line[4:7]) for line in best_table(_decide(*rows), rule()).rows] == [
        ("mha", "attend", "eager on contiguous", "1.82x", "55 %", "memory"),
        ("mha", "step", "sdpa on paged", "2.08x", "48 %", "kernel-limited"),
        ("gqa", "step", "sdpa on contiguous", "2.00x", "50 %", "compute"),
    ]
    assert best_table(_decide(*rows), rule()).rows[0][-1] == "kept"


def test_a_run_of_the_kernel_alone_still_tells_its_best() -> None:
    told = _decide(row("mha", "attend", roofline_fraction=0.3), row("gqa", "attend", roofline_fraction=0.9))
    assert told.verdict == "not enough evidence"
    assert [line[0] for line in best_table(told, rule()).rows] == ["mha", "gqa"]


def test_nothing_measured_has_no_best_and_still_a_matrix() -> None:
    rows = [*_refused("mha", RUN), *_refused("mha", WIDE, backend="b_lib")]
    assert best_table(_decide(*rows), rule()).rows == ()
    assert _lines(_support(*rows)) == {("a_lib", "contiguous"): ("no [1]",), ("b_lib", "contiguous"): ("no [2]",)}


def test_rows_of_other_library_versions_have_a_matrix_of_their_own() -> None:
    """An upgrade changes kernels and refusals: neither stale times nor stale reasons stand beside fresh ones."""
    old: dict[str, Any] = {"versions": "torch 2.12.0", "started_at": "2025-01-01T00:00:00+00:00"}
    rows = [
        row("mha", "attend", us=30.0, backend="ours"),
        row("mha", us=90.0, backend="ours"),
        row("gqa", "attend", us=5.0, backend="ours", **old),
        row("gqa", us=6.0, backend="ours", **old),
        row("mha", "attend", us=1.0, backend="b_lib", **old),
        *_refused("mha", RUN),
        *_refused("mha", WIDE, storage="paged", **old),
    ]
    found = {
        it.decision.setting.values["versions"]: it
        for d in decide_all(pages(*rows), rule())
        if (it := support(d, rule()))
    }
    assert {versions: (it.variants, it.notes) for versions, it in found.items()} == {
        "torch 2.13.0": (("mha",), (RUN,)),
        "torch 2.12.0": (("mha", "gqa"), (WIDE,)),
    }
    assert _lines(found["torch 2.13.0"]) == {
        ("a_lib", "contiguous"): ("no [1]",),
        ("ours", "contiguous"): ("**30.00 us, 80 %**",),
    }


def test_a_fresh_refusal_does_not_borrow_the_time_of_older_versions() -> None:
    old: dict[str, Any] = {"versions": "torch 2.12.0", "started_at": "2025-01-01T00:00:00+00:00"}
    rows = [row("mha", s, us=9.0, backend=b, **old) for s in ("attend", "step") for b in ("a_lib", "ours")]
    fresh = [row("mha", s, us=30.0, backend="ours") for s in ("attend", "step")]
    its = [support(d, rule()) for d in decide_all(pages(*rows, *fresh, *_refused("mha", RUN)), rule())]
    lines = {it.decision.setting.values["versions"]: _lines(it) for it in its if it is not None}
    assert lines["torch 2.13.0"]["a_lib", "contiguous"] == ("no [1]",)
    assert lines["torch 2.12.0"]["a_lib", "contiguous"] == ("**9.000 us, 80 %**",)
