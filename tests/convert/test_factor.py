"""The latent of a given rank is the best there is: what it loses is the tail of singular values."""

import numpy as np
import pytest
import torch

from tests.builders import build, grouped, normal
from variants.contract.rotary import Rotary
from variants.convert import as_latent, convert
from variants.convert.factor import balanced, factorise


def positive(size, seed):
    root = normal(size, size, seed=seed)
    return root @ root.T


@pytest.mark.parametrize("rank", [1, 5, 12, 20])
def test_what_is_lost_is_the_tail_of_singular_values(rank):
    rows, metric, spread = normal(20, 31), positive(20, 1), positive(31, 2)
    factors = factorise(rows, metric, spread, rank)
    assert factors.down.shape == (rank, 31)
    missed = rows - factors.up @ factors.down
    lost = float(torch.einsum("nx,xy,my,nm->", missed, spread, missed, metric))
    weighed = np.linalg.cholesky(metric.numpy()).T @ rows.numpy() @ np.linalg.cholesky(spread.numpy())
    tail = np.linalg.svd(weighed, compute_uv=False)[rank:]
    assert lost == pytest.approx((tail**2).sum(), rel=1e-9, abs=1e-7)


def test_balance_gives_keys_and_values_equal_power():
    keys, values, spread = 50 * normal(6, 9), normal(4, 9, seed=3), positive(9, 4)
    metric = balanced((keys, values), (positive(6, 5), positive(4, 6)), spread)
    for rows, part in ((keys, metric[:6, :6]), (values, metric[6:, 6:])):
        assert float(torch.einsum("nx,xy,my,nm->", rows, spread, rows, part)) == pytest.approx(1)
    assert not metric[:6, 6:].any()


@pytest.mark.parametrize("rank", [4, 20, 40])
def test_a_layer_without_rotation_loses_the_tail_of_its_keys_and_values(rank):
    """Where queries and outputs weigh all columns alike, the latent is the plain SVD's."""
    spec = grouped(2, 2, rotary=Rotary("none", 0))
    layer = build(spec)
    for projection in (layer.q_proj.weight, layer.o_proj.weight.T):
        projection.copy_(torch.linalg.qr(normal(48, 32, seed=8))[0].T)
    mla, _ = convert(layer, as_latent(spec, rank, 0))
    up = mla.kv_b_proj.weight.unflatten(0, (2, 32))  # per head: 16 rows of the key, 16 of the value
    made = up @ mla.kv_a_proj_with_mqa.weight
    wanted = torch.cat([w.weight.unflatten(0, (2, 16)) for w in (layer.k_proj, layer.v_proj)], dim=1)
    power = [float(w.weight.square().sum()) for w in (layer.k_proj, layer.v_proj)]
    lost = (made - wanted).square().sum(dim=(0, 2)).unflatten(0, (2, 16)).sum(dim=1)
    stacked = np.concatenate(
        [w.weight.numpy() / p**0.5 for w, p in zip((layer.k_proj, layer.v_proj), power, strict=True)]
    )
    tail = np.linalg.svd(stacked, compute_uv=False)[rank:]
    assert float(lost[0] / power[0] + lost[1] / power[1]) == pytest.approx((tail**2).sum(), rel=1e-9)
