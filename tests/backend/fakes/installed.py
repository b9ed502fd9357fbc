"""Put a fake where a library would be, check an adapter on it against eager, and see that a fault would show."""

import sys
from importlib import import_module
from inspect import signature

import pytest
import torch

from tests.builders import DTYPES, allocate, fill, normal, random_entries
from variants.backend.eager import Eager


def install(monkeypatch, **modules):
    """``install(monkeypatch, flash_attn__cute="flash_attn_4")``: that import finds ``fakes/flash_attn_4.py``."""
    for name, file in modules.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), import_module(f"tests.backend.fakes.{file}"))


def on_gpu(monkeypatch, *capability):
    """As if there were a GPU of that compute capability."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


def filled(layout, storage, lengths, room=0):
    """A cache of random entries, NaN in unused slots."""
    tokens = max(lengths) + room
    return fill(allocate(layout, len(lengths), tokens, storage), random_entries(layout, len(lengths), tokens), lengths)


def distance(backend, geometry, cache, queries=1):
    """Largest difference from eager in float64, of the output and of the log-sum-exp."""
    longest = int(cache.view.lengths.max())
    dtype = DTYPES[cache.view.layout.streams[0].dtype]
    q = normal(len(cache.view.lengths), queries, geometry.num_q_heads, geometry.d_qk, seed=3, dtype=dtype)
    exact, exact_lse = Eager().plan(geometry, cache.view, longest, queries).attend(q.double())
    o, lse = backend.plan(geometry, cache.view, longest, queries).attend(q)
    assert exact_lse is not None
    assert (o.shape, o.dtype, lse.shape) == (exact.shape, dtype, exact_lse.shape)
    return float((o.double() - exact).abs().max()), float((lse.double() - exact_lse).abs().max())


def assert_like_eager(backend, geometry, cache, queries=1):
    """Within the rounding of a 16-bit output."""
    o, lse = distance(backend, geometry, cache, queries)
    assert o < 2e-2
    assert lse < 1e-4


def recording(calls, honest):
    """``honest``, which also leaves its arguments in ``calls`` as (positional, named)."""

    def call(*args, **named):
        calls.append((args, named))
        return honest(*args, **named)

    return call


def assert_faults_show(monkeypatch, owner, name, faults, check):
    """``check()`` holds, and fails as soon as ``owner.name`` gets what one of ``faults`` makes of its arguments."""
    check()
    honest = getattr(owner, name)
    for fault in faults:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, faulty(honest, fault))
            with pytest.raises(AssertionError):
                check()


def faulty(honest, fault):
    """``fault`` takes the arguments by name and returns those to call with."""

    def call(*args, **kwargs):
        bound = signature(honest).bind(*args, **kwargs)
        return honest(**fault(dict(bound.arguments)))

    return call


def without(name):
    """An argument left out, so that the library's default counts."""
    return lambda given: {key: value for key, value in given.items() if key != name}


def changed(name, change):
    """An argument of another value."""
    return lambda given: given | {name: change(given[name])}
