"""Training: seeded, judged on schedule, and able to learn what it is given."""

from dataclasses import replace

import pytest
import torch

from experiments.measuring.learning import train as training
from experiments.measuring.learning.data import held_out
from experiments.measuring.learning.decoder import Decoder
from experiments.measuring.learning.lesson import rate
from experiments.measuring.learning.train import Diverged, train
from tests.experiments.lessons import FAMILY, jobs_of, lesson


def test_one_seed_gives_one_training_whatever_was_drawn_before() -> None:
    (job,) = jobs_of(lesson(tasks=["recall"], seeds=[0]), "mla")
    first = train(job.lesson, job.matched, "recall", 0)
    torch.manual_seed(5)
    again = train(job.lesson, job.matched, "recall", 0)
    assert first.curve == again.curve
    assert train(job.lesson, job.matched, "recall", 1).curve != first.curve


def test_every_variant_trains_all_of_its_weights() -> None:
    for job in jobs_of(lesson(tasks=["text"], seeds=[0]), *FAMILY):
        model = Decoder(job.lesson.model, job.matched.spec, job.matched.mlp_width, 256, seed=0)
        model(torch.arange(12)[None]).square().mean().backward()
        assert [name for name, weight in model.named_parameters() if not weight.grad.abs().sum()] == []  # type: ignore[union-attr]


def test_what_comes_later_changes_nothing_before_it() -> None:
    for job in jobs_of(lesson(tasks=["text"], seeds=[0]), *FAMILY):
        model = Decoder(job.lesson.model, job.matched.spec, job.matched.mlp_width, 256, seed=0)
        one, other = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[5, 6, 9, 9]])
        assert torch.allclose(model(one)[:, :2], model(other)[:, :2], atol=1e-6)
        assert not torch.allclose(model(one)[:, 3], model(torch.tensor([[4, 6, 7, 8]]))[:, 3], atol=1e-4)


def test_it_is_judged_before_the_first_step_after_the_last_and_evenly_between() -> None:
    (job,) = jobs_of(lesson(tasks=["text"], seeds=[0], evaluations=3, text={"steps": 9}), "gqa")
    told = train(job.lesson, job.matched, "text", 0)
    assert [at.step for at in told.curve] == [0, 3, 6, 9]
    assert told.curve[0].loss > told.curve[-1].loss  # even nine steps teach something of bytes


def test_losses_are_means_over_targets_of_unequal_batches() -> None:
    of = lesson(recall={"held_out": 5})  # four sequences, then one
    (job,) = jobs_of(replace(of, tasks=("recall",), seeds=(0,)), "mha")
    model = Decoder(of.model, job.matched.spec, job.matched.mlp_width, of.recall.vocabulary, seed=0)
    parts = held_out(of, "recall")
    inputs, targets = (torch.cat(part) for part in zip(*parts, strict=True))
    at = targets >= 0
    logits = model(inputs)[at].detach().double()
    wanted = torch.nn.functional.cross_entropy(logits, targets[at])
    told = training.judge(model, parts, 7)
    assert told.loss == pytest.approx(float(wanted), rel=1e-5)
    assert told.accuracy == pytest.approx(float((logits.argmax(-1) == targets[at]).double().mean()))


def test_the_rate_rises_to_its_highest_and_falls_to_nothing() -> None:
    of = lesson(warmup=0.1, text={"steps": 100, "learning_rate": 0.02})
    rates = [rate(of, "text", step) for step in range(100)]
    assert rates[0] == pytest.approx(0.002)
    assert max(rates) == rates[9] == pytest.approx(0.02)
    assert rates[55] == pytest.approx(0.01)
    assert 0 < rates[99] < 1e-5


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    (job,) = jobs_of(lesson(tasks=["text"], seeds=[0], text={"learning_rate": 1e30}), "mha")
    with pytest.raises(Diverged, match="not finite at step"):
        train(job.lesson, job.matched, "text", 0)


def test_a_decoder_with_attention_recalls_what_one_without_cannot() -> None:
    """One pair, asked for at once: a layer of attention is enough, and guessing is not."""
    easy = {"pairs": 1, "context": 4, "keys": 2, "values": 4, "steps": 150, "batch": 32, "held_out": 64}
    (job,) = jobs_of(lesson(tasks=["recall"], seeds=[0], recall=easy), "mqa")
    told = train(job.lesson, job.matched, "recall", 0)
    assert told.curve[-1].accuracy > 0.95
    assert told.curve[0].accuracy < 0.5
