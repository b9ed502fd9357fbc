"""Device code: merge the partial results of a row's splits."""

# ruff: noqa: ANN001, ANN201 - as in pieces.py

from typing import no_type_check

import triton
import triton.language as tl

from variants.backend.triton_split_kv.pieces import LN2, token_range


@triton.jit
@no_type_check
def merge(
    LENGTHS,  # [B]
    START,  # [B]
    OUT,  # [B, Q, H, V]
    LSE,  # [B, Q, H]
    PART_OUT,  # [B, Q, H, splits, V]
    PART_LSE,  # [B, Q, H, splits], in log2
    chunk,
    splits,
    HEADS: tl.constexpr,
    QUERIES: tl.constexpr,
    WINDOW: tl.constexpr,
    RING: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VALUE_W: tl.constexpr,
    BLOCK_R: tl.constexpr,  # rows of a sequence's Q x H
    BLOCK_S: tl.constexpr,  # splits fetched at once: one at a time would wait for memory once per split
    BLOCK_V: tl.constexpr,
):
    """The mean of the splits' outputs, weighted by exp of their log-sum-exp.

    It runs like the softmax of ``kernel.split``: a split in the place of a token, its log-sum-exp in that of a score.
    """
    b = tl.program_id(0)
    oldest, length = token_range(LENGTHS, START, b, QUERIES, WINDOW, RING)
    used = tl.cdiv(length - oldest // BLOCK_N * BLOCK_N, chunk)
    if used <= 1:
        return  # the split itself wrote the result
    of_sequence = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
    real = of_sequence < QUERIES * HEADS
    row = b.to(tl.int64) * (QUERIES * HEADS) + of_sequence
    col = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    wanted = (col < VALUE_W)[None, :]

    m = tl.full([BLOCK_R], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_R], tl.float32)
    acc = tl.zeros([BLOCK_R, BLOCK_V], tl.float32)
    for i in tl.range(0, used, BLOCK_S):
        s = i + tl.arange(0, BLOCK_S)
        live = real[:, None] & (s < used)[None, :]
        at = row[:, None] * splits + s[None, :]
        lse = tl.load(PART_LSE + at, mask=live, other=float("-inf"))
        part_at = at[:, :, None] * VALUE_W + col[None, None, :]
        part = tl.load(PART_OUT + part_at, mask=live[:, :, None] & wanted[:, None, :], other=0.0)
        m_new = tl.maximum(m, tl.max(lse, 1))
        top = tl.where(m_new == float("-inf"), 0.0, m_new)  # rows that are not real, queries that see nothing
        rescale = tl.exp2(m - top)
        weight = tl.exp2(lse - top[:, None])
        total = total * rescale + tl.sum(weight, 1)
        acc = acc * rescale[:, None] + tl.sum(weight[:, :, None] * part.to(tl.float32), 1)
        m = m_new
    total = tl.where(total == 0.0, 1.0, total)
    out = (acc / total[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT + row[:, None] * VALUE_W + col[None, :], out, mask=real[:, None] & wanted)
    if tl.program_id(2) == 0:
        tl.store(LSE + row, (m + tl.log2(total)) * LN2, mask=real)
