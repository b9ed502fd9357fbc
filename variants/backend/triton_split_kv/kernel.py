"""Device code: split-KV decode over the tokens of one split.

A program reads tokens [lo, hi) of one sequence for up to BLOCK_M of the group x Q rows of one kv head: row r is query
r % Q of head r // Q of the group. Per row it keeps a running maximum m, a sum and an unscaled output acc, in float32;
scores are in log2, since exp2 is one instruction. Source: the running softmax of FlashAttention (Dao 2022, algorithm 1)
over splits as in Flash-Decoding (Dao, Haziza, Massa, Sizov 2023).

Per token it loads a *state* row, a *tail* row that continues the key, and a *value* row unless the values lie in the
state. Which columns of a state are key is decided by where q is placed, with zeros elsewhere; which are value, by which
columns of acc are stored. Widths that are no power of two are padded by masks.

Codes are exact in bfloat16; code x scale would have to be rounded. So they are multiplied as they are, and each product
by the scale of its token. A row of several scales is several tiles, one for each, and so are the q and acc it meets.
"""

# ruff: noqa: ANN001, ANN201 - as in pieces.py

from typing import no_type_check

import triton
import triton.language as tl

from variants.backend.triton_split_kv.pieces import LN2, dot, row_scales, row_tiles, scaled, store, token_range


