"""Which tile serves a shape on which GPU, and how many tokens a split takes. Plain Python: no device is asked.

The tables come from compiling candidates ahead of time, without a GPU: what is listed spills no register and fits the
card's shared memory with its loads in full flight; tests/backend/test_triton_split_kv.py compiles it all again. Among
those the choice follows published kernels, not measurements of ours.
"""

import math
from dataclasses import dataclass, replace

from variants.contract.dtype import Dtype

ROWS = (16, 32, 64)  # of one program: 16 are one matrix instruction, 64 one of a Hopper warp group
LARGEST = 512  # columns: what the registers of one program hold of the output

MOST_SPLITS = 128  # per sequence, unless LONGEST asks for more
SHORTEST = 128  # tokens: the partial results of a split (4 x H x V bytes, written and read) must not outweigh it
LONGEST = 8192  # tokens: else the longest sequence of a ragged batch would finish long after the others
BALANCED = 0.9  # of the best use of the processors is enough: more splits cost more partial results


@dataclass(frozen=True)
class Tile:
    """What one program holds: ``rows`` of q (group x Q) and ``tokens`` at a time, ``stages`` - 1 such tiles in flight.

    ``registers`` per thread are given where the assembler would spill to leave some for a second program on the
    processor, which shared memory has no room for. ``guarded`` hides the scores' product from the one that follows: on
    sm_90 the compiler then shares it out over both warp groups instead of giving all of it to each, for more registers.
    ``once`` hides codes' decoding from their products, for whose operands in registers the compiler would else decode a
    tile that is key and value twice, and not load it ahead.
    """

    rows: int
    tokens: int
    warps: int
    stages: int
    registers: int | None = None
    guarded: bool = False
    once: bool = False

    @property
    def name(self) -> str:
        """For the record: rows x tokens, warps, stages."""
        return f"{self.rows}x{self.tokens} w{self.warps} s{self.stages}" + (" guarded" if self.guarded else "")


@dataclass(frozen=True)
class Family:
    """GPUs that share a table: rows -> a tile of up to 128, 256 and 512 columns, for elements of two bytes.

    ``gathered`` replaces tiles that spill where their tokens lie in several pages, which takes a page id per token;
    ``guarded`` lists guarded forms, ``coded`` what replaces a row of ``tiles`` where the cache holds codes. From
    ``shared_operands`` rows on, products take keys and values from shared memory, not from registers.
    """

    shared_memory: int  # bytes one program may have
    tiles: dict[int, tuple[Tile | None, Tile | None, Tile | None]]
    gathered: dict[Tile, Tile]
    guarded: dict[Tile, Tile]
    coded: dict[int, tuple[Tile | None, Tile | None, Tile | None]]
    shared_operands: int | None


def _rows(rows: int, *tiles: tuple[int, int, int] | None) -> tuple[Tile | None, Tile | None, Tile | None]:
    """(tokens, warps, stages) of up to 128, 256 and 512 columns."""
    narrow, wide, widest = (None if numbers is None else Tile(rows, *numbers) for numbers in tiles)
    return narrow, wide, widest


