"""What is proved once for the weights of a series."""

from collections import Counter

import pytest

from experiments.measuring import layer, worker
from experiments.measuring.messages import Prepare, Ready, Release, Scoped
from tests.experiments.builders import device, series
from variants.contract.cost import Point
from variants.contract.dtype import Dtype


class Ticking:
    """A clock whose every call takes a microsecond and is run."""

    name = "ticking"

    def time(self, call):
        """Run it."""
        call()
        return 1.0


def made(**options: object) -> worker.Worker:
    """A worker of a small series on this CPU."""
    return worker.Worker(series("gqa", "eager", scopes=["step"], **options), 1, device(), Ticking())


def asked(it: worker.Worker, context: int) -> Ready:
    """Prepared at a context."""
    reply = it.ask(Prepare(Point(1, context, 1, Dtype("fp32")), 2, ("step",)))
    assert isinstance(reply, Ready), reply
    return reply


def test_weights_are_held_to_the_textbook_layer_once_and_again_after_they_were_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: Counter[int] = Counter()
    real = layer._against_reference

    def counted(replica, tokens):
        calls[tokens] += 1
        return real(replica, tokens)

    monkeypatch.setattr(layer, "_against_reference", counted)
    it = made()
    for context in (64, 128):
        step = asked(it, context).scopes["step"]
        assert isinstance(step, Scoped)
        assert [check.holds for check in step.checks if check.name == "layer"] == [True]
        it.ask(Release())
    assert calls == {layer.TOKENS + 1: 1}
    it.ask(Release(keeping=False))
    asked(it, 64)
    assert calls == {layer.TOKENS + 1: 2}


def test_fewer_tokens_are_a_proof_of_their_own() -> None:
    it = made()
    asked(it, 4)
    asked(it, 64)
    assert sorted(it.layers) == [4, layer.TOKENS + 1]
