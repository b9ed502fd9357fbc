"""What is learned and how, as numbers: sizes of the decoder, of the two tasks, and of the training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from variants.contract.checks import check_count, check_number
from variants.contract.model import ModelShape
from variants.contract.rotary import check_fields

TASKS = ("recall", "text")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Recall:
    """Multi-query associative recall: sizes of the sequences and of the training."""

    steps: int
    batch: int
    context: int
    pairs: int
    keys: int
    values: int
    power: float
    learning_rate: float
    held_out: int

    def __post_init__(self) -> None:
        _check(self)
        if self.pairs > min(self.keys, self.values):
            raise ValueError(
                "recall.pairs must be <= recall.keys and recall.values, since none comes twice in a sequence; "
                f"got pairs={self.pairs}, keys={self.keys}, values={self.values}"
            )
        if self.context % 2 or self.context < 4 * self.pairs:
            raise ValueError(
                "recall.context must be even and >= 4 recall.pairs (a pair, and a query with the place after it); "
                f"got context={self.context}, pairs={self.pairs}"
            )

    @property
    def vocabulary(self) -> int:
        """Keys, then values."""
        return self.keys + self.values


@dataclass(frozen=True)
class Text:
    """The next byte of real text: sizes of the windows and of the training."""

    steps: int
    batch: int
    context: int
    learning_rate: float
    held_out: int

    vocabulary = 256

    def __post_init__(self) -> None:
        _check(self)


Task = Recall | Text


@dataclass(frozen=True)
class Shape:
    """The decoder: everything that all variants share. ``mlp_width`` is the baseline's; the others' follow from it."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    mlp_width: int

    def __post_init__(self) -> None:
        _check(self)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "model.num_attention_heads must divide model.hidden_size; "
                f"got {self.num_attention_heads} and {self.hidden_size}"
            )

    @property
    def place(self) -> ModelShape:
        """The place that an attention is built for."""
        sizes = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mlp_width"}
        return ModelShape(name="tiny", source="conf/study/train_small.yaml", **sizes)


@dataclass(frozen=True)
class Lesson:
    """All that a run trains, variants apart.

    Raises ValueError, in one line, for a number that cannot be, a task or a device that does not exist.
    """

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str
    workers: int | None
    evaluations: int
    warmup: float
    weight_decay: float
    model: Shape
    recall: Recall
    text: Text

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """From a config's section, variants apart."""
        check_fields(cls, raw, "learning")
        parts = {"model": Shape, "recall": Recall, "text": Text}
        return cls(
            **{
                **raw,
                "tasks": _several("tasks", raw["tasks"]),
                "seeds": _several("seeds", raw["seeds"]),
                **{name: _part(name, kind, raw[name]) for name, kind in parts.items()},
            }
        )

    def __post_init__(self) -> None:
        if not all(task in TASKS for task in self.tasks):
            raise ValueError(f"learning.tasks must be of {', '.join(TASKS)}; got {', '.join(map(str, self.tasks))}")
        for seed in self.seeds:
            if type(seed) is not int or not 0 <= seed < 2**31:
                raise ValueError(f"learning.seeds must be whole numbers from 0 to 2^31 - 1; got {seed!r}")
        if self.device not in DEVICES:
            raise ValueError(f"learning.device must be one of {', '.join(DEVICES)}; got {self.device!r}")
        check_count("learning.evaluations", self.evaluations)
        if self.workers is not None:
            check_count("learning.workers", self.workers)
        for name in ("warmup", "weight_decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise ValueError(f"learning.{name} must be a number from 0 to below 1; got {value!r}")

    def task(self, name: str) -> Task:
        """Its sizes."""
        return self.recall if name == "recall" else self.text

    def chance(self, name: str) -> float | None:
        """Accuracy of guessing among all values, which is the most that a decoder without attention can reach."""
        return 1 / self.recall.values if name == "recall" else None


def _several(name: str, value: object) -> tuple[Any, ...]:
    found: tuple[Any, ...] = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not found or len(set(map(repr, found))) < len(found):
        raise ValueError(f"learning.{name} must name at least one, and none twice; got {list(found)}")
    return found


def _part(name: str, kind: Any, raw: object) -> Any:
    if not isinstance(raw, Mapping):
        raise ValueError(f"learning.{name} must be a mapping; got {raw!r}")
    check_fields(kind, raw, f"learning.{name}")
    try:
        return kind(**raw)
    except ValueError as error:
        raise ValueError(f"learning.{error}") from None


def _check(of: Any) -> None:
    """Whole numbers are counts, others are positive."""
    name = type(of).__name__.lower().replace("shape", "model")
    for field in fields(of):
        check = check_count if field.type is int else check_number
        check(f"{name}.{field.name}", getattr(of, field.name))


def rate(lesson: Lesson, task: str, step: int) -> float:
    """The learning rate of a step: up in a line over the first ``warmup`` of the steps, then down a half cosine."""
    sizes = lesson.task(task)
    rising = max(1, round(lesson.warmup * sizes.steps))
    if step < rising:
        return sizes.learning_rate * (step + 1) / rising
    return sizes.learning_rate * (1 + math.cos(math.pi * (step - rising) / max(1, sizes.steps - rising))) / 2
