"""The tensors of a step as tables: what stays in the cache, then everything the step made, in the order of the run."""

from collections.abc import Iterable, Sequence

from experiments.telling.explaining.part import Part
from experiments.traced import FATES, Held, Seen, Traced

SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3"}
AXES = {
    "B": "batch",
    "Q": "new tokens",
    "T": "cached tokens",
    "D": "model width",
    "H": "query heads",
    "G": "key/value heads",
    "H/G": "query heads per key/value head",
    "K": "score width d_qk",
    "V": "value width d_v",
    "W": "stream width",
    "C": "latent width",
    "L": "latent heads",
}


def persisting(traced: Traced, batch: int) -> list[Part]:
    """What lies in the cache after the step, and what of it the step wrote."""
    header = ("stream", "axes", "shape", "dtype", "written, B", "held, B")
    rows = [_held(held, batch) for held in traced.held]
    added, held = sum(h.added for h in traced.held), sum(h.held for h in traced.held)
    rows.append(("in all", "", "", "", f"{added:,}", f"{held:,}"))
    padding = traced.allocated - held
    about = (
        "Persists: the cache after the step, one layer. "
        f"This step wrote {added // batch:,} B per sequence, once; later steps read them."
    )
    slabs = f"Allocated: {traced.allocated:,} B" + (f", of which {padding:,} B hold no entry." if padding else ".")
    return [Part(about, header, rows, frozenset({len(rows) - 1})), Part(slabs)]


def made(traced: Traced, batch: int) -> list[Part]:
    """Everything the step made, what became of it, and the sums."""
    header = ("stage", "tensor", "axes", "shape", "dtype", "bytes", "what becomes of it")
    rows = [_seen(seen) for seen in traced.seen if not seen.minor]
    unpacked = 1 + max((n for n, row in enumerate(rows) if row[0] == "unpack"), default=-1)
    rows[unpacked:unpacked] = [_scratch(held, batch) for held in traced.scratch]
    strong = frozenset(n for n, row in enumerate(rows) if row[-1] in ("cached", "again"))
    about = f"Made in one step, in the order of the run (attend: {traced.kernel}):"
    return [Part(about, header, rows, strong), Part("\n".join(_sums(traced))), Part(_axes(traced.seen))]


def _held(held: Held, batch: int) -> tuple[str, ...]:
    axes = f"B {'G' if held.heads > 1 else '1'} T W"
    each = held.slots // batch
    shape = f"{batch} {held.heads} {each} {held.width}"
    return (held.stream, axes, shape, _dtype(held.dtype), f"{held.added:,}", f"{held.held:,}")


def _seen(seen: Seen) -> tuple[str, ...]:
    axes = " ".join(letter or str(size) for letter, size in zip(seen.letters, seen.shape, strict=True))
    name = seen.name if seen.count == 1 else f"{seen.name} ({seen.count} in turn)"
    return (seen.stage, name, axes, _shape(seen.shape), _dtype(seen.dtype), f"{seen.bytes:,}", seen.fate)


def _scratch(held: Held, batch: int) -> tuple[str, ...]:
    """Decompressed keys or values where the backend reads them; ``added`` is what this step wrote there."""
    shape = f"{batch} {held.heads} {held.slots // batch} {held.width}"
    return ("unpack", f"{held.stream} as attended", "B H T W", shape, _dtype(held.dtype), f"{held.added:,}", "again")


def _sums(traced: Traced) -> list[str]:
    """Bytes by fate; those made again count where they end up too."""
    said = []
    for fate, meaning in FATES.items():
        mine = [s for s in traced.seen if s.fate == fate]
        total = sum(s.bytes * s.count for s in mine) + (_scratch_bytes(traced) if fate == "again" else 0)
        if mine or total:
            tensors = sum(s.count for s in mine) + (len(traced.scratch) if fate == "again" else 0)
            said.append(f"  {fate:<10}{total:>15,} B in {tensors} tensors: {meaning}")
        if mine and fate == "copied":
            said.append(" " * 14 + "(a fused kernel reads the cache where it lies and makes none of them)")
    small = [s for s in traced.seen if s.minor]
    count, size = sum(s.count for s in small), sum(s.bytes * s.count for s in small)
    return [
        "Bytes made:",
        *said,
        f"  Of these {count} tensors of {size:,} B were small steps on the way, without a line above.",
    ]


def _scratch_bytes(traced: Traced) -> int:
    return sum(held.added for held in traced.scratch)


def _axes(seen: Iterable[Seen]) -> str:
    """Only the letters that occur; what they stand for, and how many."""
    sizes: dict[str, set[int]] = {}
    for line in seen:
        if not line.minor:
            for letter, size in zip(line.letters, line.shape, strict=True):
                sizes.setdefault(letter, set()).add(size)
    told = [f"{letter} {meaning}{_size(sizes[letter])}" for letter, meaning in AXES.items() if letter in sizes]
    return "Axes: " + ", ".join(told) + "."


def _size(sizes: set[int]) -> str:
    return f" ({next(iter(sizes)):,})" if len(sizes) == 1 else ""


def _shape(shape: Sequence[int]) -> str:
    return " ".join(map(str, shape))


def _dtype(name: str) -> str:
    return SHORT.get(name, name)
