"""Rows of a cache table: one per file, length, tp and cache dtype, and how a terminal shows them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from experiments.planning import four
from experiments.planning.formats import Format
from experiments.planning.model_cache import ModelCache
from experiments.planning.paging import PAGE, paged

OK, REFUSED, ERROR = "ok", "refused", "error"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One answer. Bytes are for one sequence; ``total`` to ``device`` are without constant state.

    ``total_bytes``: the whole model, windows capped. ``reserved_bytes``: windows given room for the whole length.
    ``device_bytes``: one rank of total. ``paged_bytes``: as an engine pages it, by the rule in ``paging``.
    """

    file: str
    kind: str | None = None
    model_type: str | None = None
    layers: int | None = None
    elements_per_token: int | float | None = None
    bytes_per_token: int | float | None = None
    marginal_bytes_per_token: int | float | None = None
    long_marginal_bytes_per_token: int | float | None = None
    const_state_bytes: int | None = None
    image_bytes_per_position: int | None = None
    tokens: int | None = None
    tp: int | None = None
    tp_mode: str | None = None
    kv_dtype: str | None = None
    total_bytes: int | None = None
    total_gb: float | None = None
    total_gib: float | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    device_const_state_bytes: int | None = None
    all_devices_bytes: int | None = None
    paged_bytes: int | None = None
    paging: str | None = None
    parts: str | None = None
    status: str = OK
    reason: str | None = None
    notes: str | None = None
    sources: str | None = None


COLUMNS = tuple(f.name for f in fields(Row))


@dataclass(frozen=True)
class Asked:
    """The points to answer for, and the page size of the engine's answer."""

    tokens: Sequence[int]
    tps: Sequence[int]
    formats: Sequence[Format]
    page: int = PAGE


def rows(model: ModelCache, asked: Asked, refuse_formats: bool = False) -> list[Row]:
    """Every point of one model; a point that cannot be is a row that says why.

    ``refuse_formats``: a cache dtype that does not fit the model raises ValueError instead.
    """
    found: list[Row] = []
    for kv in asked.formats:
        try:
            four.check_format(model, kv)
        except ValueError as error:
            if refuse_formats:
                raise
            found += [_refused(model, kv, t, tp, error) for t in asked.tokens for tp in asked.tps]
            continue
        for tokens in asked.tokens:
            whole = _whole(model, kv, tokens, asked.page)
            found += [_row(model, kv, tokens, tp, whole) for tp in asked.tps]
    return found


def unreadable(file: str, reason: str) -> Row:
    """The row of a file that could not be read."""
    return Row(file=file, status=ERROR, reason=reason)


def _whole(model: ModelCache, kv: Format, tokens: int, page: int) -> dict[str, Any]:
    """What does not depend on tp."""
    total, pages = four.exact(model, kv, tokens), paged(model, kv, tokens, page)
    parts = ", ".join(f"{name} {_number(value)}" for name, value in four.parts(model, kv).items())
    return {
        "elements_per_token": _number(model.elements_per_token),
        "bytes_per_token": _number(four.rate(model, kv)),
        "marginal_bytes_per_token": _number(four.marginal(model, kv, tokens)),
        "long_marginal_bytes_per_token": _number(four.marginal(model, kv, None)),
        "image_bytes_per_position": four.image_bytes(model, kv),
        "total_bytes": total,
        "total_gb": round(total / 10**9, 3),
        "total_gib": round(total / 2**30, 3),
        "reserved_bytes": four.reserved(model, kv, tokens),
        "paged_bytes": pages.bytes,
        "paging": pages.rule,
        "parts": parts,
        **_told(model),
    }


def _told(model: ModelCache) -> dict[str, Any]:
    return {
        "file": model.name,
        "kind": model.kind,
        "model_type": model.model_type,
        "layers": len(model.layers),
        "const_state_bytes": four.state_bytes(model),
        "notes": "; ".join(model.notes),
        "sources": "; ".join(model.sources),
    }


def _row(model: ModelCache, kv: Format, tokens: int, tp: int, whole: dict[str, Any]) -> Row:
    try:
        rank = four.per_device(model, kv, tokens, tp)
    except ValueError as error:
        return Row(**whole, tokens=tokens, tp=tp, kv_dtype=kv.name, status=REFUSED, reason=str(error))
    return Row(
        **whole,
        tokens=tokens,
        tp=tp,
        tp_mode=rank.mode,
        kv_dtype=kv.name,
        device_bytes=rank.bytes,
        device_const_state_bytes=rank.state_bytes,
        all_devices_bytes=tp * rank.bytes,
    )


def _refused(model: ModelCache, kv: Format, tokens: int, tp: int, error: ValueError) -> Row:
    return Row(**_told(model), tokens=tokens, tp=tp, kv_dtype=kv.name, status=REFUSED, reason=str(error))


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


SHOWN = {
    "file": "file",
    "kind": "kind",
    "kv_dtype": "kv dtype",
    "bytes_per_token": "B/token",
    "marginal_bytes_per_token": "marginal B",
    "tokens": "tokens",
    "tp": "tp",
    "total_bytes": "total B",
    "total_gb": "GB",
    "total_gib": "GiB",
    "reserved_bytes": "reserved B",
    "paged_bytes": "paged B",
    "device_bytes": "device B",
    "tp_mode": "tp mode",
    "const_state_bytes": "state B",
}


def shown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[str]]:
    """Header and cells of a terminal's table, and the lines below it.

    These say by which rule pages were counted, why rows are not ok, and what was assumed.
    """
    cells = [[_cell(getattr(row, name)) for name in SHOWN] for row in rows if row.total_bytes is not None]
    reasons = dict.fromkeys(f"{row.file}: {row.status}: {row.reason}" for row in rows if row.status != OK)
    notes = dict.fromkeys(f"{row.file}: note: {row.notes}" for row in rows if row.notes)
    return list(SHOWN.values()), cells, [*_paging(rows), *reasons, *notes]


def _paging(rows: Sequence[Row]) -> list[str]:
    """Each rule once, with the first file that it was used for and how many others there are."""
    files: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.paging:
            files.setdefault(row.paging, {})[row.file] = None
    others = {rule: f" and {len(names) - 1} more" if len(names) > 1 else "" for rule, names in files.items()}
    return [f"paged B of {next(iter(names))}{others[rule]}: {rule}" for rule, names in files.items()]


def _cell(value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
