"""What is asked of every series: batch, contexts, new tokens, dtypes, scopes, temperatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from variants.contract.dtype import Dtype
from variants.contract.scopes import SCOPES
from variants.contract.tokens import parse_tokens

TEMPERATURES = ("cold", "warm")
AS_DTYPE = (None, False, "off", "no", "none")  # of kv_dtype: nothing is quantised; YAML reads a bare off as false
_OPTIONS = ("batch", "context", "queries", "dtype", "kv_dtype", "seed", "scopes", "temperature")


@dataclass(frozen=True)
class Cell:
    """One row of a point: what is timed, and on bytes of which temperature (as asked for)."""

    scope: str
    temperature: str


@dataclass(frozen=True)
class Workload:
    """The points of a series. ``contexts`` count cached tokens per sequence, the ``queries`` new ones included."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    queries: int
    dtype: Dtype
    kv_dtype: Dtype
    seed: int
    scopes: tuple[str, ...]
    temperatures: tuple[str, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The rows of every point, in the order asked for."""
        return tuple(Cell(scope, temperature) for scope in self.scopes for temperature in self.temperatures)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Workload":
        """From a config mapping; ValueError names the field, what is accepted and what was given."""
        if set(raw) != set(_OPTIONS):
            raise ValueError(f"workload needs the options {', '.join(_OPTIONS)}; got {', '.join(map(str, raw))}")
        dtype = _dtype(raw["dtype"], "workload.dtype")
        kv_dtype = dtype if raw["kv_dtype"] in AS_DTYPE else _dtype(raw["kv_dtype"], "workload.kv_dtype")
        queries = parse_tokens(raw["queries"], "workload.queries")
        contexts = _each(raw["context"], "workload.context")
        if min(contexts) < queries:
            raise ValueError(f"workload.context must be >= queries={queries}; got {min(contexts)}")
        return cls(
            batches=_each(raw["batch"], "workload.batch"),
            contexts=contexts,
            queries=queries,
            dtype=dtype,
            kv_dtype=kv_dtype,
            seed=_whole(raw["seed"], "workload.seed"),
            scopes=_names(raw["scopes"], "workload.scopes", SCOPES),
            temperatures=_names(raw["temperature"], "workload.temperature", TEMPERATURES),
        )


def _dtype(value: object, name: str) -> Dtype:
    try:
        return Dtype.parse(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _each(value: object, name: str) -> tuple[int, ...]:
    """One count or a list of them, in the order given, doubled ones once."""
    return tuple(dict.fromkeys(parse_tokens(v, name) for v in _listed(value, name)))


def _names(value: object, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """One name or a list of them, in the order given, doubled ones once."""
    return tuple(dict.fromkeys(_one_of(name, one, allowed) for one in _listed(value, name)))


def _listed(value: object, name: str) -> Sequence[object]:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not values:
        raise ValueError(f"{name} must not be empty; got {value!r}")
    return values


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return str(value)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number >= 0; got {value!r}")
    return value
