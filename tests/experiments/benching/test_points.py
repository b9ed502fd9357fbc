"""Targets are the ones that were set; points are found by name; a number is held against its target the right way."""

import pytest

from experiments.benching.points import Result, all_points, select
from experiments.benching.sizes import SMOKE, VARIANTS, Sizes

POINTS = all_points(Sizes())
TARGETS = {point.name: point.targets for point in POINTS}


def attend(fraction: float, best: float, enable_gqa: float | None = None) -> dict[str, float]:
    grouped = {} if enable_gqa is None else {"speedup_vs_enable_gqa": enable_gqa}
    return {"roofline_fraction": fraction, "speedup_vs_best_torch": best, **grouped}


def test_targets_of_attend_are_the_table_of_the_issue() -> None:
    assert {name: targets for name, targets in TARGETS.items() if name.startswith("attend")} == {
        "attend/mha/fp32/16k": attend(0.80, 2.0),
        "attend/gqa8/fp32/16k": attend(0.60, 1.5, enable_gqa=5.0),
        "attend/mha/bf16/16k": attend(0.65, 1.4),
        "attend/gqa8/bf16/16k": attend(0.45, 1.2, enable_gqa=10.0),
        "attend/mqa/fp32/16k": attend(0.50, 1.0),
        "attend/mqa/bf16/16k": attend(0.50, 1.0),
        "attend/mla/fp32/16k": attend(0.50, 1.0),
        "attend/mla/bf16/16k": attend(0.50, 1.0),
    }


def test_targets_of_everything_else() -> None:
    rest = {name: targets for name, targets in TARGETS.items() if not name.startswith("attend")}
    steps = {f"step/{v}/{d}/{c}" for v in VARIANTS for d in ("fp32", "bf16") for c in ("4k", "16k")}
    both = {"speedup_vs_transformers_dynamic": 1.5, "speedup_vs_transformers_static": 1.5}
    assert rest == {
        "growth/gqa8/bf16": {"nonlinearity": 0.15},
        "growth/mla/bf16": {"nonlinearity": 0.15},
        "pool/gqa8/bf16/16k": {"pool_ratio": 1.15},
        "pool/mla/bf16/16k": {"pool_ratio": 1.15},
        **dict.fromkeys(steps, both),
    }


def test_the_layer_is_the_one_that_the_targets_are_for() -> None:
    shapes = {v: Sizes().spec(v).geometry() for v in VARIANTS}
    assert {v: (g.num_q_heads, g.num_kv_heads, g.d_qk, g.d_v) for v, g in shapes.items()} == {
        "mha": (32, 32, 128, 128),
        "gqa8": (32, 8, 128, 128),
        "mqa": (32, 1, 128, 128),
        "mla": (32, 1, 576, 512),
    }
    assert shapes["mla"].scale == pytest.approx(192**-0.5)
    assert Sizes().growing == (8192, 16384, 32768, 65536)


def test_names_are_unique_and_follow_the_sizes() -> None:
    names = [point.name for point in all_points(SMOKE)]
    assert len(names) == len(set(names)) == len(POINTS)
    assert "attend/mha/fp32/256" in names


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, list(TARGETS)),
        ("attend/mla/*", ["attend/mla/fp32/16k", "attend/mla/bf16/16k"]),
        ("pool/mla/*, growth/*", ["growth/gqa8/bf16", "growth/mla/bf16", "pool/mla/bf16/16k"]),
        ("step/mqa/bf16/4k", ["step/mqa/bf16/4k"]),
    ],
)
def test_points_are_selected_by_pattern_in_their_own_order(patterns: str | None, expected: list[str]) -> None:
    assert [point.name for point in select(POINTS, patterns)] == expected


@pytest.mark.parametrize("patterns", ["attend/gqa4/*", "step/*,nothing", ""])
def test_a_pattern_that_fits_nothing_is_refused(patterns: str) -> None:
    with pytest.raises(ValueError, match=r"no point is called '.*'; there are attend/mha/fp32/16k, "):
        select(POINTS, patterns)


@pytest.mark.parametrize(
    ("metric", "value", "ok"),
    [
        ("roofline_fraction", 0.5, True),
        ("roofline_fraction", 0.499, False),
        ("speedup_vs_transformers_static", 0.6, True),
        ("nonlinearity", 0.5, True),
        ("nonlinearity", 0.501, False),
        ("pool_ratio", 0.4, True),
        ("pool_ratio", None, False),
    ],
)
def test_more_is_better_but_for_deviations(metric: str, value: float | None, ok: bool) -> None:
    assert Result("p", metric, value, 0.5).ok is ok
