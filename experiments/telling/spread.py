"""The same devices, the same batch, the attention split otherwise: data-parallel attention, and whom it helps.

With tensor parallelism a latent, or a cached head that there are too few of, is whole on every rank. With data-parallel
attention each group of ranks serves a share of the sequences with all heads. Rows of such a group are those of fewer
ranks and a smaller batch; the other weights still lie over all devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.telling.candidates import NO_DOUBTS, latest, point_rows
from experiments.telling.decision import Decision
from experiments.telling.doubt import Doubts, could_turn, doubt_of
from experiments.telling.families import related
from experiments.telling.places import Place
from experiments.telling.rule import Rule
from experiments.telling.section import Block
from experiments.telling.setting import Setting
from experiments.telling.tables import Table
from experiments.telling.whole import Whole, in_model
from experiments.telling.words import NOTHING, binary_size, count, number, times

HEADER = (
    *("variant", "attention tp", "groups", "sequences per group", "cache, one device", "room for caches"),
    *("sequences that fit, all devices", "ms per token", "tokens/s per device", "rows"),
)
ABOUT = (
    "The same devices and the same batch with data-parallel attention: each group of ranks has all heads and serves "
    "its share of the sequences; the other weights lie over all devices as before. No outcome is computed from these: "
    "they are other deployments, and what ranks say to each other is in none of them."
)
Others = Mapping[str, int]


@dataclass(frozen=True)
class Laid:
    """A variant on all devices of the question: ``groups`` of ``tp`` ranks, each with its share of the batch."""

    tp: int
    groups: int
    whole: Whole
    doubt: float | None = None

    @property
    def fits(self) -> int | None:
        """Sequences on all devices together."""
        return None if self.whole.fits is None else self.groups * self.whole.fits

    @property
    def name(self) -> str:
        """``mla in 8 groups of tp 1``, or ``gqa at tp 8``."""
        if self.groups == 1:
            return f"{self.whole.variant} at tp {self.tp}"
        return f"{self.whole.variant} in {self.groups} data-parallel groups of tp {self.tp}"

    @property
    def meets(self) -> bool:
        """Whether what it caches has room, as far as anyone said how much there is."""
        return self.fits is None or self.fits >= self.groups * self.whole.batch


def laid_out(
    decision: Decision, pages: Sequence[Setting], rule: Rule, others: Others, doubts: Doubts = NO_DOUBTS
) -> list[Laid]:
    """Every way that rows tell of, the decision's own first; none where its batch or context is a mix, or tp is 1."""
    values, places = decision.setting.values, decision.places
    devices = values["tp"] or 1
    if len(places) != 1 or devices == 1 or not values["batch"] or not values["layers"]:
        return []
    ways = []
    for page in pages:
        tp, batch = page.values["tp"] or 1, page.values["batch"] or 0
        if related(page, decision.setting) and devices % tp == 0 and batch * (devices // tp) == values["batch"]:
            ways.append((tp, page))
    ways.sort(key=lambda way: -way[0])
    made = [it for tp, page in ways for it in _laid(page, (tp, devices), decision, rule, others, doubts)]
    return made if len(ways) > 1 else []


def spread_table(found: Sequence[Laid]) -> Table:
    """A line per variant and way."""
    return Table(HEADER, tuple(_line(it) for it in found))


def spread_said(found: Sequence[Laid], decision: Decision) -> str | None:
    """Which variants, in their best way, beat what was chosen in time or in sequences that fit; None: none."""
    chosen = next((it for it in found if it.groups == 1 and (it.whole.variant,) == decision.winners), None)
    if chosen is None:
        return None
    variants = dict.fromkeys(it.whole.variant for it in found)
    gains = [said for v in variants for said in _gains([it for it in found if it.whole.variant == v], chosen)]
    if not gains:
        return None
    held = "" if chosen.fits is None else f" and holds {count(chosen.fits)} sequences of this length"
    return (
        f"{chosen.name} takes {number(chosen.whole.ms)} ms per token{held} ({_rows(chosen)}); the same devices with "
        f"data-parallel attention: {'; '.join(gains)}. Details under what would flip it."
    )


def _gains(ways: Sequence[Laid], chosen: Laid) -> list[str]:
    """What one variant's ways gain over what was chosen."""
    others = [it for it in ways if it is not chosen]
    fast = min((it for it in others if it.meets), key=lambda it: it.whole.ms, default=None)
    most = max((it for it in others if it.fits is not None), key=lambda it: it.fits or 0, default=None)
    said = []
    if fast and fast.whole.ms < chosen.whole.ms:
        ratio = chosen.whole.ms / fast.whole.ms
        off = could_turn(fast.doubt, chosen.doubt)
        robust = "" if off is None else ", beyond their errors" if ratio > off else ", within what errors could turn"
        said.append(f"{fast.name} takes {number(fast.whole.ms)} ms, {times(ratio)} less{robust} ({_rows(fast)})")
    if most and (most.fits or 0) > (chosen.fits or 0):
        said.append(f"{most.name} holds {count(most.fits)} sequences ({_rows(most)})")
    return said


def spread_blocks(laid: Sequence[Sequence[Laid]]) -> list[Block]:
    """One per decision that has other ways."""
    return [Block(ABOUT, spread_table(found)) for found in laid if found]


def _laid(
    page: Setting, ranks: tuple[int, int], decision: Decision, rule: Rule, others: Others, doubts: Doubts
) -> list[Laid]:
    """The variants of one page; the memory after weights was given for the own variant's at the decision's tp."""
    (tp, devices), context, temperature = ranks, decision.context, decision.temperature
    home = {row["label"]: row for row in latest(point_rows(decision.setting, "step", context), temperature)}
    own = home.get(rule.question.own or "")
    place, found = Place(page, context, 1.0), []
    for step in latest(point_rows(page, "step", context), temperature):
        label = step["label"]
        if not rule.question.asks(label):
            continue
        given = own or home.get(label)  # without an own variant the memory is what each one's weights leave
        weights = given["weight_bytes"] if given else None
        off = doubt_of(doubts, step["device"], step["kernel"]) if page.predicted else None
        whole = in_model(step, None, place, rule.needs, others, weights, ranks=devices)
        found.append(Laid(tp, devices // tp, whole, off.p90 if off else None))
    return found


def _line(it: Laid) -> tuple[str, ...]:
    whole = it.whole
    known = whole.other_ms is not None
    return (
        whole.variant,
        str(it.tp),
        str(it.groups),
        str(whole.batch),
        NOTHING if whole.bytes is None else binary_size(whole.bytes),
        NOTHING if whole.room is None else binary_size(max(0, whole.room)),
        NOTHING if it.fits is None else count(it.fits),
        number(whole.ms) if known else NOTHING,
        number(1e3 * whole.batch / whole.ms / it.tp) if known else NOTHING,
        ", ".join(whole.keys),
    )


def _rows(*laid: Laid) -> str:
    return "rows " + ", ".join(dict.fromkeys(key for it in laid for key in it.whole.keys))
