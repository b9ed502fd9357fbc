"""Series from the names of yaml files, without Hydra: a process that torchrun starts has no configs to compose."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from experiments.measuring.series import Labels, Series, parse_labels, parse_series
from experiments.pairs import listed, number

CONF = Path(__file__).parent / "conf"


@dataclass(frozen=True)
class Job:
    """A config, the series of the whole layer and that of one rank, or why there is none."""

    raw: dict[str, Any]
    labels: Labels
    whole: Series | None = None
    series: Series | None = None
    reason: str = ""


def job(values: Mapping[str, str], attention: str, command: str) -> Job:
    """The job of one attention; ValueError for a name or a number that no attention could have."""
    groups = {"attention": attention, **{group: values[group] for group in ("storage", "backend", "model")}}
    raw: dict[str, Any] = {group: _yaml(group, name) for group, name in groups.items()}
    raw |= {"workload": _workload(values), "device": {"kind": values["device"]}, "tp": number(values, "tp")}
    raw["timer"] = {"kind": "auto", "rounds": number(values, "rounds"), "replicas": 1, "threads": None}
    job = Job(raw, parse_labels(raw, groups, command))
    try:
        job = replace(job, whole=parse_series(raw | {"tp": 1}, job.labels))
        return replace(job, series=parse_series(raw, job.labels))
    except ValueError as error:
        return replace(job, reason=str(error))


def _workload(values: Mapping[str, str]) -> dict[str, Any]:
    many = {name: listed(name, values[name]) for name in ("batch", "context")}
    one = {"dtype": values["dtype"], "kv_dtype": values["kv_dtype"] or None, "seed": number(values, "seed", 0)}
    return {**many, **one, "queries": 1, "scopes": ["step"], "temperature": "warm"}


def _yaml(group: str, name: str) -> dict[str, Any]:
    """A yaml of a config group as plain data; ValueError lists what there is."""
    known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    if name not in known:
        raise ValueError(f"{group} must be one of {', '.join(known)}; got {name!r}")
    raw: dict[str, Any] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    return raw
