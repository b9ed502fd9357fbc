"""What models of two sorts of layers share: names of the sorts, and how attention and states are put together."""

from collections.abc import Callable, Sequence

from experiments.planning.hf.build import NOTHING, attention, both
from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds.sizes import (
    head_dim,
    hidden_size,
    kv_heads,
    query_heads,
)
from experiments.planning.model_cache import LayerCache
from variants.contract.keep import Window

ATTENTION, STATE, BOTH, WINDOWED, NONE = "attention", "state", "both", "window", "none"
NAMES = {
    "attention": ATTENTION,
    "full_attention": ATTENTION,
    "sliding_attention": WINDOWED,
    "linear_attention": STATE,
    "mamba": STATE,
    "mamba2": STATE,
    "conv": STATE,
    "recurrent": STATE,
    "hybrid": BOTH,
    "moe": NONE,
    "mlp": NONE,
}
LETTERS = {"M": STATE, "*": ATTENTION, "-": NONE, "E": NONE}

Kinds = Callable[[Fields, int], Sequence[str]]


def grouped_part(f: Fields, own_kv: bool = False, own_width: bool = False) -> LayerCache:
    """The attention layer of a hybrid model; ``own_*``: an absent field means a number of the class's."""
    heads = query_heads(f)
    kv, width = kv_heads(f, heads, own_kv), head_dim(f, heads, own_width)
    return attention(heads, kv, width, width, hidden_size(f))


def mix(kinds: Sequence[str], full: LayerCache, other: LayerCache, window: int | None = None) -> list[LayerCache]:
    """Each layer by its kind; a window caps what an attention layer keeps."""
    slid = _windowed(full, window) if window else full
    made = {ATTENTION: full, WINDOWED: slid, STATE: other, NONE: NOTHING}
    return [both(full, other) if kind == BOTH else made[kind] for kind in kinds]


def _windowed(layer: LayerCache, window: int) -> LayerCache:
    key, value = layer.streams
    return attention(layer.num_q_heads or 1, key.heads, key.width, value.width, None, Window(window))


def listed(f: Fields, layers: int, *names: str, slides: bool = False) -> list[str] | None:
    """Kinds of layers from the first list in the file among ``names``; None if there is none.

    ``slides``: whether the family has layers with a window.
    """
    known = [name for name, kind in NAMES.items() if slides or kind != WINDOWED]
    for name in names:
        rows = f.rows(name, layers)
        if rows is not None:
            if any(not isinstance(row, str) or row not in known for row in rows):
                raise f.wrong(name, f"must hold {', '.join(known)}", rows)
            return [NAMES[row] for row in rows]
    return None


def every(f: Fields, layers: int, period: str, otherwise: int) -> list[str]:
    """One attention layer in ``period``, the last of each group."""
    interval = f.optional_count(period)
    if interval is None:
        f.pattern(period, f"one attention layer in {otherwise}")
        interval = otherwise
    return [ATTENTION if (i + 1) % interval == 0 else STATE for i in range(layers)]
