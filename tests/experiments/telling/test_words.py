"""Numbers in words: exact bytes, and ratios that never contradict their adjective."""

import pytest

from experiments.telling.words import binary_size, count, exact_bytes, number, percent, size, speed


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2684354560, "2.5 GiB"),
        (1024, "1 KiB"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (2**40, "1 TiB"),
        (16777216, "16 MiB"),
    ],
)
def test_binary_sizes(value: int, said: str) -> None:
    assert binary_size(value) == said


def test_bytes_are_told_to_the_byte() -> None:
    assert exact_bytes(2684354560) == "2,684,354,560 B (2.5 GiB)"
    assert exact_bytes(512) == "512 B"
    assert exact_bytes(None) == "n/a"
    assert count(656.0) == "656"
    assert count(4.125) == "4.12"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0045678, "0.004568"), (9.87654, "9.877"), (30.2, "30.20"), (812.44, "812.4"), (12345.6, "12,346"), (0, "0")],
)
def test_numbers_have_four_significant_digits(value: float, said: str) -> None:
    assert number(value) == said


def test_e14_a_speed_up_is_baseline_over_new_and_its_inverse_is_slower() -> None:
    assert speed("new", 80.0, "old", 100.0) == "new is 1.25x faster than old"
    assert speed("old", 100.0, "new", 80.0) == "old is 1.25x slower than new"


def test_e14_enormous_and_empty_ratios() -> None:
    assert speed("b", 3.44e-3, "a", 1.77e3) == "b is 514,535x faster than a"
    assert speed("a", 1.77e3, "b", 3.44e-3) == "a is 514,535x slower than b"
    assert speed("a", 100.0, "b", 100.2) == "a is as fast as b"


def test_sizes_compare_the_same_way() -> None:
    assert size("gqa", 4096, "mha", 16384) == "gqa caches 4.00x fewer bytes than mha"
    assert size("mha", 16384, "gqa", 4096) == "mha caches 4.00x more bytes than gqa"
    assert size("mla", 1152, "gla", 1152) == "mla caches as many bytes as gla"


def test_percentages() -> None:
    assert [percent(f) for f in (0.613, 0.0421, 1.02, None)] == ["61 %", "4.2 %", "102 %", "n/a"]
