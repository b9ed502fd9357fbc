"""From rows to a ranking, or to the reason why there is none."""

import math

import pytest

from experiments.learned import Training
from experiments.telling.learning.over_seeds import Interval, difference
from experiments.telling.learning.page import verdict
from experiments.telling.learning.results import obstacle, results, score
from tests.experiments.lessons import training


def rows(scores: dict[str, list[float]], task: str = "recall") -> list[Training]:
    return [
        training(name, value, seed=seed, task=task)
        for name, values in scores.items()
        for seed, value in enumerate(values)
    ]


def test_three_seeds_have_student_s_interval() -> None:
    told = Interval.of([1.0, 2.0, 3.0])
    assert (told.mean, told.n) == (2.0, 3)
    assert told.half == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)  # t of 2 degrees; the deviation is 1


def test_one_seed_has_no_interval_and_tells_nothing_apart() -> None:
    told = Interval.of([5.0])
    assert (told.half, told.excludes_zero) == (None, False)


def test_differences_are_of_the_same_seeds() -> None:
    told = difference({0: 5.0, 1: 7.0, 9: 100.0}, {0: 4.0, 1: 6.0, 2: 0.0})
    assert told == Interval(1.0, 0.0, 2)
    assert difference({0: 1.0}, {1: 1.0}) is None


def test_text_is_scored_in_bits_and_recall_by_what_was_right() -> None:
    assert score(training(task="text", score=math.log(2))) == pytest.approx(1.0)
    assert score(training(score=0.9)) == 0.9


def test_between_those_that_solve_recall_nothing_is_ranked() -> None:
    scores = {"mha": [1.0, 1.0, 1.0], "gta": [0.9997, 0.9997, 0.9997], "mqa": [0.9997, 0.9997, 0.94]}
    (recall,) = results(rows(scores))
    assert [standing.solved for standing in recall.standings] == [True, False, True]
    assert [bool(s.versus and s.versus.excludes_zero) for s in recall.standings] == [False, False, True]
    assert verdict([recall]) == ["recall, by recall accuracy: mqa, gta not told apart from mha."]


def test_a_variant_is_worse_only_beyond_what_seeds_do() -> None:
    scores = {"mha": [0.99, 0.98, 0.99], "mqa": [0.80, 0.79, 0.80], "gqa": [0.99, 0.90, 0.70]}
    (said,) = verdict(results(rows(scores)))
    assert said == "recall, by recall accuracy: mqa worse than mha; gqa not told apart from mha."


def test_fewer_bits_are_better() -> None:
    (said,) = verdict(results(rows({"mha": [2.0, 2.1, 2.2], "mla": [1.5, 1.6, 1.7]}, "text")))
    assert said == "text, by bits per byte: mla better than mha."


def test_a_task_that_the_baseline_does_not_solve_with_every_seed_ranks_nothing() -> None:
    hard = rows({"mha": [0.99, 0.949, 0.99], "mqa": [0.5, 0.5, 0.5]})
    text = rows({"mha": [2.0, 2.1, 2.2], "mqa": [3.0, 3.1, 3.2]}, "text")
    (said,) = verdict(results([*hard, *text]))
    assert said.startswith("No ranking: recall is too hard at these settings: mha reaches 94.9% with its worst seed")
    assert obstacle(results(rows({"mha": [0.95, 0.96, 0.97], "mqa": [0.5, 0.5, 0.5]}))) is None


def test_other_data_one_seed_and_no_baseline_rank_nothing() -> None:
    mixed = [*rows({"mha": [0.99, 0.99], "mqa": [0.9, 0.9]})[:-1], training("mqa", seed=1, data="other")]
    assert obstacle(results(mixed)) == "recall: variants saw different data under seeds 1"
    assert "one seed has no interval" in str(obstacle(results(rows({"mha": [0.99], "mqa": [0.9]}))))
    assert "mha has no training" in str(obstacle(results(rows({"mqa": [0.9, 0.9]}))))


def test_rows_of_other_settings_and_machines_are_not_compared() -> None:
    found = results([training(), training("mqa", setting="two"), training("gqa", device="another")])
    assert [[s.one.attention for s in it.standings] for it in found] == [["mha"], ["gqa"], ["mqa"]]


def test_a_training_that_failed_is_named_and_not_averaged() -> None:
    (told,) = results([*rows({"mha": [0.99, 0.97]}), training("mha", seed=2, status="error", reason="lost")])
    assert [(row.seed, row.reason) for row in told.missing] == [(2, "lost")]
    assert told.standings[0].score.mean == pytest.approx(0.98)
