"""Wrong kernels: one piece of a module's text replaced; each with the case that must tell it from the right one."""

from dataclasses import dataclass, replace

from tests.backend.triton.cases import CONTIGUOUS, RING, Case, dense, latent, tied
from variants.contract.layout import Dtype, Window

_F16 = Dtype.F16
DENSE = Case("dense", dense(3, 64, 64), _F16, 16, 3, (130, 0, 1, 2), 64)
PLAIN = Case("dense", dense(3, 64, 64), _F16, CONTIGUOUS, 1, (200, 0, 65), 128)
GTA = Case("gta", tied(3), _F16, 128, 1, (130, 0, 200), 64)
MLA = Case("mla", latent(3, 128), _F16, 64, 1, (130, 0, 200), 128)
WINDOWED = Case("window", dense(3, 64, 64, keep=Window(70)), _F16, CONTIGUOUS, 3, (300, 20), 128)
TURNING = Case("ring", dense(3, 64, 64, keep=Window(70)), _F16, RING, 1, (300, 20), 64)
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
    Mutant("output is not rescaled", "kernel", "acc * rescale[:, None], UPCAST", "acc, UPCAST", PLAIN),
    Mutant("sum is not rescaled", "kernel", "total * rescale + tl.sum(p", "total + tl.sum(p", PLAIN),
    Mutant("mask removed", "kernel", 'tl.where(seen, score * scale_log2, float("-inf"))', "score * scale_log2", PLAIN),
    Mutant("causal mask removed", "kernel", "at[None, :] <= last_seen[:, None] if", "held[None, :] if", DENSE),
    Mutant("window off by one", "kernel", "last_seen[:, None] - WINDOW", "last_seen[:, None] - WINDOW - 1", WINDOWED),
    Mutant("split runs on to the end", "kernel", "hi = tl.minimum(lo + chunk, length)", "hi = length", PLAIN),
    Mutant(
        "poison is loaded",
        "kernel",
        "state_col[None, :], mask=here",
        "state_col[None, :], mask=at[:, None] >= 0",
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
        "tail of the key dropped", "kernel", "score = dot(q_tail, tl.trans(tail), score, UPCAST)", "score += 0", MLA
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
)