@triton.jit
@no_type_check
def split(
    Q,  # [B, Q, H, K]
    q_b,  # its strides in elements
    q_q,
    q_h,
    q_k,
    STATE,  # [P, G or 1, S, STATE_W]
    TAIL,  # [P, G or 1, S, TAIL_W]
    VALUE,  # [P, G or 1, S, VALUE_W]
    state_p,  # their strides over pages and heads; a head stride of 0 broadcasts one head to all
    state_h,
    tail_p,
    tail_h,
    value_p,
    value_h,
    TABLE,  # [B, N]
    table_b,
    scale_log2,  # softmax scale x log2(e)
    LENGTHS,  # [B]
    START,  # [B]
    OUT,  # [B, Q, H, V]
    LSE,  # [B, Q, H]
    PART_OUT,  # [B, Q, H, splits, V]
    PART_LSE,  # [B, Q, H, splits], in log2
    chunk,  # tokens per split, a multiple of BLOCK_N
    splits,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    STATE_W: tl.constexpr,  # columns that exist
    STATE_BLOCK: tl.constexpr,  # columns of a tile: the next power of two
    STATE_TILES: tl.constexpr,  # of a row
    STATE_SCALE: tl.constexpr,  # bytes from a row's first code to its first scale; 0: numbers, not codes
    STATE_S: tl.constexpr,  # stride over slots: a constant saves the registers of an address per row
    KEY_AT: tl.constexpr,  # first column of the state that is key
    KEY_W: tl.constexpr,
    TAIL_W: tl.constexpr,  # 0: no tail
    TAIL_BLOCK: tl.constexpr,
    TAIL_SCALE: tl.constexpr,
    TAIL_S: tl.constexpr,
    TIED: tl.constexpr,  # the values lie in the state
    VALUE_AT: tl.constexpr,  # first column of the value (or state) tile that is output
    VALUE_W: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    VALUE_TILES: tl.constexpr,
    VALUE_SCALE: tl.constexpr,
    VALUE_S: tl.constexpr,
    Q_STATE: tl.constexpr,  # column of q that meets column KEY_AT of the state
    Q_TAIL: tl.constexpr,
    PAGE: tl.constexpr,  # slots per page; 0: page b is sequence b
    WINDOW: tl.constexpr,  # a query sees the last WINDOW tokens up to itself; 0: all
    RING: tl.constexpr,  # slots used in a circle; 0: none
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    GUARDED: tl.constexpr,
    ONCE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Attend over one split: the final result if the sequence has only this one, else a partial result."""
    ROWS: tl.constexpr = GROUP * QUERIES
    ROW_BLOCKS: tl.constexpr = (ROWS + BLOCK_M - 1) // BLOCK_M
    ONE_PAGE: tl.constexpr = PAGE > 0 and PAGE % BLOCK_N == 0  # all tokens of a tile lie in one page
    DTYPE: tl.constexpr = Q.dtype.element_ty  # of what is multiplied
    ROWS_DIFFER: tl.constexpr = QUERIES > 1 or WINDOW > 0  # in what they see, which may be nothing
    # axis 0 is the fastest: row blocks that read the same tokens run side by side and share them in L2
    kv_head = tl.program_id(0) // ROW_BLOCKS
    row_block = tl.program_id(0) % ROW_BLOCKS
    s = tl.program_id(1)
    b = tl.program_id(2)
    oldest, length = token_range(LENGTHS, START, b, QUERIES, WINDOW, RING)
    first = oldest // BLOCK_N * BLOCK_N  # a tile that starts at a multiple of its size never straddles two pages
    lo = first + s * chunk
    if lo >= length:
        if s == 0:  # an empty sequence has a defined result, not stale memory
            zero = (tl.zeros([BLOCK_M, VALUE_BLOCK], tl.float32),) * VALUE_TILES
            unseen = tl.full([BLOCK_M], float("-inf"), tl.float32)
            row = row_block * BLOCK_M
            store(OUT, LSE, zero, unseen, b, kv_head, row, 1, 0, HEADS, GROUP, QUERIES, VALUE_AT, VALUE_W)
        return
    hi = tl.minimum(lo + chunk, length)

    row = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    real = row < ROWS
    query = row % QUERIES
    head = kv_head * GROUP + row // QUERIES
    last_seen = length - QUERIES + query  # newest token that a row sees: causal, aligned at the bottom right
    q_row = Q + b.to(tl.int64) * q_b + query.to(tl.int64) * q_q + head * q_h
    q_state = ()
    for i in tl.static_range(STATE_TILES):
        state_col = i * STATE_BLOCK + tl.arange(0, STATE_BLOCK)
        is_key = (state_col >= KEY_AT) & (state_col < KEY_AT + KEY_W)
        q_at = q_row[:, None] + (state_col - KEY_AT + Q_STATE)[None, :] * q_k
        q_state += (tl.load(q_at, mask=real[:, None] & is_key[None, :], other=0.0),)
    state_base = STATE + kv_head.to(tl.int64) * state_h
    if TAIL_W > 0:
        tail_col = tl.arange(0, TAIL_BLOCK)
        q_at = q_row[:, None] + (tail_col + Q_TAIL)[None, :] * q_k
        q_tail = tl.load(q_at, mask=real[:, None] & (tail_col < TAIL_W)[None, :], other=0.0)
        tail_base = TAIL + kv_head.to(tl.int64) * tail_h
    if not TIED:
        value_base = VALUE + kv_head.to(tl.int64) * value_h

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = (tl.zeros([BLOCK_M, VALUE_BLOCK], tl.float32),) * VALUE_TILES
    token = tl.arange(0, BLOCK_N)
    if PAGE > 0:
        pages = TABLE + b.to(tl.int64) * table_b
        # A tile's page id is loaded one tile ahead and carried: a lookup in the same iteration as the rows it leads to
        # would halve the pipeline's depth (triton's AssignLatencies divides num_stages - 1 by the levels of indirection
        # plus one).
        if ONE_PAGE:
            next_page = tl.load(pages + lo // PAGE)
        else:
            next_page = tl.load(pages + (lo + token) // PAGE, mask=lo + token < length, other=0)

    for n in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
        at = n + token
        held = at < length
        if WINDOW > 0:
            held = held & (at >= oldest)
        if ONE_PAGE:
            page = next_page.to(tl.int64)
            next_page = tl.load(pages + tl.minimum(n + BLOCK_N, length - 1) // PAGE)
            slot = n % PAGE + token
        elif PAGE > 0:
            page = next_page.to(tl.int64)
            next_page = tl.load(pages + (at + BLOCK_N) // PAGE, mask=at + BLOCK_N < length, other=0)
            slot = at % PAGE
        else:
            page = b.to(tl.int64)
            slot = (at % RING if RING > 0 else at).to(tl.int64)

        state_row = state_base + page * state_p + slot * STATE_S
        state = row_tiles(state_row, held, n < length, STATE_W, STATE_BLOCK, STATE_TILES, DTYPE, ONCE)
        state_scale = row_scales(state_row, held, STATE_SCALE, STATE_TILES)
        if TIED:
            value = state
            value_scale = state_scale
        else:
            value_row = value_base + page * value_p + slot * VALUE_S
            value = row_tiles(value_row, held, n < length, VALUE_W, VALUE_BLOCK, VALUE_TILES, DTYPE, ONCE)
            value_scale = row_scales(value_row, held, VALUE_SCALE, VALUE_TILES)
        if TAIL_W > 0:
            tail_row = tail_base + page * tail_p + slot * TAIL_S
            tail = row_tiles(tail_row, held, n < length, TAIL_W, TAIL_BLOCK, 1, DTYPE, ONCE)
            tail_scale = row_scales(tail_row, held, TAIL_SCALE, 1)

        if GUARDED:  # always true, but out of sight of the product with the values, see tiles.Tile
            score = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            if n < length:
                score = dot(q_state[0], tl.trans(state[0]), None, UPCAST)
            if TAIL_W > 0:
                more = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
                if n < length:
                    more = dot(q_tail, tl.trans(tail[0]), None, UPCAST)
                score += more
        else:
            score = scaled(dot(q_state[0], tl.trans(state[0]), None, UPCAST), state_scale, 0)
            for i in tl.static_range(1, STATE_TILES):
                score += scaled(dot(q_state[i], tl.trans(state[i]), None, UPCAST), state_scale, i)
            if TAIL_SCALE != 0:
                score += scaled(dot(q_tail, tl.trans(tail[0]), None, UPCAST), tail_scale, 0)
            elif TAIL_W > 0:
                score = dot(q_tail, tl.trans(tail[0]), score, UPCAST)

        seen = at[None, :] <= last_seen[:, None] if QUERIES > 1 else held[None, :]
        if WINDOW > 0:
            seen = seen & (at[None, :] > last_seen[:, None] - WINDOW)
        score = tl.where(seen, score * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(score, 1))
        top = tl.where(m_new == float("-inf"), 0.0, m_new) if ROWS_DIFFER else m_new  # -inf - -inf is NaN
        rescale = tl.exp2(m - top)
        p = tl.exp2(score - top[:, None])
        total = total * rescale + tl.sum(p, 1)
        weighted = ()
        for i in tl.static_range(VALUE_TILES):
            weight = scaled(p, value_scale, i).to(DTYPE)
            weighted += (dot(weight, value[i], acc[i] * rescale[:, None], UPCAST),)
        acc = weighted
        m = m_new

    if ROWS_DIFFER:
        total = tl.where(total == 0.0, 1.0, total)  # a row that has seen nothing: acc is 0 and m is -inf
    out = ()
    for i in tl.static_range(VALUE_TILES):
        out += (acc[i] / total[:, None],)
    lse = m + tl.log2(total)
    # s // splits is 0, but not to the compiler: it would else place the rows of the output together with those of q and
    # hold their addresses in registers through the loop, and the widest tiles would spill.
    row = row_block * BLOCK_M + s // splits
    if length - first <= chunk:
        store(OUT, LSE, out, lse * LN2, b, kv_head, row, 1, 0, HEADS, GROUP, QUERIES, VALUE_AT, VALUE_W)
    else:
        store(PART_OUT, PART_LSE, out, lse, b, kv_head, row, splits, s, HEADS, GROUP, QUERIES, VALUE_AT, VALUE_W)
