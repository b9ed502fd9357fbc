"""Points at which the Triton kernels are checked: plain data, for the tests and for the process that interprets."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from variants.contract.codes import stored, uncoded
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import All, Keep, Window
from variants.contract.layout import CacheLayout, Stream

GROUPS = (1, 3, 5, 8, 12, 32, 128)
LENGTHS = (1000, 0, 1, 65, 2, 64, 63)
MIXED = (200, 0, 1, 65, 2, 64, 63)
SHORT = (70, 0, 2, 1, 65)  # where there are many rows, which the interpreter takes one program at a time
CONTIGUOUS, RING = 0, -1  # instead of a page size
Point = tuple[CacheLayout, AttentionGeometry]


@dataclass(frozen=True)
class Case:
    """One batch on one storage. ``chunk`` is far below the longest length, so that splits are merged."""

    name: str
    point: Callable[[Dtype], Point]
    dtype: Dtype = Dtype.BF16
    page: int = CONTIGUOUS
    queries: int = 1
    lengths: tuple[int, ...] = LENGTHS
    chunk: int | None = 256
    partials: str = "fp32"
    guarded: bool = False
    codes: Dtype | None = None  # what the cache holds, if not numbers of ``dtype``
    every_code: bool = False  # in turn, whatever the numbers were
    far: bool = False  # pages further apart than an int32 counts

    @property
    def length(self) -> int:
        """What to plan for."""
        return max(1, *self.lengths)

    def __str__(self) -> str:
        where = {CONTIGUOUS: "contiguous", RING: "ring"}.get(self.page, f"page {self.page}")
        kept = f" over {self.codes.value}" if self.codes else ""
        return f"{self.name}, {where}, Q {self.queries}, {self.dtype.value}{kept}"


def dense(group: int, d_qk: int, d_v: int, kv_heads: int = 2, keep: Keep | None = None) -> Callable[[Dtype], Point]:
    """Separate keys and values."""

    def point(dtype: Dtype) -> Point:
        key, value = (Stream(n, kv_heads, w, dtype, keep or All()) for n, w in (("key", d_qk), ("value", d_v)))
        spans = (Span("key", 0, d_qk),), (Span("value", 0, d_v),)
        return stored(key, value), AttentionGeometry(kv_heads * group, kv_heads, *spans, d_qk**-0.5)

    return point


def latent(group: int, width: int = 512, rope: int = 64, kv_heads: int = 1) -> Callable[[Dtype], Point]:
    """MLA (one row of latent and rope) and GLA (several latent heads, one rope): V lies in K."""

    def point(dtype: Dtype) -> Point:
        streams = Stream("latent", kv_heads, width, dtype), Stream("rope", 1, rope, uncoded(dtype))
        layout = stored(*streams, one_row=kv_heads == 1)
        c, r = Span("latent", 0, width), Span("rope", 0, rope)
        return layout, AttentionGeometry(kv_heads * group, kv_heads, (c, r), (c,), (width + rope) ** -0.5)

    return point


def tied(group: int, width: int = 128, rope: int = 64, kv_heads: int = 2) -> Callable[[Dtype], Point]:
    """GTA: V is the tied state, K its first columns and one rope for all heads."""

    def point(dtype: Dtype) -> Point:
        layout = stored(Stream("tied", kv_heads, width, dtype), Stream("rope", 1, rope, uncoded(dtype)))
        key = Span("tied", 0, width - rope), Span("rope", 0, rope)
        return layout, AttentionGeometry(kv_heads * group, kv_heads, key, (Span("tied", 0, width),), width**-0.5)

    return point


def _spans(
    streams: tuple[tuple[str, int, int], ...], kv_heads: int, key: tuple[Span, ...], value: Span
) -> Callable[[Dtype], Point]:
    def point(dtype: Dtype) -> Point:
        layout = CacheLayout(tuple(Stream(name, heads, width, dtype) for name, heads, width in streams))
        return layout, AttentionGeometry(3 * kv_heads, kv_heads, key, (value,), 0.1)

    return point


ODD = {
    "value in the middle of the second key span": _spans(
        (("rope", 1, 24), ("state", 1, 96)), 1, (Span("rope", 0, 24), Span("state", 0, 96)), Span("state", 8, 72)
    ),
    "value reaches over both ends of the key": _spans((("s", 2, 128),), 2, (Span("s", 32, 64),), Span("s", 16, 112)),
    "one key span of 576, value its first 512": _spans((("s", 1, 576),), 1, (Span("s", 0, 576),), Span("s", 0, 512)),
    "key and value the same 96 columns": _spans((("s", 2, 96),), 2, (Span("s", 0, 96),), Span("s", 0, 96)),
    "one key head for two value heads": _spans(
        (("key", 1, 64), ("value", 2, 40)), 2, (Span("key", 0, 64),), Span("value", 0, 40)
    ),
    "key and value apart in one stream": _spans((("s", 2, 80),), 2, (Span("s", 40, 72),), Span("s", 0, 40)),
}


SHAPES: dict[str, tuple[Callable[..., Callable[[Dtype], Point]], int, int, int]] = {
    **{f"dense {w}": (dense, w, w, 2) for w in (64, 80, 96, 128, 192, 256)},
    "dense 192/128": (dense, 192, 128, 2),
    "gta 64+64": (tied, 128, 64, 2),
    "gla 256+64": (latent, 256, 64, 2),
    "mla 512+64": (latent, 512, 64, 1),
}


def shape(name: str, group: int) -> Callable[[Dtype], Point]:
    """A shape by name; one kv head where a group alone is many rows."""
    make, first, second, kv_heads = SHAPES[name]
    return make(group, first, second, kv_heads if group <= 12 else 1)


_BF16, _F16, _F32 = Dtype.BF16, Dtype.F16, Dtype.F32
_INT8, _FP8 = Dtype.INT8, Dtype.FP8_E4M3


def _quick() -> Iterator[Case]:
    """Each group, width, page size and dtype at least once; each kind with one query and with three."""
    for name, group, page, queries, dtype, lengths in (
        ("dense 64", 1, CONTIGUOUS, 1, _BF16, LENGTHS),
        ("dense 80", 3, 16, 3, _F16, MIXED),
        ("dense 96", 5, 1, 1, _F32, MIXED),
        ("dense 128", 8, 64, 3, _BF16, MIXED),
        ("dense 192", 12, 16, 1, _F16, MIXED),
        ("dense 256", 3, 1, 1, _BF16, SHORT),
        ("dense 192/128", 1, 64, 3, _F32, SHORT),
        ("gta 64+64", 8, 16, 3, _BF16, MIXED),
        ("gta 64+64", 5, CONTIGUOUS, 1, _F16, SHORT),
        ("gla 256+64", 32, 64, 1, _F16, SHORT),
        ("gla 256+64", 3, 1, 3, _F32, SHORT),
        ("mla 512+64", 128, 16, 1, _BF16, SHORT),
        ("mla 512+64", 12, 64, 3, _F16, LENGTHS),
    ):
        chunk = 64 * (1 + max(lengths) // 300)
        yield Case(f"{name} x {group}", shape(name, group), dtype, page, queries, lengths, chunk)
    yield Case("window", dense(3, 64, 64, keep=Window(40)), _F16, 16, 1, (1000, 0, 1, 64), 64)
    yield Case("window", dense(3, 64, 64, keep=Window(40)), _F16, RING, 3, (1000, 0, 1, 64), 64)
    yield Case("guarded", shape("mla 512+64", 64), _F16, 16, 1, SHORT, 64, guarded=True)
    yield Case("splits by rule", shape("dense 64", 3), chunk=None, lengths=SHORT)
    for name, group, page, queries, dtype, codes in (
        ("dense 80", 3, 16, 1, _BF16, _INT8),
        ("dense 192", 1, CONTIGUOUS, 3, _F32, _FP8),
        ("gta 64+64", 3, 16, 1, _F32, _INT8),
        ("gla 256+64", 3, 16, 1, _BF16, _FP8),
        ("mla 512+64", 12, 1, 1, _BF16, _INT8),
        ("mla 512+64", 32, 16, 1, _BF16, _FP8),
    ):
        yield Case(f"{name} x {group}", shape(name, group), dtype, page, queries, SHORT, 64, codes=codes)
    yield Case("every code", shape("dense 128", 3), lengths=SHORT, chunk=64, codes=_FP8, every_code=True)


def _shapes() -> Iterator[Case]:
    """Every group with every width; storage, queries and dtype are drawn, the same in every run."""
    draw = random.Random(0).choice
    for group, name in product(GROUPS, SHAPES):
        page, queries, dtype = draw((CONTIGUOUS, 1, 16, 64)), draw((1, 1, 3)), draw((_BF16, _F16, _F32))
        if name.startswith("mla") and dtype is _F32:
            dtype = _BF16  # float32 is refused
        many = group > 12 or name.startswith("mla")
        lengths, chunk = (SHORT, 64) if many else (LENGTHS, 256)
        yield Case(f"{name} x {group}", shape(name, group), dtype, page, queries, lengths, chunk)


def _storages() -> Iterator[Case]:
    """Each kind on every storage; windows, also in a ring that has turned several times; settings of the backend."""
    pages = (CONTIGUOUS, 1, 16, 64, 100, 256)
    for name, page, queries in product(("dense 64", "gta 64+64", "mla 512+64"), pages, (1, 3)):
        lengths = SHORT if name.startswith("mla") else (257, *SHORT)
        yield Case(f"{name} x 3", shape(name, 3), _F16, page, queries, lengths, 64)
    for page, queries, size in product((CONTIGUOUS, 16, 64, RING), (1, 3), (1, 40, 200)):
        point = dense(3, 64, 64, keep=Window(size))
        yield Case(f"window of {size}", point, _F16, page, queries, (1000, 0, 1, 64, 199), 64)
    for page, queries in product((CONTIGUOUS, 16, 64), (1, 3)):
        yield Case("guarded", shape("mla 512+64", 64), _F16, page, queries, SHORT, 64, guarded=True)
    for name, point in ODD.items():
        yield Case(name, point, _F16, 16, 2, (130, 0, 1, 64), 64)
    long = (1300, 3, 0, 700)
    apart = _spans((("s", 1, 320),), 1, (Span("s", 0, 192),), Span("s", 192, 320))
    yield Case("offsets beyond int32", apart, _F16, 16, lengths=(70, 0, 130), chunk=64, far=True)
    yield Case("offsets beyond int32", apart, _F16, CONTIGUOUS, lengths=(70, 0, 130), chunk=64, far=True)
    yield Case("chunk is rounded up", shape("dense 64", 3), page=16, chunk=100)
    yield Case("many splits", shape("dense 64", 3), page=1, lengths=long, chunk=64)
    yield Case("bf16 partials", shape("dense 64", 3), lengths=long, chunk=64, partials="bf16")
    yield Case("only empty sequences", shape("dense 64", 3), page=16, lengths=(0, 0, 0))
    yield Case("more queries than tokens", shape("dense 64", 3), page=16, queries=70, lengths=(3, 0, 200, 70), chunk=64)


def _codes() -> Iterator[Case]:
    """Every width in both codes; windows, rings, and what a layout or a geometry may do with scales."""
    for index, (codes, dtype, name) in enumerate(product((_INT8, _FP8), (_BF16, _F32), SHAPES)):
        if not (name.startswith("mla") and dtype is _F32):
            page, queries = ((CONTIGUOUS, 1), (16, 3))[index % 2]
            yield Case(f"{name} x 3", shape(name, 3), dtype, page, queries, SHORT, 64, codes=codes)
    for codes, page in product((_INT8, _FP8), (16, 64, RING)):
        point = dense(3, 192, 192, keep=Window(40))
        yield Case("window of 40", point, _BF16, page, 3, (300, 0, 1, 64), 64, codes=codes)
    for codes, group, page in product((_INT8, _FP8), (32, 64), (1, 64)):
        yield Case(f"mla 512+64 x {group}", latent(group), _BF16, page, 2, SHORT, 64, codes=codes)
    for codes in (_INT8, _FP8):
        yield Case("three blocks", latent(3, 352, 64), _BF16, 16, 1, SHORT, 64, codes=codes)
        yield Case("scales before codes", latent(3, 500, 12), _BF16, 16, 1, SHORT, 64, codes=codes)
        yield Case("every code", shape("dense 128", 3), _F32, 16, 2, SHORT, 64, codes=codes, every_code=True)
        yield Case("many splits", dense(3, 64, 64), _BF16, 1, 1, (1300, 3, 0, 700), 64, "bf16", codes=codes)
        far = dense(3, 192, 192, kv_heads=1)
        yield Case("offsets beyond int32", far, _BF16, 16, 1, (70, 0, 130), 64, codes=codes, far=True)


PARTS = {"quick": list(_quick()), "shapes": list(_shapes()), "storages": list(_storages()), "codes": list(_codes())}
