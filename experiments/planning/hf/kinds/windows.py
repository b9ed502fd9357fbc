"""What each layer keeps: everything, a window or a chunk, and how wide it is."""

from dataclasses import dataclass

from experiments.planning.hf.fields import Fields, Unreadable
from experiments.planning.hf.kinds.patterns import CHUNKED, FULL, SLIDING, Pattern, chunked, named
from experiments.planning.hf.kinds.sizes import longest
from variants.contract.keep import All, Keep, Window

WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size", "window_size")
CHUNK = ("attention_chunk_size",)


@dataclass(frozen=True)
class Kept:
    """Which sort of layer it is by the file, and what it keeps: a layer that slides may keep everything."""

    kind: str
    keep: Keep

    @property
    def role(self) -> str:
        """``full``, ``window`` or ``chunk``, by what it keeps."""
        if isinstance(self.keep, All):
            return "full"
        return "chunk" if self.kind == CHUNKED else "window"


def keeps(
    f: Fields, layers: int, pattern: Pattern, asks: bool, on: bool = True, marks: str | None = None
) -> list[Kept]:
    """What each layer keeps: layer_types where the file has it, else the family's ``pattern``.

    ``asks``: an absent window means its class's default. ``on``: what an absent use_sliding_window means. ``marks``: a
    list of the family's own that names layers which slide; these and layer_types need a window.
    """
    listed = f.rows("layer_types", layers)
    use = f.flag("use_sliding_window", on) if f.has("use_sliding_window", *WINDOW) else on
    if listed is None:
        kinds = pattern(f, layers) if use or pattern is chunked else [FULL] * layers
    else:
        kinds = named(f, "layer_types", listed, layers)
    needy = marks if listed is None else "layer_types"
    sizes = {SLIDING: _size(f, WINDOW, SLIDING in kinds and use, asks, needy)}
    sizes[CHUNKED] = _size(f, CHUNK, CHUNKED in kinds, asks, needy)
    return [Kept(kind, _keep(sizes.get(kind))) for kind in kinds]


def _keep(size: int | None) -> Keep:
    return All() if size is None else Window(size)


def _size(f: Fields, names: tuple[str, ...], wanted: bool, asks: bool, needy: str | None) -> int | None:
    """Tokens that a window covers; None if there is none or it can never be full."""
    if not wanted:
        return None
    size = f.asked_count(*names) if asks else f.optional_count(*names)
    if size is None:
        if needy:
            raise Unreadable(f"{f.path}{names[0]} is missing, and {needy} has layers that need it")
        f.without(*names)
        return None
    length = longest(f)
    if length is not None and size >= length:
        f.notes.append(f"{names[0]}={size} never binds: the longest context is {length}")
        return None
    return size
