"""What every layer of a model keeps, before a cache dtype is chosen.

``variants.contract.model.ModelShape`` is one attention layer and how many there are, enough to build a variant in a
model's place. Real models mix layers, so what they keep is told layer by layer here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from variants.contract.keep import Every, Window
from variants.contract.layout import Source, Stream


@dataclass(frozen=True)
class LayerCache:
    """One layer: the streams it keeps (none: it caches nothing), the query heads that read them, its projections.

    ``role`` says in words what the layer is: full, window, chunk, latent, indexed (MLA's sparse index), index (another
    kind's), compressed, linear, cross, shared or none; a layer of two parts has two words. Text and image streams are
    in bfloat16 until a format is applied; a state stream has a dtype of its own. ``weights`` counts the elements of the
    attention projections, None where the file does not say.
    """

    role: str
    streams: tuple[Stream, ...] = ()
    num_q_heads: int | None = None
    weights: int | None = None

    def of(self, source: Source) -> tuple[Stream, ...]:
        """The streams whose entries come from ``source``."""
        return tuple(s for s in self.streams if s.source is source)


@dataclass(frozen=True)
class ModelCache:
    """A model as the caches of its layers; ``sources`` says where each number came from, ``notes`` what was assumed."""

    name: str
    model_type: str
    layers: tuple[LayerCache, ...]
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[tuple[LayerCache, int], ...]:
        """Each different layer once, with how many of its kind there are: what sums run over."""
        return tuple(Counter(self.layers).items())

    @property
    def streams(self) -> Iterable[tuple[Stream, int]]:
        """Every different layer's streams, with how many layers keep each."""
        return ((stream, count) for layer, count in self.groups for stream in layer.streams)

    @cached_property
    def compressed(self) -> bool:
        """Whether entries stand for several tokens; the windows beside them are then no part of a token's rate."""
        return any(isinstance(s.keep, Every) for s, _ in self.streams)

    @property
    def elements_per_token(self) -> Fraction:
        """Elements that a token adds, every layer charged in full (windows beside compressed entries left out)."""
        text = ((s, n) for s, n in self.streams if s.source is Source.TEXT and self.charges(s))
        return sum((n * s.keep.rate * s.heads * s.width for s, n in text), Fraction(0))

    def charges(self, stream: Stream) -> bool:
        """Whether a text stream is part of a token's rate: a window beside compressed entries is not."""
        return not (self.compressed and isinstance(stream.keep, Window))

    @property
    def kind(self) -> str:
        """The layers in a few words: GQA, GQA+SWA, MLA+DSA, GQA+index, MHA+linear ..."""
        roles = {layer.role for layer, _ in self.groups if layer.streams}
        extras = [name for name in ("window", "chunk", "indexed", "index", "linear", "cross") if _has(roles, name)]
        base = self._base(roles)
        sharing = ["shared"] if any("shared" in layer.role for layer, _ in self.groups) else []
        return "+".join([*base, *(_EXTRA.get(name, name) for name in extras), *sharing]) or "none"

    def _base(self, roles: set[str]) -> list[str]:
        if _has(roles, "compressed"):
            return ["compressed"]
        if _has(roles, "latent"):
            return ["MLA"]
        pairs = {(layer.num_q_heads, s.heads) for layer, _ in self.groups for s in layer.streams if s.name == "key"}
        if not pairs:
            return []
        if all(q == kv for q, kv in pairs):
            return ["MHA"]
        name = "MQA" if all(kv == 1 for _, kv in pairs) else "GQA"
        return [name]


_EXTRA = {"window": "SWA", "chunk": "chunked", "indexed": "DSA"}


def _has(roles: set[str], extra: str) -> bool:
    return any(extra in role.split() for role in roles)
