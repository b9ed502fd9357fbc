"""Two variants against each other: from which context or number of ranks on the second beats the first.

By the kernel alone, by the whole step (where MLA pays for its absorption), and by the bytes that one device caches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.telling.candidates import at_point
from experiments.telling.crossing import AXES
from experiments.telling.doubt import Doubts
from experiments.telling.frame import family_order
from experiments.telling.outcome import ties
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.words import times
from variants.contract.tokens import format_tokens

At = tuple[int, int, int]  # context, batch, tp


@dataclass(frozen=True)
class Bout:
    """One place: how many times what the other takes the own variant takes, whether that is a tie, and the rows."""

    at: At
    ratio: float
    tie: bool
    keys: tuple[str, ...]

    @property
    def won(self) -> bool:
        """Whether the other variant is better, beyond noise."""
        return self.ratio > 1 and not self.tie


def duels(pages: Sequence[Setting], rule: Rule, doubts: Doubts) -> list[str]:
    """Sentences about the own variant (or the baseline) and every other one that is asked about; of one family.

    ``pages`` differ in batch and tp alone.
    """
    first = rule.question.own or rule.baseline
    everywhere = {v for page in pages for v in page.variants if rule.question.asks(v)}
    if first not in everywhere:
        return []
    said = []
    for other in sorted(everywhere - {first}, key=family_order):
        step = _bouts(pages, "step", (first, other), rule, doubts)
        attend = _bouts(pages, "attend", (first, other), rule, doubts)
        said += _in_time(first, other, step, attend)
        said += _in_bytes(first, other, _byte_bouts(pages, (first, other), rule))
    return said


def _bouts(pages: Sequence[Setting], scope: str, two: tuple[str, str], rule: Rule, doubts: Doubts) -> list[Bout]:
    found = []
    for page in pages:
        for context in page.contexts(scope):
            _, candidates = at_point(page, scope, context, doubts)
            by = {c.variant: c for c in candidates}
            if not {*two} <= set(by):
                continue
            a, b = (by[name] for name in two)
            at = (context, page.values["batch"], page.values["tp"])
            found.append(Bout(at, a.us / b.us, ties(a, b, rule) is not None, (a.key, b.key)))
    return found


def _byte_bouts(pages: Sequence[Setting], two: tuple[str, str], rule: Rule) -> list[Bout]:
    found = []
    for page in pages:
        for context in page.contexts("step"):
            by = {c.variant: c for c in at_point(page, "step", context)[1]}
            a, b = (by.get(name) for name in two)
            if a and b and a.bytes and b.bytes:
                at = (context, page.values["batch"], page.values["tp"])
                found.append(Bout(at, a.bytes / b.bytes, a.bytes == b.bytes, (a.key, b.key)))
    return found


def _in_time(first: str, other: str, step: Sequence[Bout], attend: Sequence[Bout]) -> list[str]:
    """One sentence per number of ranks: over the context at every batch, by the step and by the kernel alone."""
    said = []
    for tp in sorted({bout.at[2] for bout in step}):
        mine = [bout for bout in step if bout.at[2] == tp]
        lines = [line for line in _lines(mine, "context").values() if len(line) > 1]
        if not lines:
            continue
        kernel = [line for line in _lines([b for b in attend if b.at[2] == tp], "context").values() if len(line) > 1]
        by_step, by_kernel = _by_turn(lines), _by_turn(kernel)
        alone = f"; by the kernel alone {by_kernel}" if by_kernel and by_kernel != by_step else ""
        near, far = (pick((b for line in lines for b in line), key=lambda b: b.ratio) for pick in (max, min))
        keys = dict.fromkeys(key for b in (*_around(lines), near, far) for key in b.keys)
        said.append(
            f"At tp {tp}, {other} beats {first} per step {by_step}{alone}; at best {_near(near)}, at worst {_near(far)}"
            f" (rows {', '.join(keys)})."
        )
    return said


def _by_turn(lines: Sequence[Sequence[Bout]]) -> str:
    """``from context 32k on at batch 1, 2, at every context run at batch 16``."""
    turns: dict[str, list[str]] = {}
    for line in lines:
        turns.setdefault(_turn(line, "context"), []).append(str(line[0].at[1]))
    return ", ".join(f"{turn} at batch {', '.join(batches)}" for turn, batches in turns.items())


def _around(lines: Sequence[Sequence[Bout]]) -> list[Bout]:
    """The two places of every turn."""
    pairs = [pair for line in lines for pair in pairwise(line) if pair[0].won != pair[1].won]
    return [bout for pair in pairs for bout in pair]


def _in_bytes(first: str, other: str, bouts: Sequence[Bout]) -> list[str]:
    """Over the ranks: from which tp on who caches fewer bytes per device; the ratio is the same at every context."""
    lines = [line for line in _lines(bouts, "tp").values() if len(line) > 1]
    if not lines:
        return []
    line = max(lines, key=lambda line: (len(line), line[0].at[0]))
    better = [(b, other if b.won else first if b.ratio < 1 else "") for b in line]
    last = better[-1][1]
    said = (
        f"{first} and {other} cache as many bytes per device" if not last else f"{last} caches fewer bytes per device"
    )
    start = len(better)
    while start and better[start - 1][1] == last:
        start -= 1
    since = better[start][0]
    rows = ", ".join(dict.fromkeys(key for b, _ in better[max(0, start - 1) :] for key in b.keys))
    than = f" than {first if last == other else other}" if last else ""
    if not start:
        reach = f"at every tp from {line[0].at[2]} to {line[-1].at[2]}"
        than += f", {times(max(since.ratio, 1 / since.ratio))} at tp {since.at[2]}" if last else ""
    else:
        before = better[start - 1]
        ratio = times(max(before[0].ratio, 1 / before[0].ratio))
        reach = f"from tp {since.at[2]} on" + (
            f" (at tp {before[0].at[2]} {before[1]} caches {ratio} fewer)" if before[1] else ""
        )
    return [f"{said}{than} {reach} (rows {rows})."]


def _turn(line: Sequence[Bout], axis: str) -> str:
    """From which value on it is won, ``at no context`` or ``at every context``, by the places that were run."""
    index = AXES.index(axis)
    won = [b.won for b in line]
    if all(won):
        return f"at every {axis} run"
    if not any(won):
        return f"at no {axis} run"
    start = len(won)
    while start and won[start - 1]:
        start -= 1
    if not any(won[:start]) and start < len(won):
        value = format_tokens(line[start].at[index])
        return f"from {axis} {value} on (not yet at {format_tokens(line[start - 1].at[index])})"
    places = ", ".join(format_tokens(b.at[index]) for b in line if b.won)
    return f"at {axis} {places} alone"


def _lines(bouts: Sequence[Bout], axis: str) -> dict[tuple[int, ...], list[Bout]]:
    """Bouts that differ along one axis alone, by what they share, in rising order."""
    index = AXES.index(axis)
    found: dict[tuple[int, ...], list[Bout]] = {}
    for bout in sorted(bouts, key=lambda bout: bout.at):
        found.setdefault(bout.at[:index] + bout.at[index + 1 :], []).append(bout)
    return found


def _near(bout: Bout) -> str:
    faster = "faster" if bout.ratio > 1 else "slower"
    noise = ", a tie" if bout.tie else ""
    context, batch, _ = bout.at
    ratio = times(max(bout.ratio, 1 / bout.ratio))
    return f"{ratio} {faster}{noise} at context {format_tokens(context)}, batch {batch}"
