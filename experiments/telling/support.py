"""Which attention runs on which storage and backend, how fast at the decision point, and why not where it does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from experiments.record import apart
from experiments.telling.best import Best, best
from experiments.telling.decision import Decision
from experiments.telling.frame import distinct, plain, records
from experiments.telling.markdown import Markdown, escape
from experiments.telling.rule import Rule
from experiments.telling.tables import Row, Table
from experiments.telling.words import number, percent

NOT_RUN = "not run"
Place = tuple[str, str]  # backend and storage, the storage with its page size where several ran


@dataclass(frozen=True)
class Cell:
    """What became of a combination: a time (us) and share of the roofline, or a status and the numbers of its notes."""

    status: str
    us: float | None = None
    share: float | None = None
    best: bool = False
    notes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Support:
    """The matrix at one point; ``notes`` are the reasons, each once, numbered from 1.

    ``explained`` are the keys of all rows, whatever their point, whose refusal the matrix tells.
    """

    decision: Decision
    scope: str
    context: int | None
    variants: tuple[str, ...]
    places: tuple[Place, ...]
    cells: Mapping[tuple[Place, str], Cell]
    notes: tuple[str, ...]
    explained: frozenset[str]

    @property
    def backends(self) -> list[str]:
        """Every backend that was tried."""
        return distinct(backend for backend, _ in self.places)

    @property
    def storages(self) -> list[str]:
        """Every storage that was tried."""
        return distinct(storage for _, storage in self.places)


def support(decision: Decision, rule: Rule) -> Support | None:
    """The matrix of a setting of several backends: of ``attend``, which is what they differ in, if that was run."""
    if not decision.setting.several:
        return None
    point = best(decision, rule)
    scope = "attend" if any(r["scope"] == "attend" for r in point.rows) else rule.scope
    groups: dict[tuple[Place, str], list[Row]] = {}
    for row in _placed(decision.setting.tried):
        groups.setdefault((row["place"], row["label"]), []).append(row)
    variants, places = decision.setting.variants, sorted({place for place, _ in groups})
    order = [(place, variant) for place in places for variant in variants if (place, variant) in groups]
    told = {at: _told(groups[at], scope, point) for at in order}
    notes = tuple(dict.fromkeys(reason for row in told.values() for reason in _reasons(row)))
    shown = {r["key"] for r in point.rows if r["scope"] == scope}
    return Support(
        decision,
        scope,
        point.context,
        tuple(variants),
        tuple(places),
        {at: _cell(row, point.temperature, shown, notes) for at, row in told.items()},
        notes,
        frozenset(r["key"] for at in order for r in groups[at] if _same_refusal(r, told[at])),
    )


def support_table(it: Support) -> Table:
    """One line per backend and storages that it fares alike on, one column per variant; a variant's best is bold."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for backend, storage in it.places:
        cells = tuple(_said(it.cells.get(((backend, storage), v), Cell(NOT_RUN))) for v in it.variants)
        alike.setdefault((backend, cells), []).append(storage)
    lines = [(backend, ", ".join(storages), *cells) for (backend, cells), storages in alike.items()]
    return Table(("backend", "storage", *it.variants), tuple(lines))


def _placed(tried: pd.DataFrame) -> list[Row]:
    """All rows, each with its place."""
    several = {
        storage: [c for c in ("order", "page_size") if len(distinct(plain(rows[c]))) > 1]
        for storage, rows in tried.groupby("storage")
    }

    def storage(row: Row) -> str:
        return " ".join([row["storage"], *(f"{c} {row[c]}" for c in several[row["storage"]] if row[c] is not None)])

    return [{**row, "place": (row["backend"], storage(row))} for row in records(tried)]


def _told(rows: Sequence[Row], scope: str, point: Best) -> Row:
    """The fastest ok row at the point, else the latest that says why there is none there, else the latest refusal."""
    unbuilt = (None, "step")  # the point of a config that could not be built
    at = [r for r in rows if (r["context"], r["scope"]) in ((point.context, scope), unbuilt)]
    ok = [r for r in at if r["status"] == "ok"]
    if ok:
        return min(ok, key=lambda r: (r["temperature"] != point.temperature, r["latency_us_p50"]))
    return (at or [r for r in rows if r["status"] == "refused"] or [{**rows[-1], "status": NOT_RUN}])[-1]


def _same_refusal(row: Row, told: Row) -> bool:
    return (row["status"], row["reason"]) == ("refused", told["reason"])


def _reasons(row: Row) -> list[str]:
    if row["status"] in ("ok", NOT_RUN):
        return []
    return apart(row["reason"]) if row["status"] == "refused" else [f"{row['status']}: {row['reason']}"]


def _cell(row: Row, temperature: str | None, shown: set[str], notes: Sequence[str]) -> Cell:
    if row["status"] != "ok":
        return Cell(row["status"], notes=tuple(sorted(notes.index(reason) + 1 for reason in _reasons(row))))
    if row["temperature"] != temperature:
        return Cell(f"{row['temperature']} only")
    return Cell("ok", row["latency_us_p50"], row["roofline_fraction"], row["key"] in shown)


def _said(cell: Cell) -> str:
    if cell.us is None:
        word = "no" if cell.status == "refused" else cell.status
        return f"{word} [{', '.join(map(str, cell.notes))}]" if cell.notes else word
    said = f"{number(cell.us)} us, {percent(cell.share)}"
    return Markdown(f"**{escape(said)}**") if cell.best else said
