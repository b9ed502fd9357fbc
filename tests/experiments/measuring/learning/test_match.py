"""Parameters are matched, counted as the decoder has them, and refused where they cannot be."""

import pytest

from experiments.measuring.learning.decoder import Decoder
from experiments.measuring.learning.job import jobs
from experiments.measuring.learning.lesson import Lesson
from experiments.measuring.learning.match import parameters
from tests.builders import config
from tests.experiments.lessons import FAMILY, jobs_of, lesson, shipped


def test_the_study_s_variants_have_equal_parameters_within_one_percent_as_built() -> None:
    raw = shipped()
    assert raw.pop("attention") == list(FAMILY)
    assert raw.pop("baseline") == "mha"
    study = Lesson.parse(raw)
    of_mha = {job.task: job.matched.parameters for job in jobs_of(study, "mha")}
    for job in jobs_of(study, *FAMILY)[: 2 * len(FAMILY)]:
        vocabulary = study.task(job.task).vocabulary
        built = Decoder(study.model, job.matched.spec, job.matched.mlp_width, vocabulary, seed=0)
        found = sum(weight.numel() for weight in built.parameters())
        assert found == job.matched.parameters
        assert abs(found - of_mha[job.task]) <= 0.01 * of_mha[job.task]


def test_what_attention_saves_goes_into_the_mlp() -> None:
    widths = {job.attention: job.matched.mlp_width for job in jobs_of(lesson(tasks=["text"], seeds=[0]), "mha", "mqa")}
    assert widths["mha"] == 64
    assert widths["mqa"] == 64 + round(2 * 16 * 8 / (3 * 16))  # a key and a value head of 8 less, of 3 x 16 a column


def test_parameters_are_counted_by_hand() -> None:
    (job,) = jobs_of(lesson(tasks=["text"], seeds=[0]), "mha")
    by_hand = 256 * 16 + 4 * 16 * 16 + 3 * 16 * 64 + 2 * 16 + 16
    assert parameters(job.lesson.model, job.matched.spec, 64, 256) == by_hand


def test_a_mismatch_is_one_line_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"must match within 1% by the MLP width; mha has .*, mla .* at mlp_width=1: "):
        jobs_of(lesson(model={"mlp_width": 1}), "mha", "mla")


def test_a_run_without_its_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold the baseline mha; got mla"):
        jobs(lesson(), {"mla": config("attention")["mla"]}, "mha")
