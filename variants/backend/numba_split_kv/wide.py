"""The kernel for wide groups of bfloat16 on a matrix unit: the same splits and softmax as ``stream``, other products.

Queries are padded with zeros to whole tiles of 16 rows, tokens to whole steps of 32 by repeating the last, which no row
sees twice. Keys of a step that do not follow one another in the cache are copied together first.
"""

import numpy as np
from numba import njit, prange
from numba.np.ufunc.parallel import get_thread_id

from variants.backend.numba_split_kv.ahead import ask, list_lines
from variants.backend.numba_split_kv.amx import configure, release
from variants.backend.numba_split_kv.block import MAXIMUM, TOTAL, bounds, locate
from variants.backend.numba_split_kv.columns import EDGE, STEP, rescale_rows, soften_columns
from variants.backend.numba_split_kv.kernel import kernel
from variants.backend.numba_split_kv.operands import SLOT, WIDTH, Array
from variants.backend.numba_split_kv.products import score_tokens, weigh_tokens
from variants.backend.numba_split_kv.tiles import gather, pack, unravel, weave

BLOCK = 128  # tokens: enough products per sum that is loaded and stored
STEPS = BLOCK // STEP
PART = 192  # columns of keys that are multiplied at a time
SOFTMAX = 350  # columns whose products take as long


