"""What a variant saves against MHA and against no cache at all, and why nobody caches queries: counted, not timed."""

from dataclasses import dataclass

from experiments.telling.explaining.part import Part
from experiments.telling.words import binary_size, count, number, times
from variants.contract.cost import Point
from variants.contract.dtype import Dtype
from variants.contract.scopes import Countable, scope_work
from variants.contract.tokens import format_tokens

FURTHER = (8 * 1024, 128 * 1024)  # contexts counted beside the one that ran


@dataclass(frozen=True)
class Compared:
    """A variant and MHA in the same model's place; ``layers`` of the model, ``point`` of the step that ran."""

    name: str
    spec: Countable
    mha: Countable
    kv_dtype: Dtype
    layers: int
    point: Point

    def at(self, context: int) -> Point:
        """The same step after ``context`` tokens."""
        return Point(self.point.batch, context, self.point.queries, self.point.dtype)


def saved(it: Compared) -> list[Part]:
    """Bytes against MHA, then work against a step that has no cache."""
    mine, full = (float(spec.layout(it.kv_dtype).bytes_per_token) for spec in (it.spec, it.mha))
    a_token = (
        f"Against MHA: {it.name} caches {count(mine)} B per token and layer, MHA {count(full)} B: {_fewer(full, mine)}."
    )
    contexts = sorted({it.point.context, *FURTHER})
    header = ("cached tokens", f"{it.name}, per sequence", "MHA, per sequence", "MHA / this")
    rows = [_bytes_row(it, context) for context in contexts]
    about = f"{a_token} All {it.layers} layers, one sequence:"
    nothing = ("cached tokens", "FLOP with the cache", "FLOP without", "ratio", "bytes with", "bytes without")
    again = (
        "Against no cache at all: every row of the prefix is projected and attended again, for the layers above need "
        "them all. One layer, one step, whole batch:"
    )
    return [Part(about, header, rows), Part(again, nothing, [_work_row(it, context) for context in contexts])]


def queries(it: Compared, query: tuple[int, ...], keys: int) -> Part:
    """Why queries are not cached. ``query`` is the shape [B, Q, H, K] that the step made, ``keys`` those it scored."""
    _, new, heads, width = query
    a_token = it.point.dtype.bytes(heads * width)
    cached = it.spec.layout(it.kv_dtype).bytes_per_token
    share = number(a_token / float(cached), 3)
    return Part(
        f"Why queries are not cached: this step scored {new} x {heads} queries of its own token against {keys:,} keys "
        "and read no other query. The scores of an earlier token are no input of a later one; its query is never asked "
        f"again. Keeping it would add {a_token:,} B per token and layer, {share} times what {it.name} caches, and save "
        "no byte read and no FLOP."
    )


def _bytes_row(it: Compared, context: int) -> tuple[str, ...]:
    mine, full = (spec.layout(it.kv_dtype).bytes(context) * it.layers for spec in (it.spec, it.mha))
    return (format_tokens(context), binary_size(mine), binary_size(full), times_of(full, mine))


def _work_row(it: Compared, context: int) -> tuple[str, ...]:
    point = it.at(context)
    cached, without = (scope_work(scope, it.spec, it.kv_dtype, point) for scope in ("step", "recompute"))
    flops = (_flop(cached.flops), _flop(without.flops), times_of(without.flops, cached.flops))
    return (format_tokens(context), *flops, binary_size(cached.io_bytes), binary_size(without.io_bytes))


def times_of(more: float, less: float) -> str:
    """``16.0x``, also below 1: an expanded cache may hold more than MHA's."""
    ratio = more / less
    return times(ratio) if ratio >= 1 else f"{ratio:.2f}x"


def _fewer(full: float, mine: float) -> str:
    if full == mine:
        return "the same"
    return f"{times_of(full, mine)} fewer" if mine < full else f"{times_of(mine, full)} more"


def _flop(flops: int) -> str:
    for power, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if flops >= power:
            return f"{number(flops / power, 3)} {unit}FLOP"
    return f"{flops:,} FLOP"
