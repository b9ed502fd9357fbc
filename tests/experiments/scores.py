"""Rows of quality as a study would write them, with invented numbers."""

import math
from typing import Any

from experiments.scored import Scored

OWN = (2.0, 2.4, 2.2, 2.6)  # nats per token in each window, of the original


def scored(label: str = "gqa (original)", worse: float = 0.0, **given: Any) -> Scored:
    """A row whose windows are all ``worse`` nats per token than the original's, a little more in the second."""
    nll = tuple(n + worse * (1.2 if i == 1 else 1.0) for i, n in enumerate(OWN))
    kl = tuple(worse for _ in OWN)
    own = label == "gqa (original)"
    steps = given.get("steps", 0)
    values: dict[str, Any] = {
        "key": f"{label}-{steps}",
        "checkpoint": "some-model",
        "note": "",
        "attention": label.split(" (")[0],
        "label": label,
        "method": "original" if own else "low_rank",
        "exact": own,
        "layers": 30,
        "bytes_per_token": 1536.0,
        "dtype": "fp32",
        "corpus": "pydoc_data.topics of Python 3.11.7",
        "window": 512,
        "nll": nll,
        "kl": kl,
        "perplexity": math.exp(math.fsum(nll) / 4),
        "divergence": math.fsum(kl) / 4,
        "layer_error": None if own else 0.25,
        "calibration_tokens": 0 if own else 4096,
        "training_tokens": 16384 if steps else 0,
        "learning_rate": 1e-3 if steps else None,
        "loss_first": 0.06 if steps else None,
        "loss_last": 0.02 if steps else None,
        "seed": 0,
        "seconds": 30.0,
        "device": "a processor",
        "threads": 2,
        "versions": "torch 0",
        "commit": "abc",
        "command": "python -m experiments.run study=quality",
        "started_at": "2026-01-01T00:00:00+00:00",
    }
    return Scored(**{**values, **given})


def study() -> list[Scored]:
    """The original, an exact variant, and two lossy ones before and after training."""
    sizes = {"mqa": 512.0, "mla (160 + 32)": 768.0}
    lossy = [
        scored(name, worse / (1 if steps == 0 else 3), steps=steps, bytes_per_token=size)
        for (name, size), worse in zip(sizes.items(), (1.5, 0.3), strict=True)
        for steps in (0, 64)
    ]
    mha = scored("mha", 0.0, method="repeat", exact=True, bytes_per_token=4608.0, layer_error=None)
    return [scored(), mha, *lossy]
