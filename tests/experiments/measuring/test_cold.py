"""Cold: touched, then evicted, and only where the cache's size is known."""

from functools import partial

from experiments.measuring.cold import is_cold, make_cold, opened


def test_what_is_timed_is_touched_before_the_caches_are_swept() -> None:
    events: list[str] = []
    make_cold([lambda: events.append("a"), lambda: events.append("b")], lambda: events.append("sweep"))
    assert events == ["a", "b", "sweep"]


def test_the_first_call_opens_a_round_and_the_others_are_timed() -> None:
    events: list[str] = []
    a, b, c = (partial(events.append, name) for name in "abc")
    assert opened([a, b, c], seconds=0) == [b, c]
    assert events == ["a"]
    opened([a, b], seconds=0.01)
    assert len(events) > 10  # again and again


def test_what_is_alone_is_timed_and_stays_cold() -> None:
    events: list[str] = []
    only = [lambda: events.append("a")]
    assert opened(only, seconds=0) == only
    assert events == []


def test_cold_needs_five_times_a_cache_whose_size_is_known() -> None:
    assert is_cold(500, 100)
    assert not is_cold(499, 100)
    assert not is_cold(10**12, None)
