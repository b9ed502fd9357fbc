"""Wrong kernels: one piece of a module's text replaced; each with the case that must tell it from the right one."""

from dataclasses import dataclass, replace

from tests.backend.triton.cases import CONTIGUOUS, RING, Case, dense, latent, tied
from variants.contract.dtype import Dtype
from variants.contract.keep import Window

_F16, _BF16 = Dtype.F16, Dtype.BF16
DENSE = Case("dense", dense(3, 64, 64), _F16, 16, 3, (130, 0, 1, 2), 64)
PLAIN = Case("dense", dense(3, 64, 64), _F16, CONTIGUOUS, 1, (200, 0, 65), 128)
GTA = Case("gta", tied(3), _F16, 128, 1, (130, 0, 200), 64)
MLA = Case("mla", latent(3, 128), _F16, 64, 1, (130, 0, 200), 128)
WINDOWED = Case("window", dense(3, 64, 64, keep=Window(70)), _F16, CONTIGUOUS, 3, (300, 20), 128)
TURNING = Case("ring", dense(3, 64, 64, keep=Window(70)), _F16, RING, 1, (300, 20), 64)
CODED = Case("int8", dense(3, 64, 64), _BF16, 16, 1, (130, 0, 65), 128, codes=Dtype.INT8)
BLOCKS = Case("fp8", latent(3, 256), _BF16, 16, 1, (130, 0, 65), 128, codes=Dtype.FP8_E4M3)
CUT = Case("fp8 cut", dense(3, 192, 128), _BF16, 16, 1, (130, 0, 65), 128, codes=Dtype.FP8_E4M3)
EVERY = Case("every code", dense(3, 64, 64), _BF16, lengths=(130, 0), chunk=64, codes=Dtype.FP8_E4M3, every_code=True)
MANY = Case("many splits", dense(8, 64, 64), _F16, CONTIGUOUS, 1, (1300, 70), 64)


@dataclass(frozen=True)
class Mutant:
    """``old`` must be in the module's text exactly once."""

    name: str
    module: str
    old: str
    new: str
    witness: Case


MUTANTS = (
    Mutant("output is not rescaled", "kernel", "acc[i] * rescale[:, None], UPCAST", "acc[i], UPCAST", PLAIN),
    Mutant("sum is not rescaled", "kernel", "total * rescale + tl.sum(p", "total + tl.sum(p", PLAIN),
    Mutant("mask removed", "kernel", 'tl.where(seen, score * scale_log2, float("-inf"))', "score * scale_log2", PLAIN),
    Mutant("causal mask removed", "kernel", "at[None, :] <= last_seen[:, None] if", "held[None, :] if", DENSE),
    Mutant("window off by one", "kernel", "last_seen[:, None] - WINDOW", "last_seen[:, None] - WINDOW - 1", WINDOWED),
    Mutant("split runs on to the end", "kernel", "hi = tl.minimum(lo + chunk, length)", "hi = length", PLAIN),
    Mutant(
        "poison is loaded",
        "pieces",
        "col[None, :], mask=here",
        "col[None, :], mask=col[None, :] >= 0",
        MLA,
    ),
    Mutant("page of the key dropped", "kernel", "page * state_p + ", "", DENSE),
    Mutant("page of the value dropped", "kernel", "page * value_p + ", "", DENSE),
    Mutant("page of the tail dropped", "kernel", "page * tail_p + ", "", GTA),
    Mutant("page is not carried on", "kernel", "tl.minimum(n + BLOCK_N, length - 1)", "tl.minimum(n, length - 1)", MLA),
    Mutant("pages are not carried on", "kernel", "(at + BLOCK_N) // PAGE", "at // PAGE", replace(DENSE, chunk=192)),
    Mutant("slot within the page dropped", "kernel", "slot = n % PAGE + token", "slot = token", GTA),
    Mutant("ring does not turn", "kernel", "at % RING if", "tl.minimum(at, RING - 1) if", TURNING),
    Mutant(
        "heads mixed with queries",
        "kernel",
        "* GROUP + row // QUERIES\n    last",
        "* GROUP + row % GROUP\n    last",
        DENSE,
    ),
    Mutant("rows that see nothing", "kernel", "if ROWS_DIFFER else m_new", "if False else m_new", DENSE),
    Mutant("empty sequences are not written", "kernel", "if s == 0:", "if s == -1:", PLAIN),
    Mutant(
        "tail of the key dropped", "kernel", "score = dot(q_tail, tl.trans(tail[0]), score, UPCAST)", "score += 0", MLA
    ),
    Mutant("q not zero beyond the key", "kernel", "(state_col < KEY_AT + KEY_W)", "(state_col < STATE_W)", GTA),
    Mutant("log-sum-exp left in log2", "kernel", "out, lse * LN2, b", "out, lse, b", PLAIN),
    Mutant("merge weights dropped", "merge", "weight[:, :, None] * part", "part", PLAIN),
    Mutant(
        "merge is not rescaled",
        "merge",
        "acc * rescale[:, None] + tl.sum",
        "acc + tl.sum",
        MANY,
    ),
    Mutant("one head is not broadcast", "launch", "head if tensor.shape[1] > 1 else 0", "tensor.shape[2] * slot", GTA),
    Mutant("scale dropped", "launch", "geometry.scale * ", "", PLAIN),
    Mutant("scales of codes dropped", "pieces", "if len(scales) else x", "if False else x", CODED),
    Mutant("scales of values dropped", "kernel", "scaled(p, value_scale, i)", "p", CODED),
    Mutant("scale of the tail dropped", "kernel", "TAIL_SCALE != 0:", "TAIL_SCALE < 0:", CUT),
    Mutant(
        "poisoned scales are loaded",
        "pieces",
        "tl.load(first + i, mask=held,",
        "tl.load(first + i, mask=held | True,",
        CODED,
    ),
    Mutant("first scale for all blocks", "pieces", "tl.load(first + i,", "tl.load(first,", BLOCKS),
    Mutant(
        "value blocks take the first scale", "kernel", "scaled(p, value_scale, i)", "scaled(p, value_scale, 0)", BLOCKS
    ),
    Mutant("scales from the row's first block on", "codes", "Dtype.F32.bytes(first)", "0", CUT),
    Mutant("scales of another span", "codes", "scales - codes)", "scales)", CODED),
    Mutant("subnormal codes are zero", "pieces", "(bits & 0x7F) << 20)", "(bits & 0x78) << 20)", EVERY),
    Mutant("sign of codes dropped", "pieces", "((bits & 0x80) << 24) | ", "", EVERY),
    Mutant(
        "codes of the later blocks dropped",
        "kernel",
        "tl.static_range(1, STATE_TILES)",
        "tl.static_range(1, 1)",
        BLOCKS,
    ),
)
