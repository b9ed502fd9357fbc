"""Result sets on disk: rows with their raw samples beside them, as a run writes them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.record import Measurement
from experiments.runfolder import store
from experiments.telling.comparing.result import Question, Result, answer
from tests.experiments.telling.rows import row

ROUNDS = 6


def samples(us: float, noise: float = 0.01, seed: int = 0, rounds: int = ROUNDS) -> NDArray[np.float64]:
    """Samples [rounds, 8] whose median is ``us``, with log-normal noise between and within rounds."""
    rng = np.random.default_rng(seed)
    drawn = np.exp(noise * (rng.standard_normal((rounds, 1)) + rng.standard_normal((rounds, 8))) / np.sqrt(2))
    return np.asarray(us * drawn / np.median(drawn))


def point(attention: str = "gqa", us: float = 100.0, context: int = 1024, **given: Any) -> Measurement:
    """A row whose key says which point it is and nothing of time, machine or commit."""
    key = given.pop("key", f"{attention}-{given.get('scope', 'step')}-{context}")
    return row(attention, context=context, us=us, key=key, **given)


def keep(folder: Path, *rows: Measurement, noise: float = 0.01, seed: int = 0, raw: bool = True) -> Path:
    """Store rows with samples of their medians; returns the folder."""
    for number, one in enumerate(rows):
        us = {one.key: samples(one.latency_us_p50, noise, seed + number)} if raw and one.latency_us_p50 else {}
        store(folder, (one,), us)
    return folder


def slower(one: Measurement, ratio: float) -> Measurement:
    """The same point, ``ratio`` times as long."""
    given = {name: getattr(one, name) * ratio for name in ("latency_us_p50", "latency_us_ci_low", "latency_us_ci_high")}
    return replace(one, **given)


def held(a: Path, b: Path, **given: Any) -> Result:
    """``b`` held against ``a``."""
    return answer(Question(a, b, **given))
