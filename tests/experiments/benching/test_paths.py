"""Every torch path answers what the oracle answers, over the used part of a cache, in either axis order."""

from dataclasses import replace

import pytest
import torch

from experiments.benching.caches import check, filled, oracle, plan, query, relative_error, replicas
from experiments.benching.paths import token_major, torch_paths
from experiments.benching.sizes import SMOKE, VARIANTS
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.decode import Refused
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

ORDERS = ("head-major", "token-major")


def cache_of(variant: str, dtype: Dtype = Dtype.F32, capacity: int = 48, used: int = 40):
    spec = SMOKE.spec(variant)
    return spec.geometry(), filled(Contiguous(), spec.layout(dtype), capacity, used, seed=3)


@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.BF16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_paths_equal_the_oracle(variant: str, dtype: Dtype) -> None:
    geometry, cache = cache_of(variant, dtype)  # slots 40 to 47 hold NaN
    q = query(geometry, dtype, seed=3)
    exact, _ = oracle(geometry, cache.view, 40, q)
    for name, path in torch_paths(geometry, cache.view, 40).items():
        check(name, path(q), exact, dtype)
    check("ours", plan(geometry, cache, 40).attend(q)[0], exact, dtype)


def test_paths_are_those_that_differ() -> None:
    """MHA has nothing to pack; a cache of one head lies the same way in both orders."""
    named = {variant: names_of(variant) for variant in VARIANTS}
    assert named["mha"] == [f"{path}, {order}" for order in ORDERS for path in ("sdpa", "matmul")]
    assert named["gqa8"] == [f"{path}, {order}" for order in ORDERS for path in ("sdpa", "packed sdpa", "matmul")]
    assert named["mqa"] == named["mla"] == [f"{path}, head-major" for path in ("sdpa", "packed sdpa", "matmul")]


def names_of(variant: str) -> list[str]:
    geometry, cache = cache_of(variant)
    return list(torch_paths(geometry, cache.view, 40))


def test_token_major_is_the_same_cache_lying_otherwise() -> None:
    _, cache = cache_of("gqa8", capacity=40)
    turned = token_major(cache.view)
    key, other = cache.view.stream("key"), turned.stream("key")
    assert torch.equal(key, other)
    assert key.stride()[1:3] == (40 * 16, 16)
    assert other.stride()[1:3] == (16, 8 * 16)


def test_a_wrong_answer_is_named() -> None:
    exact = torch.ones(4)
    check("right", exact.bfloat16(), exact, Dtype.BF16)
    for wrong in (exact * 1.1, exact * torch.nan, torch.ones(4, 1)):
        with pytest.raises(ValueError, match=r"^matmul answers wrongly: relative error .* of at most 0.03"):
            check("matmul", wrong, exact, Dtype.BF16)
    assert relative_error(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])) == pytest.approx(5 / 4)


def test_queries_are_in_no_cache() -> None:
    geometry, cache = cache_of("mha")
    q = query(geometry, Dtype.F32, seed=3).flatten()
    assert not torch.isin(q[:8], cache.view.stream("key")).any()


def test_what_a_backend_refuses_is_not_planned() -> None:
    spec = SMOKE.spec("mha")
    geometry = spec.geometry()
    two = replace(geometry, value=(Span("value", 0, 8), Span("value", 8, 16)))
    cache = filled(Paged(16), spec.layout(Dtype.F32), 32, 32, seed=0)
    with pytest.raises(Refused, match="values in one span"):
        plan(two, cache, 32)


def test_replicas_are_as_many_as_there_is_room_for() -> None:
    assert replicas(100, 1000, most=16) == 10
    assert replicas(900, 1000, most=16) == 2
    assert replicas(1, 1000, most=16) == 16
