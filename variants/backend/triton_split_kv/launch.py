"""Host side of planning: workspace, and every argument of the kernels but q."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from variants.backend.triton_split_kv.codes import Columns
from variants.backend.triton_split_kv.decode import Decode, Launch
from variants.backend.triton_split_kv.kernel import split
from variants.backend.triton_split_kv.merge import merge
from variants.backend.triton_split_kv.reading import Reading, block
from variants.backend.triton_split_kv.tiles import Tile, ceil_div, merged_rows
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.view import CacheView

MERGED_COLUMNS = 128  # of one program: a wide output is spread over several


@dataclass(frozen=True)
class Problem:
    """What the kernels are sized by, apart from widths and the tile."""

    batch: int
    queries: int
    page: int  # slots per page; 0: page b is sequence b
    window: int  # 0: none
    ring: int  # slots used in a circle; 0: none
    tokens: int  # at most read of one sequence

    @staticmethod
    def of(geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int) -> "Problem":
        """What a view says; where streams keep windows, a query sees what all of them keep."""
        slots = view.slabs[0].shape[2]
        keeps = [view.layout.stream(name).keep for name in geometry.streams]
        window = min((keep.size for keep in keeps if isinstance(keep, Window)), default=0)
        return Problem(
            batch=len(view.lengths),
            queries=queries,
            page=0 if view.block_table is None else slots,
            window=window,
            ring=0 if view.start is None else slots,
            tokens=max(1, min(max_length, window + queries - 1) if window else max_length),
        )

    def splits(self, tile: Tile, chunk: int) -> int:
        """Room for partial results; a window starts anywhere in its first tile, which may take one tile more."""
        return ceil_div(self.tokens + (tile.tokens - 1 if self.window else 0), chunk)


@dataclass(frozen=True)
class _Outputs:
    """What the kernels write. The partial results of a problem of one split are never touched."""

    o: Tensor  # [B, Q, H, V]
    lse: Tensor  # [B, Q, H]
    part_o: Tensor  # [B, Q, H, splits, V]
    part_lse: Tensor  # [B, Q, H, splits]

    @staticmethod
    def allocate(
        rows: tuple[int, int, int],
        width: int,
        splits: int,
        dtype: torch.dtype,
        partials: torch.dtype,
        device: torch.device,
    ) -> "_Outputs":
        """Uninitialised; log-sum-exps are float32."""
        o = torch.empty(*rows, width, dtype=dtype, device=device)
        lse = torch.empty(rows, dtype=torch.float32, device=device)
        if splits == 1:
            return _Outputs(o, lse, o, lse)
        part_o = torch.empty(*rows, splits, width, dtype=partials, device=device)
        return _Outputs(o, lse, part_o, torch.empty(*rows, splits, dtype=torch.float32, device=device))


def prepare(
    geometry: AttentionGeometry,
    view: CacheView,
    how: Reading,
    problem: Problem,
    tile: Tile,
    chunk: int,
    dtype: torch.dtype,
    partials: torch.dtype,
    processors: int,
) -> Decode:
    """Allocate what the kernels write and bind their arguments; ``chunk`` is a multiple of ``tile.tokens``.

    ``dtype`` is the queries' and the output's.
    """
    rows, width = (problem.batch, problem.queries, geometry.num_q_heads), how.output.width
    splits = problem.splits(tile, chunk)
    outputs = _Outputs.allocate(rows, width, splits, dtype, partials, view.lengths.device)
    tensors = (
        view.lengths,
        view.lengths if view.start is None else view.start,
        *(outputs.o, outputs.lse, outputs.part_o, outputs.part_lse),
    )
    common = {
        "HEADS": geometry.num_q_heads,
        "QUERIES": problem.queries,
        "WINDOW": problem.window,
        "RING": problem.ring,
        "BLOCK_N": tile.tokens,
        "VALUE_W": width,
    }
    interpreted_bf16 = outputs.o.is_cpu and dtype is torch.bfloat16
    first = _split(
        geometry, view, how, problem, tile, splits, (*tensors, chunk, splits), {**common, "UPCAST": interpreted_bf16}
    )
    second = _merge(rows, width, processors, (*tensors, chunk, splits), common)
    name = f"triton_split_kv:{tile.name} chunk{chunk}"
    return Decode(name, (*rows, geometry.d_qk), outputs.o, outputs.lse, first, second if splits > 1 else None)


def _split(
    geometry: AttentionGeometry,
    view: CacheView,
    how: Reading,
    problem: Problem,
    tile: Tile,
    splits: int,
    shared: tuple[Any, ...],
    common: dict[str, Any],
) -> Launch:
    operands = [_Operand.of(view, span or how.state) for span in (how.state, how.tail, how.value)]
    state, tail, value = operands
    table = view.lengths if view.block_table is None else view.block_table
    row_blocks = ceil_div(geometry.group_size * problem.queries, tile.rows)
    return Launch(
        split,
        (geometry.num_kv_heads * row_blocks, splits, problem.batch),
        (
            *(x.tensor for x in operands),
            *(stride for x in operands for stride in (x.page, x.head)),
            *(table, table.stride(0)),
            geometry.scale * math.log2(math.e),
            *shared,
        ),
        {
            **common,
            "GROUP": geometry.group_size,
            "STATE_W": how.state.width,
            "STATE_BLOCK": state.columns.block,
            "STATE_TILES": state.columns.tiles,
            "STATE_SCALE": state.columns.scale,
            "STATE_S": state.slot,
            "KEY_AT": how.key_at,
            "KEY_W": how.key.width,
            "TAIL_W": how.tail.width if how.tail else 0,
            "TAIL_BLOCK": tail.columns.block,
            "TAIL_SCALE": tail.columns.scale if how.tail else 0,
            "TAIL_S": tail.slot,
            "TIED": how.value is None,
            "VALUE_AT": how.value_at,
            "VALUE_BLOCK": value.columns.block,
            "VALUE_TILES": value.columns.tiles,
            "VALUE_SCALE": value.columns.scale,
            "VALUE_S": value.slot,
            "Q_STATE": how.q_state,
            "Q_TAIL": how.q_tail,
            "PAGE": problem.page,
            "BLOCK_M": tile.rows,
            "STAGES": tile.stages,
            "GUARDED": tile.guarded,
            "ONCE": tile.once,
            "num_warps": tile.warps,
            **({} if tile.registers is None else {"maxnreg": tile.registers}),
        },
    )


def _merge(
    rows: tuple[int, int, int], width: int, processors: int, shared: tuple[Any, ...], common: dict[str, Any]
) -> Launch:
    columns = min(block(width), MERGED_COLUMNS)
    across = ceil_div(width, columns)
    at_once = merged_rows(math.prod(rows) * across, processors)
    grid = rows[0], ceil_div(rows[1] * rows[2], at_once), across
    sizes = {"BLOCK_R": at_once, "BLOCK_S": min(16, 32 // at_once), "BLOCK_V": columns, "num_warps": 4}
    return Launch(merge, grid, shared, {**common, **sizes})


@dataclass(frozen=True)
class _Operand:
    """A span's view [P, heads, S, W], its strides in elements over pages, heads and slots, and how a row is cut."""

    tensor: Tensor
    page: int
    head: int
    slot: int
    columns: Columns

    @staticmethod
    def of(view: CacheView, span: Span) -> "_Operand":
        """A stream of one head serves every kv head: stride 0. e4m3 codes are given as bytes."""
        tensor = view.span(span)
        if tensor.dtype is torch.float8_e4m3fn:
            tensor = tensor.view(torch.uint8)
        page, head, slot, _ = tensor.stride()
        return _Operand(tensor, page, head if tensor.shape[1] > 1 else 0, slot, Columns.of(view.layout, span))
