"""Pages and rings in measured rows: what they take, what they are called, and what cannot be held."""

from typing import Any

import pytest

from tests.experiments.builders import device, rows_of, series

PER_TOKEN = 2 * 2 * 16 * 4  # the tiny model: K and V of two heads of 16 in float32


@pytest.mark.parametrize("attention", ["gqa", "gta", "gla", "mla"])
@pytest.mark.parametrize("page_size", [1, 7, 16])
def test_a_paged_point_is_measured_and_says_what_it_takes(
    attention: str, page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = series(attention, "eager", storage="paged", storing={"page_size": page_size}, batch=3, context=[16, 45])
    rows = rows_of(made, monkeypatch)
    assert [(r.context, r.scope, r.status, r.reason) for r in rows] == [
        (context, scope, "ok", None) for context in (16, 45) for scope in ("attend", "step")
    ]
    for row in rows:
        assert row.context is not None
        pages = -(-row.context // page_size)
        per_token = made.spec.layout(made.workload.kv_dtype).bytes(1)
        assert (row.storage, row.order, row.page_size, row.window) == ("paged", "hs", page_size, None)
        assert row.cache_bytes == 3 * row.context * per_token
        assert row.allocated_bytes == 3 * pages * page_size * per_token
        assert row.table_bytes == 4 * 3 * pages
        assert "oracle=ok" in str(row.audits)
        assert f"allocated=ok ({row.allocated_bytes} of {row.allocated_bytes} B)" in str(row.audits)
    assert attention != "gqa" or rows[0].cache_bytes == 3 * 16 * PER_TOKEN


def test_pages_of_another_size_or_order_are_another_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[dict[str, Any]] = [{}, {"page_size": 8}, {"seed": 1}]
    made = [series("gqa", "eager", storage="paged", storing=c, context=16, scopes=["attend"]) for c in changes]
    keys = {row.key for one in made for row in rows_of(one, monkeypatch)}
    assert len(keys) == 3


def test_a_ring_without_a_window_is_refused_and_has_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series("mha", "eager", storage="ring"), monkeypatch)
    assert len(rows) == 4
    for row in rows:
        assert row.status == "refused"
        assert "ring needs one window for all streams" in str(row.reason)
        assert (row.allocated_bytes, row.table_bytes, row.latency_us_p50) == (None, None, None)
        assert row.cache_bytes == 2 * PER_TOKEN * (row.context or 0)


def test_a_ring_of_a_window_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = series("gqa", "eager", storage="ring", storing={"queries": 3}, options={"window": 20}, queries=3)
    rows = rows_of(made, monkeypatch)
    assert [(r.context, r.status) for r in rows] == [(16, "ok"), (16, "ok"), (64, "ok"), (64, "ok")]
    for row in rows:
        assert row.context is not None
        assert (row.window, row.page_size, row.table_bytes) == (20, None, 0)
        assert row.cache_bytes == min(row.context, 20) * PER_TOKEN
        assert row.allocated_bytes == min(row.context, 22) * PER_TOKEN


def test_a_longer_step_than_the_ring_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(series("gqa", "eager", storage="ring", options={"window": 20}, queries=2), monkeypatch)
    assert {r.status for r in rows} == {"refused"}
    assert "slots for steps of 1 new tokens; a step brings 2" in str(rows[0].reason)


def test_decompressed_pages_are_read_from_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Materialized: SDPA reads what was decompressed, which lies in one run whatever holds the latent."""
    made = series("mla", "sdpa", storage="paged", options={"form": "materialized"}, context=[17])
    assert [(r.status, r.reason) for r in rows_of(made, monkeypatch)] == [("ok", None)] * 2
    absorbed = rows_of(series("mla", "sdpa", storage="paged", context=[17]), monkeypatch)
    assert {r.status for r in absorbed} == {"refused"}
    assert "storage paged" in str(absorbed[0].reason)


def test_too_large_counts_whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    made = series("gqa", "eager", storage="paged", storing={"page_size": 256}, context=[1], scopes=["attend"])
    (row,) = rows_of(made, monkeypatch, device(free=100_000))
    (fits,) = rows_of(
        series("gqa", "eager", storage="paged", storing={"page_size": 1}, context=[1], scopes=["attend"]),
        monkeypatch,
        device(free=100_000),
    )
    assert row.allocated_bytes == 256 * PER_TOKEN
    assert (fits.allocated_bytes, fits.table_bytes) == (PER_TOKEN, 4)
    assert f"cache {256 * PER_TOKEN} B + block table 4 B" in str(row.reason)
    assert (row.status, fits.status) == ("too_large", "ok")
