"""Configs gone wrong: one to three fields of a real one dropped, or set to what no model has."""

import copy
import random
from collections.abc import Iterator
from typing import Any

WRONG: tuple[Any, ...] = (
    None,
    0,
    -1,
    -(10**12),
    10**30,
    2.5,
    float("nan"),
    float("inf"),
    "",
    "32",
    "x" * 500,
    True,
    False,
    [],
    [None],
    [1, 2, 3],
    ["full_attention"],
    [[1]] * 5000,
    {},
    {"a": {"b": [1]}},
)
CHANGES = ("drop", "wrong", "near", "longer")


def mutants(
    configs: dict[str, dict[str, Any]], count: int, seed: int
) -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    """``count`` triples: the original's name, the mutant, and the names of the fields that were changed."""
    dice = random.Random(seed)
    names = sorted(configs)
    for _ in range(count):
        name = dice.choice(names)
        mutant = copy.deepcopy(configs[name])
        yield name, mutant, {_change(mutant, dice) for _ in range(dice.choice((1, 1, 1, 2, 3)))}


def _change(config: dict[str, Any], dice: random.Random) -> str:
    """Change one field somewhere in ``config`` and return its name; an empty object is given a field."""
    places = list(_places(config))
    if not places:
        config["hidden_size"] = -1
        return "hidden_size"
    owner, key = dice.choice(places)
    change, value = dice.choice(CHANGES), owner[key]
    if change == "drop":
        del owner[key]
    elif change == "near" and isinstance(value, int) and not isinstance(value, bool):
        owner[key] = value + dice.choice((-1, 1, value))
    elif change == "longer" and isinstance(value, list) and value:
        owner[key] = value[: len(value) // 2] if dice.random() < 0.5 else value + value[-1:]
    else:
        owner[key] = copy.deepcopy(dice.choice(WRONG))
    return key


def _places(config: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for key, value in config.items():
        yield config, key
        if isinstance(value, dict):
            yield from _places(value)
        elif isinstance(value, list):
            for item in value[:3]:
                if isinstance(item, dict):
                    yield from _places(item)
