"""Three tokens and one more in numbers, for someone who sees a KV cache for the first time."""

import math
from collections.abc import Sequence

from experiments.telling.explaining.part import Part
from experiments.traced import Rows, Walk

TOKENS = ("The", "code", "is", "running")
DECIMALS = 3
HIDDEN = "."  # a key that a query may not see


def told(name: str, walk: Walk) -> list[Part]:
    """The walk from the first token to what it teaches."""
    prefix = len(TOKENS) - 1
    square, masked = f"{prefix} x {prefix}", f'"{HIDDEN}" is a later token, which may not be seen'
    stay = ", those before it stay as they were" if walk.kept else ""
    return [
        Part(_opening(name, walk)),
        Part(f"1. Prefill: {prefix} tokens at once. Each leaves one row in the cache:", *_cache(walk, prefix)),
        Part(f"Scores = query . key x {walk.scale:.3f}, {square} per head (h0, h1); {masked}."),
        Part("", *_grid("scores", walk.prefill.scores, TOKENS[:prefix])),
        Part("", *_grid("weights", walk.prefill.weights, TOKENS[:prefix])),
        Part(_mixed()),
        Part(f'2. Decode: "{TOKENS[-1]}" comes. One row is added to the cache{stay}:'),
        Part("", *_cache(walk, len(TOKENS)), strong=frozenset({prefix})),
        Part(f"One query against {len(TOKENS)} keys: 1 x {len(TOKENS)} per head."),
        Part("", *_grid("scores", walk.decode.scores, TOKENS[-1:])),
        Part("", *_grid("weights", walk.decode.weights, TOKENS[-1:])),
        Part(_answer(walk)),
        Part(_lessons(name, walk)),
    ]


def _opening(name: str, walk: Walk) -> str:
    width = walk.heads * walk.head_dim
    forms = [p.form for p in (walk.prefill, walk.decode)]
    how = f" Prefill runs in the {forms[0]} form, decode in the {forms[1]} one." if forms[0] != forms[1] else ""
    return (
        f'{name}: "{" ".join(TOKENS[:-1])}" -> "{TOKENS[-1]}". Width {width}: {walk.heads} heads x {walk.head_dim}; '
        f"the cache holds {_streams(walk)}.{how}\nWeights and tokens are seeded noise: the numbers mean nothing, "
        "which of them depends on which is what counts."
    )


def _streams(walk: Walk) -> str:
    return ", ".join(f"{stream} {len(heads)} x {len(heads[0][0])}" for stream, heads in walk.cache.items())


def _cache(walk: Walk, tokens: int) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    columns = {
        stream if len(heads) == 1 else f"{stream} {n}": rows
        for stream, heads in walk.cache.items()
        for n, rows in enumerate(heads)
    }
    rows = [(TOKENS[t], *(" ".join(map(_number, rows[t])) for rows in columns.values())) for t in range(tokens)]
    return ("cached", *columns), rows


def _grid(what: str, heads: Sequence[Rows], queries: Sequence[str]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """A row per query, a column per head (h0, h1) and key."""
    keys = TOKENS[: len(heads[0][0])]
    header = (what, *(f"h{n} {key}" for n in range(len(heads)) for key in keys))
    rows = [(query, *(_number(v) for head in heads for v in head[i])) for i, query in enumerate(queries)]
    return header, rows


def _number(value: float) -> str:
    """Aligned on the point, whatever stands around it."""
    return (HIDDEN + " " * DECIMALS if math.isinf(value) else f"{value:.{DECIMALS}f}").rjust(DECIMALS + 3)


def _mixed() -> str:
    last = TOKENS[-2]
    return (
        f'Each row mixes the values by its weights. The row of "{last}" goes up through the layers above, and out '
        f'comes the next token: "{TOKENS[-1]}".'
    )


def _answer(walk: Walk) -> str:
    apart = max(abs(a - b) for a, b in zip(walk.y, walk.again, strict=True))
    return "\n".join(
        [
            f"  out, with the cache:       {' '.join(map(_number, walk.y))}",
            f"  out, all {len(TOKENS)} rows again:     {' '.join(map(_number, walk.again))}",
            f"The largest difference is {apart:.0e}: the cache changes the work, not the answer.",
        ]
    )


def _lessons(name: str, walk: Walk) -> str:
    queries = sum(len(rows) for rows in walk.decode.scores)
    stored = sum(len(heads) * len(heads[0][0]) for heads in walk.cache.values())
    full = 2 * walk.heads * walk.head_dim
    grown = (len(TOKENS) - 1) * queries
    return "\n".join(
        [
            f"- The {queries} queries of this step, one per head, are used and dropped. The {grown} queries of the "
            "prefill were not needed: a cached query would never be read.",
            f"- {name} stores {stored} numbers per token here, MHA {full}: a key and a value per head.",
            f"- {walk.heads} heads cannot tell GQA from MHA or MQA: it has {walk.heads} key/value heads here, which is "
            "MHA, or 1, which is MQA. Four heads could.",
        ]
    )
