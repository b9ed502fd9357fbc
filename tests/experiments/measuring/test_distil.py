"""A converted layer learns what it lost, and a run that was interrupted ends where it would have."""

import pytest
import torch

from experiments.measuring.distil import Schedule, distil
from tests.builders import build, grouped
from tests.convert.layers import inputs
from variants.convert import as_latent, convert, relative_error, with_kv_heads

SPEC = grouped(qkv_bias=True)
STEPS = Schedule(steps=40, learning_rate=3e-3, seed=4, save_every=20)
BATCHES = [inputs(24, 4, seed=10 + i).float() for i in range(8)]
HELD = inputs(24, 4, seed=90).float()
TARGETS = {"mqa": with_kv_heads(SPEC, 1), "mla": as_latent(SPEC, 24, 16, "materialized")}
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())


@pytest.fixture
def teacher():
    pytest.importorskip("safetensors", reason="a distillation's file is of safetensors, which the hf extra brings")
    return build(SPEC, torch.float32)


def student(teacher, target=TARGETS["mla"]):
    return convert(teacher, target, torch.cat(BATCHES))[0]


def weights(module):
    return {name: p.clone() for name, p in module.named_parameters()}


@each_target
def test_loss_falls_on_what_it_sees_and_on_what_it_does_not(teacher, target):
    layer, whole = student(teacher, target), weights(teacher)
    before = relative_error(teacher, layer, HELD)
    losses = distil(teacher, layer, BATCHES, STEPS)
    assert len(losses) == 40
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8])
    assert relative_error(teacher, layer, HELD) < 0.9 * before
    assert all(torch.equal(p, whole[name]) for name, p in teacher.named_parameters())
    assert not any(p.requires_grad for p in layer.parameters())


def test_the_first_loss_is_the_conversions_squared_error(teacher):
    layer = student(teacher)
    error = relative_error(teacher, layer, BATCHES[0])
    assert distil(teacher, layer, BATCHES[:1], Schedule(1)) == [pytest.approx(error**2, rel=1e-4)]


@pytest.mark.parametrize("stop", [1, 20, 33])
def test_a_resumed_run_is_the_uninterrupted_run_bit_for_bit(teacher, stop, tmp_path):
    whole, part, path = student(teacher), student(teacher), tmp_path / "runs" / "layer3.safetensors"
    expected = distil(teacher, whole, BATCHES, STEPS)
    first = distil(teacher, part, BATCHES, STEPS, path, until=stop)
    assert first == expected[:stop]
    again = student(teacher)
    assert distil(teacher, again, BATCHES, STEPS, path) == expected
    for module in (again, saved(path, student(teacher), teacher)):
        assert all(torch.equal(p, weights(whole)[name]) for name, p in module.named_parameters())
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def saved(path, module, teacher):
    """A run that is over is read from its file and trained no further."""
    distil(teacher, module, BATCHES, STEPS, path)
    return module


def test_a_run_that_dies_leaves_its_last_save(teacher, tmp_path):
    class Broken(list[torch.Tensor]):
        taken = 0

        def __getitem__(self, index):
            self.taken += 1
            if self.taken == 32:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    path = tmp_path / "layer.safetensors"
    with pytest.raises(KeyboardInterrupt):
        distil(teacher, student(teacher), Broken(BATCHES), STEPS, path)
    losses = distil(teacher, student(teacher), BATCHES, STEPS, path, until=20)  # it holds 20 steps: nothing to do
    assert losses == distil(teacher, student(teacher), BATCHES, STEPS)[:20]


def test_seeds_differ_in_order_and_epochs_see_every_batch_once(teacher):
    losses = {seed: distil(teacher, student(teacher), BATCHES, Schedule(8, 1e-9, seed)) for seed in (0, 1)}
    assert losses[0] != losses[1]
    assert sorted(losses[0]) == pytest.approx(sorted(losses[1]), rel=1e-4)
    assert len(set(losses[0])) == 8


def test_files_of_other_runs_are_refused(teacher, tmp_path):
    path = tmp_path / "layer.safetensors"
    distil(teacher, student(teacher), BATCHES, STEPS, path, until=2)
    for other, batches, schedule in (
        (TARGETS["mqa"], BATCHES, STEPS),
        (TARGETS["mla"], BATCHES[1:], STEPS),
        (TARGETS["mla"], BATCHES, Schedule(40, 1e-3, 4)),
    ):
        with pytest.raises(ValueError, match="is of a run with other layers, schedule or batches: remove it"):
            distil(teacher, student(teacher, other), batches, schedule, path)
    with pytest.raises(ValueError, match="is of a run with other layers"):
        distil(build(SPEC, torch.float32, seed=2), student(teacher), BATCHES, STEPS, path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="must be a distillation's safetensors file; got .*: remove it"):
        distil(teacher, student(teacher), BATCHES, STEPS, path)


def test_what_cannot_be_trained_is_said(teacher):
    with pytest.raises(ValueError, match="at least one batch; got none"):
        distil(teacher, student(teacher), [], STEPS)
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+: lower learning_rate=1e\+30"):
        distil(teacher, student(teacher), BATCHES, Schedule(40, 1e30))
    with pytest.raises(ValueError, match="steps must be a whole number >= 1; got 0"):
        Schedule(0)
    with pytest.raises(ValueError, match="learning_rate must be a number > 0; got -1"):
        Schedule(1, -1)
