"""Compare two result sets: ``python -m experiments.compare a=results/runs/before b=results/runs/after``.

Exit code 0: no regression; 1: at some point b is slower than a by more than the threshold, and significantly; 2: bad
input, also when nothing can be compared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.door import Composed, open_door

if TYPE_CHECKING:
    from experiments.telling.comparing.result import Question

REGRESSED = 1
EXAMPLE = "a=results/runs/before b=results/runs/after"


def compare(configs: Sequence[Composed]) -> int:
    """Print what each config asks for; 1 if any of them found a regression, else 0.

    Raises ValueError or OSError for anything the user can mend.
    """
    return max((_compare(config.values) for config in configs), default=0)


def main() -> None:
    """Console entry point."""
    open_door("compare", compare)


def _compare(values: Mapping[str, Any]) -> int:
    question = _question(values)
    # pandas is only needed from here on, and `--help` is not to wait for it
    from experiments.telling.comparing.result import answer
    from experiments.telling.comparing.said import say as words
    from experiments.telling.comparing.sheet import write
    from experiments.terminal import say, show

    result = answer(question)
    said = words(result)
    if values["out"] is not None:
        write(result, Path(str(values["out"])))
    say("\n".join([*said.above, ""]))
    show(said.table.header, said.table.rows, said.table.moods)
    say("\n".join(["", *said.below, *([f"all points: {values['out']}"] if values["out"] is not None else [])]))
    return REGRESSED if result.regressions else 0


def _question(values: Mapping[str, Any]) -> "Question":
    for side in ("a", "b"):
        if values[side] is None:
            raise ValueError(f"{side} must name a folder with records below it, e.g. {EXAMPLE}; got nothing")
    from experiments.telling.comparing.result import Question

    across = values["across"] or ()
    groups = across.split(",") if isinstance(across, str) else across
    return Question(
        a=Path(str(values["a"])),
        b=Path(str(values["b"])),
        threshold=values["threshold"],
        confidence=values["confidence"],
        match=values["match"],
        across=tuple(str(group).strip() for group in groups),
    )


if __name__ == "__main__":
    main()
