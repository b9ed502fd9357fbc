"""A cache as a serving engine pages it: whole pages, padded rows, layers of one kind in groups of equal size.

The rule is the one that vLLM's hybrid cache manager made usual. A page holds ``page`` entries. Where every layer keeps
the same tokens, each layer has pages of its own size. Where layers keep different tokens, all pages come
from one pool: layers of one kind form groups of as many layers as the rarest kind has (the last group is filled up with
empty layers), and a page of any group takes as many bytes as a page of the widest. A window needs the pages that it can
touch, wherever it starts: one more than it fills.
"""

from collections import Counter
from dataclasses import dataclass

from experiments.planning.formats import Format
from experiments.planning.four import layouts
from experiments.planning.model_cache import ModelCache
from variants.contract.keep import Every, Keep, Window
from variants.contract.layout import CacheLayout

PAGE = 16  # entries


@dataclass(frozen=True)
class Unit:
    """What one layer keeps for the same tokens: bytes of one entry, rows padded to 16."""

    keep: Keep
    entry_bytes: int


@dataclass(frozen=True)
class Paged:
    """Bytes of all pages of one sequence, constant state apart, and the rule that led to them."""

    bytes: int
    rule: str


def paged(model: ModelCache, kv: Format, tokens: int, page: int = PAGE) -> Paged:
    """The pages that ``tokens`` tokens take."""
    units = _units(model, kv)
    if len({unit.keep for unit in units}) <= 1:
        total = sum(n * pages(u.keep, tokens, page) * page * u.entry_bytes for u, n in units.items())
        return Paged(total, f"pages of {page}, each layer its own")
    size, widest = min(units.values()), max(unit.entry_bytes for unit in units)
    groups = {unit: -(-count // size) for unit, count in units.items()}
    total = sum(n * pages(u.keep, tokens, page) for u, n in groups.items()) * page * size * widest
    pool = f"{sum(groups.values())} groups of {size} layers, {widest} B per entry and layer"
    return Paged(total, f"pages of {page} from one pool: {pool}")


def pages(keep: Keep, tokens: int, page: int) -> int:
    """Pages of one layer; a window straddles one page more than it fills."""
    whole = -(-keep.entries(tokens) // page)
    if isinstance(keep, Window) and tokens > keep.size:
        return min(-(-tokens // page), -(-(keep.size - 1) // page) + 1)
    return whole


def page_bytes(model: ModelCache, kv: Format, page: int = PAGE) -> int:
    """Bytes of one page of every layer together (one token per entry; compressed entries are not counted)."""
    return sum(n * page * u.entry_bytes for u, n in _units(model, kv).items() if not isinstance(u.keep, Every))


def _units(model: ModelCache, kv: Format) -> Counter[Unit]:
    found: Counter[Unit] = Counter()
    for layout, count in layouts(model, kv):
        for unit in _of_layer(layout):
            found[unit] += count
    return found


def _of_layer(layout: CacheLayout) -> list[Unit]:
    kept: dict[Keep, int] = {}
    for slab in layout.slabs():
        kept[slab.keep] = kept.get(slab.keep, 0) + slab.bytes(1)
    return [Unit(keep, size) for keep, size in kept.items()]
