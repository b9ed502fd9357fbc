"""The toy's numbers, by plain float64 softmax attention in numpy from the module's own weights."""

from typing import Any

import numpy as np
import pytest

from experiments.measuring.tracing.toy import PREFIX, toy_module, toy_spec, toy_tokens, walk
from experiments.traced import Walk
from tests.builders import config

CLOSE: Any = {"rtol": 1e-5, "atol": 1e-5}


def _weights(options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Weights as float64 arrays by name, and the tokens [4, D]."""
    spec = toy_spec(options)
    module: Any = toy_module(spec)
    named = {name.removesuffix(".weight"): p.double().numpy() for name, p in module.named_parameters()}
    return named, toy_tokens(spec)[0].double().numpy()


def _turned(pairs: Any) -> Any:
    """Rows of one pair of columns each, turned by their position in radians: theta^0 = 1."""
    angle = np.arange(len(pairs))
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = pairs[:, 0], pairs[:, 1]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=1)


def _softmax(scores: Any) -> Any:
    """Causal: row i sees keys 0 .. i."""
    masked = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
    grown = np.exp(masked - masked.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def _holds(told: Walk, scores: list[Any], values: list[Any], o_proj: Any) -> None:
    weights = [_softmax(s) for s in scores]
    for head in range(2):
        for i in range(PREFIX):
            seen = np.array(told.prefill.scores[head][i])
            np.testing.assert_allclose(seen[: i + 1], scores[head][i, : i + 1], **CLOSE)
            assert np.isneginf(seen[i + 1 :]).all()
        np.testing.assert_allclose(told.prefill.weights[head], weights[head][:PREFIX, :PREFIX], **CLOSE)
        np.testing.assert_allclose(told.decode.scores[head], scores[head][PREFIX:], **CLOSE)
        np.testing.assert_allclose(told.decode.weights[head], weights[head][PREFIX:], **CLOSE)
    o = np.concatenate([w @ v for w, v in zip(weights, values, strict=True)], axis=1)
    np.testing.assert_allclose(told.y, (o @ o_proj.T)[PREFIX], **CLOSE)
    np.testing.assert_allclose(told.again, told.y, **CLOSE)


@pytest.mark.parametrize("name", ["mha", "gqa", "mqa"])
def test_grouped(name: str) -> None:
    raw = config("attention")[name]
    w, x = _weights(raw)
    kv_heads = 1 if name == "mqa" else 2
    q, k, v = (x @ w[f"{part}_proj"].T for part in "qkv")
    of = [0, 0] if kv_heads == 1 else [0, 1]
    queries = [_turned(q[:, 2 * h : 2 * h + 2]) for h in range(2)]
    keys = [_turned(k[:, 2 * g : 2 * g + 2]) for g in range(kv_heads)]
    values = [v[:, 2 * g : 2 * g + 2] for g in range(kv_heads)]
    told = walk(raw)
    np.testing.assert_allclose(told.cache["key"], keys, **CLOSE)
    np.testing.assert_allclose(told.cache["value"], values, **CLOSE)
    scores = [queries[h] @ keys[of[h]].T / np.sqrt(2) for h in range(2)]
    _holds(told, scores, [values[g] for g in of], w["o_proj"])


@pytest.mark.parametrize("form", ["absorbed", "materialized", "expanded"])
def test_mla(form: str) -> None:
    raw = config("attention")["mla"] | {"form": form}
    w, x = _weights(raw)
    q = (x @ w["q_proj"].T).reshape(4, 2, 4)  # 2 plain columns and 2 rotary ones of each head
    both = x @ w["kv_a_proj_with_mqa"].T
    latent = both[:, :2] / np.sqrt((both[:, :2] ** 2).mean(axis=1, keepdims=True) + 1e-6)
    rope = _turned(both[:, 2:])
    up = w["kv_b_proj"].reshape(2, 4, 2)  # per head 2 rows for keys, 2 for values
    keys = [np.concatenate([latent @ up[h, :2].T, rope], axis=1) for h in range(2)]
    queries = [np.concatenate([q[:, h, :2], _turned(q[:, h, 2:])], axis=1) for h in range(2)]
    told = walk(raw)
    if form != "expanded":
        np.testing.assert_allclose(told.cache["latent"], [latent], **CLOSE)
        np.testing.assert_allclose(told.cache["rope"], [rope], **CLOSE)
    scores = [queries[h] @ keys[h].T / np.sqrt(4) for h in range(2)]
    _holds(told, scores, [latent @ up[h, 2:].T for h in range(2)], w["o_proj"])
    assert told.decode.form == form


@pytest.mark.parametrize("name", list(config("attention")))
def test_every_variant_has_a_toy(name: str) -> None:
    told = walk(config("attention")[name])
    assert told.kept
    assert [len(rows) for rows in told.prefill.scores] == [3, 3]
    assert [len(rows[0]) for rows in told.decode.scores] == [4, 4]
    np.testing.assert_allclose(np.array(told.prefill.weights).sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(told.again, told.y, **CLOSE)


def test_a_window_hides_the_oldest_tokens() -> None:
    told = walk(config("attention")["mha"] | {"window": 2})
    assert [np.isfinite(row).sum() for row in told.decode.scores[0]] == [2]


def test_options_that_no_toy_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no toy of this: .*num_kv_heads=3"):
        walk({"kind": "grouped", "num_kv_heads": 3})
    with pytest.raises(ValueError, match="attention: .*'wings'"):
        walk({"kind": "grouped", "wings": 3})
