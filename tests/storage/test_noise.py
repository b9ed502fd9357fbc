"""Noise that fills caches and weights: normal, repeatable, and different wherever it starts."""

import pytest
import torch

from variants.noise import BLOCK, noise_


@pytest.mark.parametrize("shape", [(100_000,), (700, 300), (3, BLOCK // 4), (40, 50, 60)])
@pytest.mark.parametrize("std", [1.0, 0.25])
def test_every_element_is_normal_noise(shape, std):
    x = noise_(torch.full(shape, torch.nan), seed=1, start=12_345, std=std)
    assert x.isfinite().all()
    assert x.std().item() == pytest.approx(std, rel=0.02)
    assert abs(x.mean().item()) < 0.02 * std
    assert (x == x.flatten()[0]).sum() < 10


def test_seed_and_start_decide():
    def draw(seed, start):
        return noise_(torch.empty(64, 16), seed, start)

    assert torch.equal(draw(1, 0), draw(1, 0))
    assert not torch.equal(draw(1, 0), draw(2, 0))
    assert not torch.equal(draw(1, 0), draw(1, 4099))


@pytest.mark.parametrize("width", [64, 128, 512, 576, 4096])
def test_no_row_is_there_twice(width):
    """A kernel that stops half way, or reads one head for another, must not find the same."""
    x = noise_(torch.empty(4 * BLOCK // width, width), seed=1)  # eight runs
    assert len({tuple(row) for row in x[:, :3].tolist()}) == len(x)


def test_rows_that_are_longer_than_what_is_copied_at_once():
    """Pages of 256 tokens of 128 heads, 192 wide."""
    x = noise_(torch.full((2, 128, 256, 192), torch.nan), seed=1)
    assert x.isfinite().all()
    assert len({tuple(row) for row in x[..., :3].flatten(0, 2).tolist()}) == 2 * 128 * 256


def test_lower_precision_and_deviation_are_of_the_same_noise():
    exact = noise_(torch.empty(64, 16), seed=1, start=7)
    assert torch.equal(noise_(torch.empty(64, 16, dtype=torch.bfloat16), 1, 7), exact.bfloat16())
    assert torch.equal(noise_(torch.empty(64, 16, dtype=torch.bfloat16), 1, 7, std=0.3), (exact * 0.3).bfloat16())


def test_neighbouring_rows_differ_beyond_a_block():
    x = noise_(torch.empty(BLOCK // 64 + 3, 64), seed=1)
    assert not torch.equal(x[0], x[1])
    assert x[-1].std() > 0.5


def test_strided_tensors_are_filled_in_place():
    whole = torch.full((6, 4, 8), torch.nan)
    view = whole[:, 1]
    assert noise_(view, seed=1) is view
    assert whole[:, 1].isfinite().all()
    assert whole[:, [0, 2, 3]].isnan().all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
def test_nothing_to_fill(shape):
    assert noise_(torch.empty(shape), seed=1).shape == shape
