"""Checks: what they compare, at which number they turn, and what a row says of them."""

import pytest

from experiments.measuring import audit


@pytest.mark.parametrize(
    ("gbps", "verdict"), [(4799.0, "ok"), (4800.0, "ok"), (5000.0, "note"), (5040.0, "note"), (5041.0, "FAILED")]
)
def test_c03_more_than_the_roof_is_never_silent(gbps: float, verdict: str) -> None:
    """5 TB/s on a roof of 4.8 is within what read kernels differ by, and said; beyond 1.05 it is not believed."""
    check = audit.below_ceiling(gbps, 4800.0)
    assert str(check) == f"ceiling={verdict} ({gbps:.4g} of 4800 GB/s, at most x1.05)"
    assert bool(audit.failures([check])) == (verdict == "FAILED")


def test_c09_bytes_counted_per_query_head_are_flagged() -> None:
    right, wrong = (size / 2300 / 1e3 for size in (409_600_000, 3_276_800_000))  # bytes in 2.3 ms
    assert audit.below_ceiling(right, 680.0).holds
    assert "FAILED (1425 of 680 GB/s" in audit.failures([audit.below_ceiling(wrong, 680.0)])


@pytest.mark.parametrize(("allocated", "holds"), [(4096, True), (4095, False), (4097, False)])
def test_slabs_take_what_was_predicted_to_the_byte(allocated: int, holds: bool) -> None:
    assert audit.allocated_as_predicted(allocated, 4096).holds is holds


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (0.03, True), (0.031, False), (float("inf"), False)])
def test_the_oracle_allows_its_budget_and_no_more(error: float, holds: bool) -> None:
    check = audit.matches_oracle(error, 0.03)
    assert check.holds is holds
    assert check.numbers.endswith("budget 0.03")


def test_all_failures_are_named() -> None:
    checks = [
        audit.below_ceiling(2000, 1000),
        audit.below_ceiling(1, 1000),
        audit.allocated_as_predicted(1, 2),
        audit.Check("note", holds=False, numbers="9", warns=True),
    ]
    assert audit.failures(checks) == "ceiling=FAILED (2000 of 1000 GB/s, at most x1.05); allocated=FAILED (1 of 2 B)"
    assert audit.failures([]) == ""


FLASH, SPLIT = ("aten::_scaled_dot_product_flash_attention",), ("kernel:split",)
KERNELS: dict[str, tuple[tuple[str, ...] | None, set[str], str]] = {
    "its operator was seen": (FLASH, {"aten::_scaled_dot_product_flash_attention_for_cpu"}, "ok"),
    "another one was": (FLASH, {"aten::_scaled_dot_product_attention_math", "aten::bmm"}, "FAILED"),
    "its kernel was seen": (SPLIT, {"aten::empty", "kernel:split"}, "ok"),
    "another kernel was": (SPLIT, {"kernel:void gemm"}, "FAILED"),
    "an operator is called as a kernel is": (SPLIT, {"aten::split", "kernel:void gemm"}, "FAILED"),
    "no kernel can be seen here": (SPLIT, {"aten::empty"}, "note"),
    "nothing of torch's, as it should be": ((), {"aten::empty", "aten::copy_"}, "ok"),
    "torch did it": ((), {"aten::empty", "aten::bmm"}, "FAILED"),
    "nobody knows what would show it": (None, {"aten::bmm"}, "note"),
}


@pytest.mark.parametrize("seen", KERNELS)
def test_the_kernel_that_ran_is_the_one_named_or_it_is_said_that_nobody_can_tell(seen: str) -> None:
    shows, names, verdict = KERNELS[seen]
    check = audit.kernel_ran("named", shows, names)
    assert str(check).startswith(f"kernel={verdict} (named: ")
    assert bool(audit.failures([check])) == (verdict == "FAILED")


@pytest.mark.parametrize(("allocated", "verdict"), [(0, "ok"), (100, "ok"), (101, "note")])
def test_c10_a_call_may_allocate_a_tenth_of_its_cache_before_it_is_said(allocated: int, verdict: str) -> None:
    check = audit.little_allocated(allocated, 1000)
    assert str(check).startswith(f"transient={verdict} ({allocated} B a call")
    assert audit.failures([check]) == ""
