"""MLA: one latent and one rotary key per token and layer, with an indexer's key where attention is sparse."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.planning.hf.build import SHARED, expanded, latent, latent_weights
from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds.grouped import Grouped
from experiments.planning.hf.kinds.sizes import hidden_size, layer_count, query_heads, quotient
from experiments.planning.model_cache import LayerCache
from variants.contract.keep import All, Keep

FULL, BORROWED = "full", "shared"  # an indexer of its own, or the choice of an earlier layer's
LETTERS = {"F": FULL, "S": BORROWED}


@dataclass(frozen=True)
class Latent:
    """A family of MLA layers.

    ``index``: every layer keeps an indexer's key unless indexer_types (or index_topk_pattern, or a frequency) says that
    it borrows. ``per_layer``: attention blocks in one layer (LongCat has two).
    """

    index: bool = False
    per_layer: int = 1
    borrows: int | None = None

    def layers(self, f: Fields, form: str = "latent") -> list[LayerCache]:
        """One entry per attention block of the file."""
        if f.raw.get("use_mla") is False:
            f.flag("use_mla", False)
            return Grouped().layers(f)
        count = self._blocks(f)
        own = block(f, form, None)
        if not self.index:
            return [own] * count
        width = f.count("index_head_dim")
        indexed = block(f, form, width)
        return [indexed if kind == FULL else own for kind in indexers(f, count, self.borrows)]

    def _blocks(self, f: Fields) -> int:
        if self.per_layer == 1:
            return layer_count(f)
        return f.count("num_layers") * self.per_layer


def block(f: Fields, form: str, index: int | None, keep: Keep | None = None, prefix: str = "") -> LayerCache:
    """One MLA layer from fields that begin with ``prefix``, in the form asked for."""
    heads = f.count(f"{prefix}num_attention_heads") if prefix else query_heads(f)
    rank, rope = f.count(f"{prefix}kv_lora_rank"), _rope(f, prefix)
    nope, d_v = (f.optional_count(prefix + name) for name in ("qk_nope_head_dim", "v_head_dim"))
    if d_v is None and f.model_type == "minicpm3":
        d_v = quotient(f, heads)
    hidden, q_rank = hidden_size(f), f.optional_count(f"{prefix}q_lora_rank")
    weights = None
    if hidden is not None and nope is not None and d_v is not None:
        weights = latent_weights(hidden, heads, rank, rope, nope, d_v, q_rank)
    if form == "latent":
        return latent(heads, rank, rope, keep, index, weights)
    nope = f.count(f"{prefix}qk_nope_head_dim")
    return expanded(heads, nope + rope, d_v or f.count(f"{prefix}v_head_dim"), keep or All(), index, weights)


def _rope(f: Fields, prefix: str) -> int:
    """Width of the rotary key; 0 is possible (no rotary part), absent is not."""
    name = f"{prefix}qk_rope_head_dim"
    return f.index(name, 0) if f.raw.get(name) == 0 else f.count(name)


def indexers(f: Fields, layers: int, borrows: int | None) -> Sequence[str]:
    """Which layers keep an indexer's key; ``borrows``: the family's own period where the file says nothing."""
    kinds = f.rows("indexer_types", layers)
    if kinds is not None:
        if any(kind not in (FULL, BORROWED) for kind in kinds):
            raise f.wrong("indexer_types", f"must hold {FULL} and {BORROWED}", kinds)
        return [str(kind) for kind in kinds]
    pattern = f.stated("index_topk_pattern")
    if pattern is not None:
        return _pattern(f, pattern, layers)
    if borrows or not f.has("index_topk_freq"):
        f.pattern("indexer_types", f"one indexer in {borrows or 1} layers")
    if borrows:
        return [FULL if i == 0 or (i - 1) % borrows == 0 else BORROWED for i in range(layers)]
    period, offset = f.optional_count("index_topk_freq") or 1, f.index("index_skip_topk_offset", 2)
    return [FULL if max(i - offset + 1, 0) % period == 0 else BORROWED for i in range(layers)]


def _pattern(f: Fields, pattern: object, layers: int) -> Sequence[str]:
    letters = list(pattern) if isinstance(pattern, str | list) else []
    kinds = [LETTERS.get(str(letter), str(letter)) for letter in letters[: layers + 1]]
    if len(kinds) != layers or set(kinds) - {FULL, BORROWED}:
        raise f.wrong("index_topk_pattern", f"must have F or S for each of {layers} layers", pattern)
    return kinds


def sourced(f: Fields, form: str = "latent") -> list[LayerCache]:
    """Mistral Large 4: kv_source_layers names the layer whose latent each layer reads; the indexer may be its own."""
    own = Latent(index=True).layers(f, form)
    sources = f.rows("kv_source_layers", len(own))
    if sources is None:
        return own
    if any(isinstance(s, bool) or not isinstance(s, int) or not 0 <= s <= i for i, s in enumerate(sources)):
        raise f.wrong("kv_source_layers", "must name an earlier layer, or the layer itself", sources)
    return [
        layer if source == i else _index_only(layer) for i, (layer, source) in enumerate(zip(own, sources, strict=True))
    ]


def _index_only(layer: LayerCache) -> LayerCache:
    kept = tuple(s for s in layer.streams if s.name == "index")
    return LayerCache("shared indexed", kept, layer.num_q_heads) if kept else SHARED
