"""Lessons that take a moment, and rows of trainings that were never run."""

from typing import Any

import yaml

from experiments.learned import Training
from experiments.measuring.learning.job import Job, jobs
from experiments.measuring.learning.lesson import Lesson
from tests.builders import CONF, config

FAMILY = ("mha", "gqa", "mqa", "mla", "gla", "gta")
TINY: dict[str, Any] = {
    "tasks": ["recall", "text"],
    "seeds": [0, 1],
    "device": "cpu",
    "workers": 1,
    "evaluations": 2,
    "warmup": 0.1,
    "weight_decay": 0.0,
    "model": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "mlp_width": 64,
    },
    "recall": {
        "steps": 4,
        "batch": 4,
        "context": 16,
        "pairs": 3,
        "keys": 8,
        "values": 10,
        "power": 0.1,
        "learning_rate": 0.01,
        "held_out": 8,
    },
    "text": {"steps": 4, "batch": 2, "context": 12, "learning_rate": 0.01, "held_out": 4},
}


def shipped() -> dict[str, Any]:
    """The section of the study."""
    values = yaml.safe_load((CONF / "study" / "train_small.yaml").read_text(encoding="utf-8"))
    return dict(values["learning"])


def lesson(**changes: Any) -> Lesson:
    """A tiny one; a part that is given changes some of its sizes."""
    raw = {**TINY}
    for name, value in changes.items():
        raw[name] = {**TINY[name], **value} if isinstance(value, dict) else value
    return Lesson.parse(raw)


def jobs_of(of: Lesson, *attentions: str) -> list[Job]:
    """Its trainings."""
    return jobs(of, {name: config("attention")[name] for name in attentions}, attentions[0])


def training(attention: str = "mha", score: float = 0.97, **changes: Any) -> Training:
    """A row that ended well: ``score`` is its accuracy, and its loss where the task is text."""
    values: dict[str, Any] = {
        "key": f"{attention}-{changes.get('task', 'recall')}-{changes.get('seed', 0)}",
        "setting": "one",
        "study": "train_small",
        "attention": attention,
        "kind": "grouped",
        "task": "recall",
        "seed": 0,
        "steps": 10,
        "batch": 4,
        "context": 16,
        "pairs": 4,
        "learning_rate": 0.003,
        "hidden_size": 64,
        "layers": 2,
        "heads": 4,
        "vocabulary": 64,
        "mlp_width": 128,
        "parameters": 86336,
        "baseline": "mha",
        "cache_bytes": 512.0 if attention == "mha" else 128.0,
        "dtype": "fp32",
        "chance": 1 / 32,
        "status": "ok",
        "loss": score,
        "accuracy": min(score, 1.0),
        "curve": ((0, 4.0, 0.03), (10, score, min(score, 1.0))),
        "data": f"data-{changes.get('seed', 0)}",
        "seconds": 1.0,
        "threads": 1,
        "device": "a processor",
        "host": "here",
        "versions": "torch 0",
        "commit": "abc",
        "command": "python -m experiments.run study=train_small",
        "started_at": "2026-01-01T00:00:00+00:00",
    }
    values |= changes
    if values["status"] != "ok":
        values |= dict.fromkeys(("loss", "accuracy", "curve", "data"))
    return Training(**values)
