"""What a checkpoint is judged as: its own attention, and what its layers can be converted to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.measuring.checkpoint.conversion import name_of
from experiments.measuring.checkpoint.load import Checkpoint
from variants.attention.grouped.spec import GroupedSpec
from variants.contract.dtype import Dtype
from variants.convert import as_latent, with_kv_heads
from variants.convert.targets import rotary_columns
from variants.protocols import Spec

FORM = re.compile(r"mha|mqa|gqa-(?P<heads>\d+)|mla-(?P<rank>\d+)-(?P<rope>\d+)")
SHARES = (Fraction(2, 3), Fraction(1, 2), Fraction(1, 3))  # of the cached columns, that MLA is given


@dataclass(frozen=True)
class Candidate:
    """``attention`` is the field's word for it, ``label`` tells several of one word apart; one target per layer."""

    attention: str
    label: str
    targets: tuple[Spec, ...]

    def bytes_per_token(self, dtype: Dtype) -> Fraction:
        """Of one layer; the mean, where layers differ."""
        return sum((spec.layout(dtype).bytes_per_token for spec in self.targets), Fraction(0)) / len(self.targets)


def original(checkpoint: Checkpoint) -> Candidate:
    """The checkpoint as it is."""
    word = name_of(checkpoint.specs[0]).split(" (")[0]
    return Candidate(word, f"{word} (original)", checkpoint.specs)


def candidates(checkpoint: Checkpoint, names: Sequence[str] | None) -> list[Candidate]:
    """What ``names`` ask for (``mha``, ``mqa``, ``gqa-4``, ``mla-96-32``: kv heads, latent and rotary columns).

    None: all that suits the checkpoint. What it is already is left out. ValueError for what it cannot become.
    """
    asked = _suiting(checkpoint) if names is None else list(names)
    found = [_candidate(checkpoint, name) for name in dict.fromkeys(asked)]
    return [candidate for candidate in found if candidate.targets != checkpoint.specs]


def _candidate(checkpoint: Checkpoint, name: object) -> Candidate:
    form = FORM.fullmatch(name) if isinstance(name, str) else None
    if form is None or not isinstance(name, str):
        raise ValueError(f"variants must be mha, mqa, gqa-<kv heads> or mla-<latent>-<rotary columns>; got {name!r}")
    own = _grouped(checkpoint)
    if form["rank"]:
        rank, rope = int(form["rank"]), int(form["rope"])
        return Candidate("mla", f"mla ({rank} + {rope})", tuple(as_latent(spec, rank, rope) for spec in own))
    if form["heads"]:
        heads = int(form["heads"])
        return Candidate("gqa", f"gqa ({heads} heads)", tuple(with_kv_heads(spec, heads) for spec in own))
    return Candidate(name, name, tuple(with_kv_heads(s, s.num_q_heads if name == "mha" else 1) for s in own))


def _grouped(checkpoint: Checkpoint) -> list[GroupedSpec]:
    own = [spec for spec in checkpoint.specs if isinstance(spec, GroupedSpec)]
    if len(own) != len(checkpoint.specs):
        raise ValueError(
            "conversions start from grouped attention (mha, gqa, mqa); "
            f"the checkpoint has {name_of(checkpoint.specs[0])}"
        )
    return own


def _suiting(checkpoint: Checkpoint) -> list[str]:
    """MHA, MQA, each grouping in between, and MLA with shares of the original's columns, half a head of them rotary."""
    spec = _grouped(checkpoint)[0]
    heads, columns = spec.num_kv_heads, 2 * spec.num_kv_heads * spec.head_dim
    fewer = [f"gqa-{g}" for g in range(heads - 1, 1, -1) if heads % g == 0]
    named = ["mha", *fewer, "mqa"]
    if spec.qk_norm or spec.window is not None:
        return named
    rope = min(spec.head_dim // 2, rotary_columns(spec)) // 2 * 2
    ranks = [int(share * columns) - rope for share in SHARES]
    return [*named, *(f"mla-{rank}-{rope}" for rank in ranks if rank > 0)]