@kernel
def wide(
    q: Array, key: Array, tail: Array, value: Array, key_place: Array, tail_place: Array, value_place: Array,
    table: Array, lengths: Array, start: Array, slots: int, window: int, queries: int, chunk: int, scale: float,
    groups: int, splits: int, heads: int, in_key: bool, config: Array, packed: Array, at: Array, lines: Array,
    keys: Array, tails: Array, scored: Array, narrow: Array, woven: Array, held: Array, rows: Array, sums: Array,
    state: Array,
) -> None:  # fmt: skip
    """Sums [B x G x splits x M, V] and state [.., (maximum, total)]; M is whole tiles of rows.

    q is [B x Q x H x K]. Workspace per thread: ``packed`` [M / 16, K x 8], ``at`` [6 x BLOCK], ``lines`` of a block
    (before that, where queries begin), ``keys`` and ``tails`` [BLOCK x width], ``scored`` [M / 16 x BLOCK, 16], and in
    tiles ``narrow`` [M / 16 x STEPS], ``woven`` [2 x STEPS], ``held`` [M / 16 x V / 16]; ``rows`` [3, threads x M].
    """
    d_v, threads = sums.shape[1], woven.shape[0] // (2 * STEPS)
    padded, wide_q = rows.shape[1] // threads, key_place[WIDTH] + tail_place[WIDTH]
    tiles, listed = padded // EDGE, lines.shape[0] // threads
    tops, totals, factors = rows[0], rows[1], rows[2]
    for task in prange(lengths.shape[0] * groups * splits):
        head, split, thread = task // splits, task % splits, get_thread_id()
        b, g, out, mine, line = head // groups, head % groups, task * padded, thread * padded, thread * listed
        here, ahead = thread * 6 * BLOCK, thread * 6 * BLOCK + 3 * BLOCK
        for row in range(mine, mine + padded):
            tops[row], totals[row] = -np.inf, 0.0
        configure(config)
        find_queries(b, g, heads, groups, queries, wide_q, lines, line, padded)
        for tile in range(tiles):
            pack(q, lines, line + tile * EDGE, wide_q // STEP, packed, thread * tiles + tile)
        follow = False
        low, high = bounds(lengths[b], start[b], window, queries, split, chunk)
        for first in range(low - BLOCK, high, BLOCK):
            tokens, later = min(BLOCK, high - first), max(0, min(BLOCK, high - first - BLOCK))
            straight = follow
            follow = locate(key_place, table, b, slots, g, first + BLOCK, later, at, ahead)
            locate(tail_place, table, b, slots, g, first + BLOCK, later, at, ahead + BLOCK)
            locate(value_place, table, b, slots, g, first + BLOCK, later, at, ahead + 2 * BLOCK)
            end = list_lines(key, at, ahead, later, key_place[WIDTH], lines, line)
            end = list_lines(tail, at, ahead + BLOCK, later, tail_place[WIDTH], lines, end)
            if not in_key:
                end = list_lines(value, at, ahead + 2 * BLOCK, later, d_v, lines, end)
            repeat_last(at, ahead, later)
            if first < low:
                ask(lines, line, end)
            else:
                upto = -(-tokens // STEP) * STEP
                scored_by = line + (end - line) * wide_q // (wide_q + SOFTMAX)
                score_block(
                    packed, thread * tiles, key, tail, key_place, tail_place, keys, tails, straight, at, here, tokens,
                    upto, scored, thread, tiles, lines, line, scored_by,
                )  # fmt: skip
                base = lengths[b] - queries - first
                if min(base + 1, tokens) < upto or (window > 0 and base + queries > window):
                    hide(scored, thread * tiles, tiles, tokens, upto, base, window, queries)
                soften_block(
                    scored, upto, scale, tops, totals, factors, narrow, held, thread, tiles, d_v, lines,
                    scored_by, end,
                )  # fmt: skip
                weigh_block(value, at, here + 2 * BLOCK, upto, narrow, woven, held, thread, tiles, d_v, first == low)
            here, ahead = ahead, here
        release()
        for tile in range(tiles if low < high else 0):
            unravel(held, (thread * tiles + tile) * (d_v // EDGE), sums, out + tile * EDGE)
        for row in range(padded):
            state[out + row, MAXIMUM], state[out + row, TOTAL] = tops[mine + row], totals[mine + row]
            for c in range(d_v if low >= high else 0):
                sums[out + row, c] = 0.0


@njit(inline="always")
def score_block(
    q: Array, query: int, key: Array, tail: Array, key_place: Array, tail_place: Array, keys: Array, tails: Array,
    follow: bool, at: Array, here: int, tokens: int, upto: int, scored: Array, thread: int, tiles: int, lines: Array,
    begin: int, end: int,
) -> None:  # fmt: skip
    """Scores of a block, from the cache or from what was copied of it.

    A few columns of all tokens at a time: the queries' part then stays in the first-level cache.
    """
    wide, narrow = key_place[WIDTH], tail_place[WIDTH]
    pairs, parts = (tiles + 1) // 2, -(-wide // PART)
    pieces, piece = parts * (upto // STEP) * pairs, 0
    for part in range(parts):
        column = part * PART
        steps = min(PART, wide - column) // STEP
        for token in range(0, upto, STEP):
            straight = follow and token + STEP <= tokens
            copied = thread * BLOCK + token
            if part == 0 and not straight:
                gather(key, at, here + token, wide, keys, copied * wide)
                gather(tail, at, here + BLOCK + token, narrow, tails, copied * narrow)
            for tile in range(0, tiles, 2):
                start, stop = share(piece, pieces, begin, end)
                piece += 1
                row, two = (thread * tiles + tile) * BLOCK + token, tile + 1 < tiles
                if straight:
                    score_tokens(
                        q, query + tile, two, column // STEP, steps, key, at[here + token] + column, key_place[SLOT],
                        scored, row, BLOCK, lines, start, stop,
                    )  # fmt: skip
                else:
                    score_tokens(
                        q, query + tile, two, column // STEP, steps, keys, copied * wide + column, wide, scored, row,
                        BLOCK, lines, start, stop,
                    )  # fmt: skip
                if narrow > 0 and part == parts - 1:
                    if straight:
                        score_tokens(
                            q, query + tile, two, wide // STEP, narrow // STEP, tail, at[here + BLOCK + token],
                            tail_place[SLOT], scored, row, BLOCK, lines, stop, stop,
                        )  # fmt: skip
                    else:
                        score_tokens(
                            q, query + tile, two, wide // STEP, narrow // STEP, tails, copied * narrow, narrow, scored,
                            row, BLOCK, lines, stop, stop,
                        )  # fmt: skip


@njit(inline="always")
def soften_block(
    scored: Array, upto: int, scale: float, tops: Array, totals: Array, factors: Array, narrow: Array, held: Array,
    thread: int, tiles: int, d_v: int, lines: Array, begin: int, end: int,
) -> None:  # fmt: skip
    """Weights of a block, tile by tile of rows; earlier sums are rescaled where a maximum grew."""
    for tile in range(tiles):
        my = thread * tiles + tile
        start, stop = share(tile, tiles, begin, end)
        if soften_columns(
            scored, my * BLOCK, upto, scale, tops, totals, factors, my * EDGE, narrow, my * STEPS, lines, start, stop
        ):
            rescale_rows(held, my * (d_v // EDGE), d_v // EDGE, factors, my * EDGE)


@njit(inline="always")
def weigh_block(
    value: Array, at: Array, first: int, upto: int, narrow: Array, woven: Array, held: Array, thread: int, tiles: int,
    d_v: int, fresh: bool,
) -> None:  # fmt: skip
    """Sums of a block, 32 columns at a time: woven once for all rows. Nothing is asked for, it would hold up values."""
    spot, wide = thread * 2 * STEPS, d_v // EDGE
    for column in range(0, d_v, STEP):
        weave(value, at, first, upto // STEP, column, woven, spot)
        for tile in range(0, tiles, 2):
            my = thread * tiles + tile
            weigh_tokens(
                narrow, my * STEPS, STEPS, tile + 1 < tiles, upto // STEP, woven, spot, held,
                my * wide + column // EDGE, wide, fresh,
            )  # fmt: skip


@njit(inline="always")
def hide(
    scored: Array, first: int, tiles: int, tokens: int, upto: int, base: int, window: int, queries: int
) -> None:  # fmt: skip
    """Scores of tokens that a row does not see become minus infinity; row r sees up to base + r % queries."""
    for row in range(tiles * EDGE):
        last, at, lane = base + row % queries, (first + row // EDGE) * BLOCK, row % EDGE
        oldest = max(0, last + 1 - window) if window > 0 else 0
        for t in range(min(oldest, upto)):
            scored[at + t, lane] = -np.inf
        for t in range(max(0, min(last + 1, tokens)), upto):
            scored[at + t, lane] = -np.inf


@njit(inline="always")
def repeat_last(at: Array, first: int, tokens: int) -> None:
    """Fill up the last step of a block's places, key, tail and value, with the last token's."""
    for part in range(first, first + 3 * BLOCK, BLOCK):
        for t in range(tokens, -(-tokens // STEP) * STEP):
            at[part + t] = at[part + tokens - 1]


@njit(inline="always")
def find_queries(
    b: int, g: int, heads: int, groups: int, queries: int, width: int, at: Array, first: int, padded: int
) -> None:
    """Where the rows of a head begin in q [B, Q, H, K]; rows that only pad repeat the last one."""
    rows = heads // groups * queries
    for row in range(padded):
        r = min(row, rows - 1)
        at[first + row] = ((b * queries + r % queries) * heads + g * (heads // groups) + r // queries) * width


@njit(inline="always")
def share(piece: int, pieces: int, begin: int, end: int) -> tuple[int, int]:
    """Of [begin, end) the part that belongs to one of several equal pieces of work."""
    count = end - begin
    return begin + count * piece // pieces, begin + count * (piece + 1) // pieces
