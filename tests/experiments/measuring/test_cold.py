"""Cold: touched, then evicted, and only where the cache's size is known."""

from experiments.measuring.cold import is_cold, make_cold


def test_what_is_timed_is_touched_before_the_caches_are_swept() -> None:
    events: list[str] = []
    make_cold([lambda: events.append("a"), lambda: events.append("b")], lambda: events.append("sweep"), settle_s=0)
    assert events == ["a", "b", "sweep"]


def test_cold_needs_five_times_a_cache_whose_size_is_known() -> None:
    assert is_cold(500, 100)
    assert not is_cold(499, 100)
    assert not is_cold(10**12, None)
