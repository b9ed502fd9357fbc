"""The four numbers of a cache: exact, one device's, as an engine pages it, and what one more token costs.

All bytes are for one sequence and the whole model, counted from layouts; constant state stands apart.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from experiments.planning.formats import Format
from experiments.planning.model_cache import LayerCache, ModelCache
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout, Sharding, Source, Stream

SHARDED, REPLICATED, PADDED = "sharded", "replicated", "padded"


def layouts(model: ModelCache, kv: Format, source: Source = Source.TEXT) -> list[tuple[CacheLayout, int]]:
    """The layout of each different layer that keeps something of ``source``, and how many layers have it."""
    return [(kv.layout(layer.of(source)), count) for layer, count in model.groups if layer.of(source)]


def check_format(model: ModelCache, kv: Format) -> None:
    """Raise ValueError if the model's cache cannot be stored in ``kv``."""
    text = [s for s, _ in model.streams if s.source is Source.TEXT]
    if kv.latent_only and text and not any(s.name == "latent" for s in text):
        raise ValueError(f"kv_dtype {kv.name} packs an MLA latent; {model.model_type} keeps none")
    layouts(model, kv)


def exact(model: ModelCache, kv: Format, tokens: int) -> int:
    """Bytes after ``tokens`` tokens; a windowed layer stores what its window holds."""
    return sum(count * layout.bytes(tokens) for layout, count in layouts(model, kv))


def reserved(model: ModelCache, kv: Format, tokens: int) -> int:
    """Bytes if every window is given room for the whole length."""
    return exact(_changed(model, _opened), kv, tokens)


def rate(model: ModelCache, kv: Format) -> Fraction:
    """Bytes per token, every layer charged in full; windows beside compressed entries are left out."""
    return _rate(model, kv, model.charges)


def marginal(model: ModelCache, kv: Format, tokens: int | None) -> Fraction:
    """Bytes that one more token adds to ``tokens`` cached ones (compressed entries: on average).

    None: to a context so long that every window is full.
    """
    return _rate(model, kv, lambda s: not (isinstance(s.keep, Window) and (tokens is None or tokens >= s.keep.size)))


def parts(model: ModelCache, kv: Format) -> dict[str, Fraction]:
    """``rate`` by what it is for: key, value, latent, rope, index, and the scales of codes."""
    found: dict[str, Fraction] = {}
    for layout, count in _charged(model, kv, model.charges):
        for s in layout.streams:
            found[s.name] = found.get(s.name, Fraction(0)) + count * s.keep.rate * s.entry_bytes
    return found


def state_bytes(model: ModelCache) -> int:
    """Bytes of constant state: recurrences and convolution columns."""
    return sum(count * s.bytes(1) for s, count in model.streams if s.source is Source.STATE)


def image_bytes(model: ModelCache, kv: Format) -> int:
    """Bytes that one image position leaves in cross-attention layers."""
    return sum(count * layout.bytes(1) for layout, count in layouts(model, kv, Source.IMAGE))


@dataclass(frozen=True)
class Rank:
    """What one of ``tp`` devices holds, and how it comes to that: sharded, replicated or padded."""

    bytes: int
    state_bytes: int
    mode: str


def per_device(model: ModelCache, kv: Format, tokens: int, tp: int) -> Rank:
    """One rank's bytes after ``tokens`` tokens.

    Heads are split where tp divides them, stored several times where they divide tp, and else padded to whole heads per
    rank; what has no head axis is on every rank. Raises ValueError where the query heads cannot be split.
    """
    rank = on_rank(model, tp)
    modes = {_heads(s, tp)[1] for s, _ in model.streams if s.source is not Source.STATE}
    mode = next((m for m in (PADDED, REPLICATED) if m in modes), SHARDED)
    return Rank(exact(rank, kv, tokens), state_bytes(rank), mode)


def on_rank(model: ModelCache, tp: int) -> ModelCache:
    """What one of ``tp`` devices holds, as a model; ValueError where the query heads cannot be split."""
    for layer, _ in model.groups:
        _check_tp(layer, tp)
    return _changed(model, lambda s: replace(s, heads=_heads(s, tp)[0]))


def _check_tp(layer: LayerCache, tp: int) -> None:
    heads = layer.num_q_heads
    if heads is not None and heads % tp:
        kv = ", ".join(f"num_kv_heads={s.heads}" for s in layer.streams[:1] if s.sharding is Sharding.HEADS)
        raise ValueError(f"tp must divide num_q_heads; got num_q_heads={heads}, {kv}{', ' if kv else ''}tp={tp}")


def _heads(stream: Stream, tp: int) -> tuple[int, str]:
    """Heads on one rank, and how they come there."""
    if stream.sharding is Sharding.REPLICATED:
        return stream.heads, REPLICATED
    if stream.heads % tp == 0:
        return stream.heads // tp, SHARDED
    if tp % stream.heads == 0:
        return 1, REPLICATED
    return -(-stream.heads // tp), PADDED


def _rate(model: ModelCache, kv: Format, counts: Callable[[Stream], bool]) -> Fraction:
    return sum((count * layout.bytes_per_token for layout, count in _charged(model, kv, counts)), Fraction(0))


def _charged(model: ModelCache, kv: Format, counts: Callable[[Stream], bool]) -> list[tuple[CacheLayout, int]]:
    """The layouts of those text streams that count."""
    kept = ((tuple(filter(counts, layer.of(Source.TEXT))), count) for layer, count in model.groups)
    return [(kv.layout(streams), count) for streams, count in kept if streams]


def _opened(stream: Stream) -> Stream:
    windowed = stream.source is Source.TEXT and isinstance(stream.keep, Window)
    return replace(stream, keep=All()) if windowed else stream


def _changed(model: ModelCache, change: Callable[[Stream], Stream]) -> ModelCache:
    """The model with every stream changed; its layers are told once per kind, which sums do not mind."""
    layers = []
    for layer, count in model.groups:
        layers += [replace(layer, streams=tuple(map(change, layer.streams)))] * count
    return replace(model, layers=tuple(layers))
