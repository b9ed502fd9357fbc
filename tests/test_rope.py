"""Rotary embedding applied: pairs, fractions, float32 angles, and scores that depend on distance only."""

import math

import pytest
import torch

from tests.builders import LLAMA3, YARN, normal
from variants.contract.rotary import Rotary
from variants.rope import Rope


def rotate(rotary, x, position, dtype=torch.float64):
    """One head at one position."""
    x = torch.as_tensor(x, dtype=dtype).reshape(1, 1, 1, -1)
    return Rope(rotary).to(dtype)(x, torch.tensor([[position]]))[0, 0, 0]


@pytest.mark.parametrize(
    ("style", "x", "expected"),
    [
        ("interleaved", [1, 0, 0, 0], [0.540302, 0.841471, 0, 0]),
        ("half", [1, 0, 0, 0], [0.540302, 0, 0.841471, 0]),
        ("interleaved", [0, 1, 0, 0], [-0.841471, 0.540302, 0, 0]),
        ("half", [0, 1, 0, 0], [0, 0.999950, 0, 0.010000]),
    ],
)
def test_b06_pairs_of_both_conventions(style, x, expected):
    assert rotate(Rotary(style, 4), x, 1).tolist() == pytest.approx(expected, abs=1e-6)


def test_b06_permuting_columns_maps_one_convention_to_the_other():
    x, order = normal(4), torch.tensor([0, 2, 1, 3])
    interleaved = rotate(Rotary("interleaved", 4), x, 5)
    assert rotate(Rotary("half", 4), x[order], 5).tolist() == pytest.approx(interleaved[order].tolist(), abs=1e-12)


@pytest.mark.parametrize("scaling", [None, YARN, LLAMA3], ids=["plain", "yarn", "llama3"])
@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_b26_scores_depend_on_the_distance_only(style, scaling):
    rotary = Rotary(style, 16, scaling=scaling)
    q, k = normal(16, seed=1), normal(16, seed=2)
    near, far, other = (rotate(rotary, q, i) @ rotate(rotary, k, j) for i, j in ((5, 2), (105, 102), (6, 2)))
    assert float(near) == pytest.approx(float(far), abs=1e-4)
    assert abs(float(near - other)) > 1e-2


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_turning_keeps_lengths_but_for_the_amplitude(style):
    rotary = Rotary(style, 16, scaling=YARN)
    x = normal(16)
    amplitude = (0.07 * math.log(40) + 1) / (0.1 * math.log(40) + 1)
    assert float(rotate(rotary, x, 9).norm() / x.norm()) == pytest.approx(amplitude, rel=1e-6)


def test_columns_beyond_the_fraction_pass_through():
    x = normal(16)
    turned = rotate(Rotary("half", 4), x, 3)
    assert torch.equal(turned[4:], x[4:])
    assert turned[:4].tolist() == pytest.approx(rotate(Rotary("half", 4), x[:4], 3).tolist())
    assert not torch.allclose(turned[:4], x[:4])


def test_no_rotation_returns_the_input():
    x = normal(2, 3, 4, 8)
    assert Rope(Rotary("none", 0))(x, torch.zeros(2, 3, dtype=torch.int64)) is x


def test_every_token_and_sequence_has_its_own_position():
    x, position = normal(2, 3, 4, 8), torch.tensor([[0, 5, 2], [7, 7, 1]])
    rope = Rope(Rotary("half", 8))
    turned = rope(x, position)
    for b in range(2):
        for t in range(3):
            alone = rope(x[b : b + 1, t : t + 1], position[b : b + 1, t : t + 1])
            assert torch.equal(turned[b, t], alone[0, 0])


@pytest.mark.parametrize("position", [257, 15962])
@pytest.mark.parametrize("build", [lambda r: r.to(torch.bfloat16), lambda r: r.bfloat16(), lambda r: r])
def test_b17_angles_survive_a_cast_to_bf16(position, build):
    rope = build(Rope(Rotary("half", 4)))
    cos, sin = rope.cos_sin(torch.tensor([[position]]), torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    assert float(cos.flatten()[0]) == pytest.approx(math.cos(position), abs=0.004)
    assert float(sin.flatten()[0]) == pytest.approx(math.sin(position), abs=0.004)


def test_b17_positions_256_and_257_differ():
    at_256, at_257 = (rotate(Rotary("half", 4), [1, 1, 1, 1], p, torch.bfloat16) for p in (256, 257))
    assert float(at_257[0] - at_256[0]) == pytest.approx(
        math.cos(257) - math.sin(257) - math.cos(256) + math.sin(256), abs=0.02
    )


def test_a_module_built_on_the_meta_device_still_has_its_frequencies():
    with torch.device("meta"):
        rope = Rope(Rotary("half", 4))
    rope = rope.to_empty(device="cpu")
    assert rope.inv_freq.tolist() == pytest.approx([1.0, 0.01])
    assert not rope.state_dict()  # frequencies follow from the spec; checkpoints do not hold them
