"""Layers from sizes: which streams each way of remembering keeps, and what its projections weigh."""

from dataclasses import replace

from experiments.planning.model_cache import LayerCache
from variants.contract.cost import Matmul
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Every, Fixed, Keep, Window
from variants.contract.layout import Sharding, Source, Stream

NOTHING = LayerCache("none")
SHARED = LayerCache("shared")  # reads what an earlier layer keeps


def role(keep: Keep) -> str:
    """``window`` or ``full``."""
    return "window" if isinstance(keep, Window) else "full"


def attention(
    heads: int,
    kv_heads: int,
    d_qk: int,
    d_v: int,
    hidden: int | None,
    keep: Keep | None = None,
    name: str | None = None,
    source: Source = Source.TEXT,
) -> LayerCache:
    """A layer that keeps keys and values of ``kv_heads`` heads for what ``keep`` says."""
    keep = keep or All()
    streams = tuple(
        Stream(part, kv_heads, width, Dtype.BF16, keep, source) for part, width in (("key", d_qk), ("value", d_v))
    )
    weights = None
    if hidden is not None:
        weights = _weights(
            Matmul("q", hidden, heads * d_qk),
            Matmul("k", hidden, kv_heads * d_qk),
            Matmul("v", hidden, kv_heads * d_v),
            Matmul("o", heads * d_v, hidden),
        )
    return LayerCache(name or role(keep), streams, heads, weights)


def with_index(layer: LayerCache, width: int) -> LayerCache:
    """The layer with an indexer's key beside what it keeps; it has one head, which every rank holds."""
    index = Stream("index", 1, width, Dtype.BF16, sharding=Sharding.REPLICATED)
    return replace(layer, role=f"{layer.role} index", streams=(*layer.streams, index))


def latent(
    heads: int, rank: int, rope: int, keep: Keep | None = None, index: int | None = None, weights: int | None = None
) -> LayerCache:
    """An MLA layer: one latent and, unless it is 0 wide, one rotary key for all heads; ``index``: an indexer's key."""
    keep = keep or All()
    widths = (("latent", rank), ("rope", rope), ("index", index or 0))
    streams = tuple(
        Stream(part, 1, width, Dtype.BF16, keep, sharding=Sharding.REPLICATED) for part, width in widths if width
    )
    words = ["latent", "window" if isinstance(keep, Window) else "", "indexed" if index else ""]
    return LayerCache(" ".join(filter(None, words)), streams, heads, weights)


def expanded(heads: int, d_qk: int, d_v: int, keep: Keep, index: int | None, weights: int | None) -> LayerCache:
    """An MLA layer whose keys and values are cached per head, as reference code does."""
    layer = attention(heads, heads, d_qk, d_v, None, keep, "latent indexed" if index else "latent")
    extra = (Stream("index", 1, index, Dtype.BF16, keep, sharding=Sharding.REPLICATED),) if index else ()
    return LayerCache(layer.role, layer.streams + extra, heads, weights)


def compressed(heads: int, width: int, window: int, stride: int | None, index: int | None) -> LayerCache:
    """A DeepSeek-V4 layer: one vector that is key and value, for the last tokens and for every ``stride`` tokens."""
    kept: list[tuple[str, int, Keep]] = [("window", width, Window(window))]
    if stride:
        kept.append(("entry", width, Every(stride)))
        if index:
            kept.append(("index", index, Every(stride)))
    streams = tuple(
        Stream(name, 1, columns, Dtype.BF16, keep, sharding=Sharding.REPLICATED) for name, columns, keep in kept
    )
    return LayerCache("compressed" if stride else "window", streams, heads)


def state(name: str, heads: int, width: int, dtype: Dtype = Dtype.BF16, columns: int = 1) -> tuple[Stream, ...]:
    """A stream of constant size: ``columns`` entries whatever the length; none if there are no columns."""
    if columns < 1:
        return ()
    return (Stream(name, heads, width, dtype, Fixed(columns), Source.STATE),)


def linear(*streams: tuple[Stream, ...]) -> LayerCache:
    """A layer that keeps states only."""
    return LayerCache("linear", tuple(stream for group in streams for stream in group))


def both(layer: LayerCache, other: LayerCache) -> LayerCache:
    """One layer that keeps what two would: attention beside a state."""
    return LayerCache(f"{layer.role} {other.role}", layer.streams + other.streams, layer.num_q_heads, layer.weights)


def latent_weights(hidden: int, heads: int, rank: int, rope: int, nope: int, d_v: int, q_rank: int | None) -> int:
    """Elements of an MLA layer's projections; the query may have a latent of its own."""
    query = (
        (Matmul("q", hidden, heads * (nope + rope)),)
        if q_rank is None
        else (Matmul("q_a", hidden, q_rank), Matmul("q_b", q_rank, heads * (nope + rope)))
    )
    kv = (Matmul("kv_a", hidden, rank + rope), Matmul("kv_b", rank, heads * (nope + d_v)))
    return _weights(*query, *kv, Matmul("o", heads * d_v, hidden))


def _weights(*matmuls: Matmul) -> int:
    return sum(m.weights for m in matmuls)