_HOPPER_64 = Tile(64, 64, 8, 2)
_HOPPER_64_SHORT = Tile(64, 32, 8, 3)
FAMILIES = {
    80: Family(  # A100: mma.sync
        166_912,
        {
            16: _rows(16, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            32: _rows(32, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            64: _rows(64, (64, 8, 3), (32, 8, 3), (32, 8, 3)),
        },
        {},
        {},
        {64: _rows(64, (64, 8, 3), (32, 8, 3), None)},
        None,
    ),
    86: Family(  # consumer cards (8.6, 8.9, 12.x): less shared memory
        101_376,
        {
            16: _rows(16, (64, 4, 2), (32, 4, 2), (64, 8, 2)),
            32: _rows(32, (64, 4, 2), (32, 4, 2), (32, 8, 2)),
            64: _rows(64, (64, 8, 2), (32, 8, 2), None),
        },
        {},
        {},
        {16: _rows(16, (64, 4, 2), (32, 4, 2), (32, 8, 2))},
        None,
    ),
    90: Family(  # H100, H200: wgmma from 64 rows on
        232_448,
        {
            16: _rows(16, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            32: _rows(32, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            64: _rows(64, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
        },
        {_HOPPER_64: _HOPPER_64_SHORT},
        {_HOPPER_64: Tile(64, 32, 8, 3, guarded=True)},
        {64: _rows(64, (64, 4, 3), (32, 4, 3), (32, 8, 3))},
        64,
    ),
    100: Family(  # B200: tcgen05 from 64 rows on, which keeps products in tensor memory
        232_448,
        {
            16: _rows(16, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            32: _rows(32, (64, 4, 3), (32, 4, 3), (64, 8, 2)),
            64: (Tile(64, 64, 4, 3), Tile(64, 32, 8, 3, registers=255), Tile(64, 32, 8, 2)),
        },
        {},
        {},
        {64: (Tile(64, 64, 4, 3), Tile(64, 32, 8, 3, registers=255), None)},
        64,
    ),
}
# Columns of state, tail and value together that a tile was compiled for: 192/128, 256/256 + 64, 512 + 64.
_CLASSES = ((128, 320), (256, 576), (512, 576))
# Products of float32 are made of three of tf32, whose operands fill the registers: few rows, and no 512 columns.
_FLOAT32 = _rows(16, (32, 4, 2), (16, 8, 3), None)


def family(capability: tuple[int, int]) -> int | None:
    """The table for a compute capability; None below 8.0."""
    major, minor = capability
    if major < 8:
        return None
    if major == 8:
        return 80 if minor in (0, 7) else 86
    return {9: 90, 10: 100}.get(major, 86)  # a newer one gets the tiles that fit anywhere


def choose(
    cards: int,
    rows: int,
    widest: int,
    loaded: int,
    dtype: Dtype,
    page: int = 0,
    guarded: bool = False,
    coded: bool = False,
) -> Tile | None:
    """The tile of a family for ``rows`` = group x Q rows; None if there is none.

    ``widest`` is the wider of the state's and the value's columns, ``loaded`` all that are loaded per token; ``page``
    the page size, 0 if there are no pages; ``coded`` if the cache holds codes. A group of more rows than the tile has
    takes several programs.
    """
    table = FAMILIES[cards]
    fit = [i for i, (columns, total) in enumerate(_CLASSES) if widest <= columns and loaded <= total]
    if not fit:
        return None
    if dtype is Dtype.F32:
        single = _FLOAT32[fit[0]]
        return replace(single, once=coded) if single else None
    enough = next((r for r in ROWS if r >= rows), ROWS[-1])
    listed = table.tiles | table.coded if coded else table.tiles
    tiles = (listed[r][fit[0]] for r in reversed(ROWS) if r <= enough)
    tile = next(t for t in tiles if t is not None)
    if coded:
        return replace(tile, once=table.shared_operands is None or tile.rows < table.shared_operands)
    if guarded and tile in table.guarded:
        return table.guarded[tile]
    return table.gathered.get(tile, tile) if page % tile.tokens else tile


def tokens_per_split(tokens: int, programs: int, processors: int, step: int) -> int:
    """Tokens of one split, a multiple of ``step``: the fewest splits that keep the processors evenly busy.

    ``tokens`` is the most a sequence may hold and ``programs`` what one split of the whole batch starts. What the batch
    holds at a moment plays no part: no result changes with a neighbour's length, and a CUDA graph stays valid.
    """
    most = min(MOST_SPLITS, ceil_div(tokens, max(step, SHORTEST)))
    chunks = sorted({ceil_div(ceil_div(tokens, n), step) * step for n in range(1, most + 1)}, reverse=True)
    use = [_evenness(ceil_div(tokens, chunk) * programs, processors) for chunk in chunks]
    chosen = next(chunk for chunk, u in zip(chunks, use, strict=True) if u >= BALANCED * max(use))
    return min(chosen, max(1, LONGEST // step) * step)


def merged_rows(programs: int, processors: int) -> int:
    """Rows that one program merges, 1 to 8: few where there is little to merge, else a program would hardly start.

    ``programs`` is how many there would be with one row each.
    """
    return 1 << min(3, max(0, (programs // (8 * processors)).bit_length() - 1))


def _evenness(programs: int, processors: int) -> float:
    """Share of the processors' time that is used when each takes one program after another."""
    return programs / processors / math.ceil(programs / processors)


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
