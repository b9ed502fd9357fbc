"""Which layers of a family slide: by a period, a list, letters, or whether they rotate."""

from collections.abc import Callable, Sequence

from experiments.planning.hf.fields import Fields, Unreadable

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
NAMES = {  # in layer_types and the lists that came before it: ours
    FULL: FULL,
    "attention": FULL,
    "global": FULL,
    "global_attention": FULL,
    SLIDING: SLIDING,
    "sliding": SLIDING,
    "local": SLIDING,
    "local_attention": SLIDING,
    CHUNKED: CHUNKED,
}

Pattern = Callable[[Fields, int], Sequence[str]]


def never(f: Fields, layers: int) -> Sequence[str]:
    """Every layer sees everything."""
    return [FULL] * layers


def always(f: Fields, layers: int) -> Sequence[str]:
    """Every layer slides, where there is a window (Mistral, Phi-3)."""
    return [SLIDING] * layers


def above(f: Fields, layers: int) -> Sequence[str]:
    """Layers from max_window_layers on slide (Qwen2, Qwen3)."""
    first = f.raw.get("max_window_layers")
    first = f.default("max_window_layers") if first is None else f.index("max_window_layers", 0)
    if first is None:
        raise Unreadable(f"{f.path}max_window_layers is missing, and use_sliding_window needs it")
    return [SLIDING if i >= first else FULL for i in range(layers)]


def alternate_below(f: Fields, layers: int) -> Sequence[str]:
    """Every other layer below max_window_layers slides (Qwen2-MoE)."""
    first = [t == FULL for t in above(f, layers)]
    return [SLIDING if (i + 1) % 2 and first[i] else FULL for i in range(layers)]


def every(otherwise: int, *names: str, last_full: bool = False, offset: int = 1) -> Pattern:
    """One layer in p is full: where (i + offset) % p is 0.

    ``names`` are the fields that may state p (or a string such as LLLG), ``otherwise`` is the family's own p.
    ``last_full``: the last layer is full whatever the pattern says.
    """

    def pattern(f: Fields, layers: int) -> Sequence[str]:
        stated = f.stated(*names, "sliding_window_pattern")
        if isinstance(stated, str):
            return _letters(f, stated, layers)
        if stated is None:
            f.pattern("sliding_window_pattern", f"one layer in {otherwise} is full")
        period = otherwise if stated is None else f.index(names[0] if f.has(*names) else "sliding_window_pattern", 0)
        found = [SLIDING if period and (i + offset) % period else FULL for i in range(layers)]
        return [*found[:-1], FULL] if last_full else found

    return pattern


def _letters(f: Fields, letters: str, layers: int) -> Sequence[str]:
    """EXAONE-4 writes its pattern as LLLG: local, local, local, global, and so on."""
    if not letters or set(letters) - set("LG"):
        raise f.wrong("sliding_window_pattern", "must be a number or letters L and G", letters)
    kinds = {"L": SLIDING, "G": FULL}
    return [kinds[letters[i % len(letters)]] for i in range(layers)]


def from_the_end(f: Fields, layers: int) -> Sequence[str]:
    """Every fourth layer, counted from the last, is full (Muse)."""
    return [SLIDING if (layers - 1 - i) % 4 else FULL for i in range(layers)]


def flint(f: Fields, layers: int) -> Sequence[str]:
    """The first two, every fourth from 1, and the last layer are full."""
    return [FULL if i < 2 or i % 4 == 1 or i == layers - 1 else SLIDING for i in range(layers)]


def without_rope(f: Fields, layers: int) -> Sequence[str]:
    """Layers without rotary embedding slide (SmolLM3, if its window is on)."""
    return [FULL if rope else SLIDING for rope in _ropes(f, layers)]


def chunked(f: Fields, layers: int) -> Sequence[str]:
    """Layers with rotary embedding attend within a chunk, those without see everything (Llama 4)."""
    return [CHUNKED if rope else FULL for rope in _ropes(f, layers)]


def _ropes(f: Fields, layers: int) -> list[bool]:
    """``no_rope_layers`` has 1 where a layer does rotate; without it, every no_rope_layer_interval-th does not."""
    given = f.rows("no_rope_layers", None)
    if given:
        if len(given) != layers or any(isinstance(r, bool) or r not in (0, 1) for r in given):
            raise f.wrong("no_rope_layers", f"must have one 0 or 1 for each of {layers} layers", given)
        return [bool(rope) for rope in given]
    interval = f.optional_count("no_rope_layer_interval") or 4
    f.pattern("no_rope_layers", f"every {interval}th layer has no rotary embedding")
    return [(i + 1) % interval != 0 for i in range(layers)]


def neo(f: Fields, layers: int) -> Sequence[str]:
    """GPT-Neo: attention_types is [[[kind, kind], times], ...]."""
    groups = f.rows("attention_types", None)
    if groups is None:
        f.pattern("attention_types", "global and local in turn")
        return [FULL if i % 2 == 0 else SLIDING for i in range(layers)]
    kinds: list[str] = []
    for group in groups:
        if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list)):
            raise f.wrong("attention_types", "must be a list of [[kinds], times]", groups)
        kinds += group[0] * f.checked("attention_types", group[1], layers)
        if len(kinds) > layers:
            break
    return named(f, "attention_types", kinds, layers)


def marked(name: str) -> Pattern:
    """A list of 0 (full) and 1 (sliding) per layer (MiMo)."""

    def pattern(f: Fields, layers: int) -> Sequence[str]:
        marks = f.marks(name, layers, "0 (full) and 1 (sliding)")
        if marks is None:
            f.pattern(name, "the first layer and every sixth are full")
            return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers)]
        return [SLIDING if mark else FULL for mark in marks]

    return pattern


def after_prefix(f: Fields, layers: int) -> Sequence[str]:
    """Cohere2-MoE: the dense layers at the front have a period of their own."""
    front = min(f.index("first_k_dense_replace", 0), layers)
    own = f.optional_count("prefix_dense_sliding_window_pattern") or 1
    rest = f.optional_count("sliding_window_pattern") or 4
    first = [SLIDING if (i + 1) % own else FULL for i in range(front)]
    return first + [SLIDING if (i + 1) % rest else FULL for i in range(layers - front)]


def named(f: Fields, name: str, kinds: Sequence[object], layers: int) -> list[str]:
    """Kinds by our own names; Unreadable unless there is a known one for each layer."""
    if len(kinds) != layers:
        raise Unreadable(f"{f.path}{name} must have one entry per layer; got {len(kinds)} entries, {layers} layers")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in NAMES:
            raise f.wrong(name, f"must hold {FULL}, {SLIDING} or {CHUNKED}", kind)
    return [NAMES[str(kind)] for kind in kinds]
