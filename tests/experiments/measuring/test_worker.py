"""What a worker says of the time before the samples."""

import itertools

import pytest
import torch

from experiments.measuring import worker
from experiments.measuring.messages import Prepare, Ready, Sample, Scoped, Taken
from experiments.measuring.point import points
from experiments.measuring.workload import Cell
from tests.experiments.builders import Scripted, device, series


def test_every_call_before_the_samples_is_the_first_one_or_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three replicas: ``step`` is first called here, ``attend`` was when it was proved, by another clock."""
    monkeypatch.setattr(worker, "contact_s", itertools.count(5.0, 1e-6).__next__)
    made = series("gqa", "eager", context=16, scopes=["attend", "step"], timer={"replicas": 2})
    hand = worker.Worker(made, 1, device(), Scripted([10.0, 20.0, 40.0, 100.0, 200.0, 400.0]))
    ready = hand.ask(Prepare(points(made)[0], 3, ("attend", "step")))
    assert isinstance(ready, Ready)
    attend, step = ready.scopes["attend"], ready.scopes["step"]
    assert isinstance(attend, Scoped)
    assert isinstance(step, Scoped)
    assert attend.warmup_us == 10.0 + 20.0 + 40.0
    assert (step.first_call_us, step.warmup_us) == (100.0, 200.0 + 400.0)
    assert ready.contact_us == pytest.approx(1.0)
    assert ready.filled_us > 1.0  # all the rest of making weights and caches


def test_the_calls_that_open_a_round_are_told_apart_from_its_samples() -> None:
    made = series("gqa", "eager", context=64, scopes=["step"])
    hand = worker.Worker(made, 1, device(), Scripted([10.0, 20.0, 1.0]))
    assert isinstance(hand.ask(Prepare(points(made)[0], 2, ("step",))), Ready)
    with torch.no_grad():
        taken = hand.ask(Sample(Cell("step", "cold")))
    assert isinstance(taken, Taken)
    assert taken.us == (1.0,)  # of two replicas the first opens
    assert taken.opening_us >= 20_000
    assert taken.wall_us < taken.opening_us
