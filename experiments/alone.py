"""What a run asks for that measures no series: one config, a section of its own, and nothing that it would ignore."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from experiments.door import CONF, Composed

RUN = ("asks", "name", "results", "resume", "study")  # what such a run has beside its section


def section(configs: Sequence[Composed], name: str) -> Mapping[str, Any]:
    """The options below ``name`` of the run's one config.

    Raises ValueError for a sweep, a part of a run, and whatever else was set that only series of measurements have.
    """
    config = configs[0]
    study = config.choices.get("study")
    if len(configs) != 1 or config.job is not None:
        raise ValueError(
            f"study={study} is one run: give lists below {name}., and leave out sweeps and other launchers"
        )
    typed = [group for group, chosen in config.choices.items() if chosen is not None and _is_for_series(group)]
    typed += [key for key, value in _defaults().items() if key not in RUN and config.values.get(key, value) != value]
    if typed:
        raise ValueError(f"study={study} takes options below {name}. and {', '.join(RUN[1:4])}; got {', '.join(typed)}")
    if not isinstance(found := config.values.get(name), Mapping):
        raise ValueError(f"study={study} needs its options below {name}.; got {found!r}")
    return dict(found)


def _is_for_series(group: str) -> bool:
    return group not in RUN and not group.startswith("hydra")


def _defaults() -> dict[str, Any]:
    """What ``conf/config.yaml`` says itself, groups aside."""
    said = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in said.items() if key not in ("defaults", "hydra")}
