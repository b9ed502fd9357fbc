"""A cache as a serving engine pages it: whole pages, and one pool where layers keep different tokens.

The rule is vLLM's (``vllm/v1/kv_cache_interface.py`` and ``vllm/v1/core/kv_cache_utils.py`` at commit 001cabc1be16). A
page holds ``page`` entries. Where every layer keeps the same tokens, each layer has pages of its own size. Where layers
keep different tokens, all pages come from one pool and take equally many bytes:

- Layers of one kind form groups of as many layers as the rarest kind has, or as the commonest has if that is less than
  1.5 times as many; the last group of a kind is filled up with empty layers.
- A layer whose entries are narrower puts more of them into a page. Where that does not come out even, the page is
  padded, which engines do for some kernels and refuse for the others.
- A window holds the pages that it can touch, wherever it starts: one more than it fills.

Rows are not padded, and scales lie in the page with what they scale. Left out, because it depends on the scheduler: the
tokens of a prefill in flight, which a window keeps beside its own; and the larger pages that engines give the attention
layers of hybrid models, so that a page can hold a state.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from experiments.planning.formats import Format
from experiments.planning.four import layouts
from experiments.planning.model_cache import ModelCache
from variants.contract.keep import Every, Keep, Window
from variants.contract.layout import CacheLayout

PAGE = 16  # entries
MUCH_COMMONER = 1.5  # from here on groups are as large as the rarest kind


@dataclass(frozen=True)
class Unit:
    """What one layer keeps for the same tokens: bytes of one entry."""

    keep: Keep
    entry_bytes: int

    def slots(self, page: int, widest: int) -> int:
        """Entries in a page that holds ``page`` of the widest."""
        return page * (1 if widest % self.entry_bytes else widest // self.entry_bytes)


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
    size, widest = _group_size(units.values()), max(unit.entry_bytes for unit in units)
    groups = {unit: -(-count // size) for unit, count in units.items()}
    total = sum(n * pages(u.keep, tokens, u.slots(page, widest)) for u, n in groups.items()) * page * size * widest
    pool = f"{sum(groups.values())} groups of {size} layers, {page * widest} B per page and layer"
    slots = sorted({unit.slots(page, widest) for unit in units})
    return Paged(total, f"pages of {' or '.join(map(str, slots))} from one pool: {pool}")


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


def _group_size(counts: Collection[int]) -> int:
    """Layers per group; a few layers more of one kind are not worth a second group of it."""
    rarest, commonest = min(counts), max(counts)
    return commonest if commonest < MUCH_COMMONER * rarest else rarest


def _of_layer(layout: CacheLayout) -> list[Unit]:
    kept: dict[Keep, int] = {}
    for stream in layout.streams:
        kept[stream.keep] = kept.get(stream.keep, 0) + stream.entry_bytes
    return [Unit(keep, size) for keep, size in kept.items()]
