"""A series: one attention on one storage, backend, model, dtype and rank; its points are an inner loop."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from experiments.measuring.workload import Workload
from variants.contract.checks import check_count, check_number
from variants.contract.dtype import Dtype
from variants.contract.identity import identity_of
from variants.contract.model import ModelShape
from variants.contract.plugin import find
from variants.protocols import Backend, Spec, StoragePolicy

TIMERS = ("auto", "wall", "events", "graph")
DEVICES = ("auto", "cpu", "cuda")  # others are known by a profile: conf/device
ORIGINS = ("measured", "predicted")
GROUPS = ("attention", "storage", "backend", "model", "workload", "timer", "device")


@dataclass(frozen=True)
class TimerChoice:
    """How to time: which clock, on how many threads, over how many distinct replicas, for how many rounds.

    ``rounds`` are always taken. More follow, up to ``max_rounds`` (None: no more), until the confidence interval of
    every median of the point is at most ``ci_width`` of that median wide, or ``budget_s`` seconds are spent on it.
    """

    kind: str
    rounds: int
    replicas: int
    threads: int | None
    max_rounds: int | None = None
    ci_width: float | None = None
    budget_s: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in TIMERS:
            raise ValueError(f"timer.kind must be one of {', '.join(TIMERS)}; got {self.kind!r}")
        for name in ("rounds", "replicas", "threads", "max_rounds"):
            value = getattr(self, name)
            if value is None and name in ("threads", "max_rounds"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"timer.{name} must be a whole number >= 1; got {value!r}")
        for name in ("ci_width", "budget_s"):
            if getattr(self, name) is not None:
                check_number(f"timer.{name}", getattr(self, name))


@dataclass(frozen=True)
class Labels:
    """What names a series in a row and on a plot, known even where the series cannot be built."""

    study: str | None
    attention: str
    kind: str
    storage: str
    backend: str
    model: str
    dtype: str
    tp: int
    command: str

    def folder(self, digest: str) -> str:
        """Folder of the series' own records: readable, safe on any file system, unique by digest."""
        parts = (self.attention, self.storage, self.backend, self.model, self.dtype, f"tp{self.tp}", digest)
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)


@dataclass(frozen=True)
class Series:
    """Everything that is fixed while contexts and batches vary. ``spec`` is one rank's.

    ``tp_mode``: whether the ranks' caches add up to the whole one (``sharded``) or hold entries several times.
    ``profile``: the device's figures as its yaml has them, for rows of origin ``predicted``.
    """

    labels: Labels
    spec: Spec
    tp_mode: str | None
    model: ModelShape
    policy: StoragePolicy
    backend: Backend
    workload: Workload
    timer: TimerChoice
    device: str
    origin: str = "measured"
    profile: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """Folder name; equal settings give equal names."""
        return self.labels.folder(self.digest)

    @property
    def digest(self) -> str:
        """Short hash of all settings of the series but its points."""
        text = json.dumps(self.identity(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def identity(self) -> dict[str, Any]:
        """All that decides a measurement of this series, its points apart; no paths, no verbosity."""
        return dict(self._identity)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        workload = self.workload
        return {
            "attention": self.labels.attention,
            "kind": self.labels.kind,
            "spec": identity_of(self.spec),
            "storage": {"kind": self.labels.storage, **asdict(self.policy)},  # type: ignore[call-overload]
            "backend": {"kind": self.labels.backend, **asdict(self.backend)},  # type: ignore[call-overload]
            "model": self.model.name,
            "layers": self.model.num_hidden_layers,
            "tp": self.labels.tp,
            "dtype": workload.dtype.value,
            "kv_dtype": workload.kv_dtype.value,
            "queries": workload.queries,
            "seed": workload.seed,
            "timer": asdict(self.timer),
            **({"profile": self.profile} if self.origin == "predicted" else {}),
        }


def parse_labels(raw: Mapping[str, Any], choices: Mapping[str, Any], command: str) -> Labels:
    """Names of a composed config. ``choices`` are the yaml chosen per group: the attention is called as its file is.

    Raises ValueError if a group is missing altogether.
    """
    missing = [group for group in GROUPS if not isinstance(raw.get(group), Mapping)]
    if missing:
        raise ValueError(f"config needs the group {missing[0]}, e.g. {missing[0]}=NAME; got {raw.get(missing[0])!r}")
    return Labels(
        study=choices.get("study"),
        attention=str(choices["attention"]),
        kind=str(raw["attention"].get("kind")),
        storage=str(choices["storage"]),
        backend=str(choices["backend"]),
        model=str(choices["model"]),
        dtype=str(raw["workload"]["dtype"]),
        tp=raw["tp"],
        command=command,
    )


def parse_series(raw: Mapping[str, Any], labels: Labels) -> Series:
    """Build the frozen series of a composed config; ValueError in one line for anything that cannot exist."""
    model = ModelShape.parse(raw["model"])
    workload = Workload.parse(raw["workload"])
    check_count("tp", raw["tp"])
    whole: Spec = make_plugin("attention", raw["attention"], lambda kind: partial(kind.from_model, model))
    spec = whole if raw["tp"] == 1 else whole.shard(raw["tp"])
    spec.layout(workload.kv_dtype).slabs()  # a cache that cannot exist is a bad config, not a failed measurement
    return Series(
        labels=labels,
        spec=spec,
        tp_mode=_tp_mode(whole, spec, raw["tp"], workload.kv_dtype),
        model=model,
        policy=make_plugin("storage", raw["storage"]),
        backend=make_plugin("backend", raw["backend"]),
        workload=workload,
        timer=_make("timer", TimerChoice, raw["timer"]),
        device=_device(raw["device"]),
        origin=_origin(raw.get("origin", "measured")),
        profile=raw["device"].get("profile"),
    )


def _tp_mode(whole: Spec, rank: Spec, tp: int, dtype: Dtype) -> str | None:
    if tp == 1:
        return None
    adds_up = tp * rank.layout(dtype).bytes_per_token == whole.layout(dtype).bytes_per_token
    return "sharded" if adds_up else "replicated"


def make_plugin(group: str, raw: Mapping[str, Any], constructor: Callable[[Any], Any] = lambda kind: kind) -> Any:
    """Build what a yaml names from the options it gives; ValueError for a kind or an option that does not exist."""
    options = dict(raw)
    return _make(group, constructor(find(group, options.pop("kind", None))), options)


def _make(group: str, constructor: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        return constructor(**options)
    except TypeError as error:
        raise ValueError(f"{group}: {str(error).split('() ')[-1]}") from None


def _device(raw: Mapping[str, Any]) -> str:
    """The device's kind: one that any machine may have, or a model (``h200``) whose profile names it."""
    kind, profile = raw.get("kind"), raw.get("profile")
    named = isinstance(profile, Mapping) and str(kind).split("_")[0].lower() in str(profile.get("name")).lower()
    if set(raw) - {"profile", "held_out"} != {"kind"} or not (kind in DEVICES or named):
        raise ValueError(f"device.kind must be one of {', '.join(DEVICES)}; got {kind!r}")
    return str(kind)


def _origin(value: object) -> str:
    if value not in ORIGINS:
        raise ValueError(f"origin must be one of {', '.join(ORIGINS)}; got {value!r}")
    return str(value)
