"""All measurements as one table: ``python -m experiments.collect runs=results/runs out=results/records.parquet``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from experiments.pairs import PAIRS_HELP, listed, parse_pairs
from experiments.plain import leave
from experiments.record import STATUSES
from experiments.terminal import say

if TYPE_CHECKING:
    from experiments.telling.collecting.collected import Collected

RUNS, OUT, SUFFIX = "results/runs", "results/records.parquet", ".parquet"
HELP = f"""The records of many runs as one table: a Parquet file for programs, the same rows as a CSV file for people.

python -m experiments.collect
python -m experiments.collect runs='[results/runs/monday,results/runs/tuesday]' out=results/week.parquet

  runs={RUNS}            folders with records.jsonl files below them, at any depth, or such files
  out={OUT}  the Parquet file; the CSV file lies beside it under the same name

Of rows with one key, from one machine, the newest is kept. Lines that are no records are skipped with a warning.
Both files are replaced whole or stay as they were. Exit code: 0, or 2 for bad input.

{PAIRS_HELP}"""


def collect(arguments: Sequence[str]) -> int:
    """Write both files and say what is in them; 0 on success.

    Raises ValueError or OSError for what the user can mend.
    """
    if {"--help", "-h"} & set(arguments):
        print(HELP)
        return 0
    values = parse_pairs(arguments, ("runs", "out"))
    runs = [Path(run) for run in _places(values.get("runs", RUNS))]
    out = Path(values.get("out", OUT))
    if out.suffix != SUFFIX:
        raise ValueError(f"out must end in {SUFFIX}; got {str(out)!r}")
    from experiments.telling.collecting import collected  # pyarrow is only needed from here on

    sheet = out.with_suffix(".csv")
    say(_closing(collected.collect(runs, out, sheet), out, sheet))
    return 0


def main() -> NoReturn:
    """Entry point."""
    leave(collect)


def _places(runs: str) -> list[str]:
    return [runs] if runs and Path(runs).exists() else listed("runs", runs)  # a path may have a comma in it


def _closing(told: "Collected", out: Path, sheet: Path) -> str:
    warnings = [f"warning: {w}" for w in told.warnings]
    if told.skipped > len(warnings):
        warnings.append(f"warning: {told.skipped - len(warnings)} more lines skipped")
    statuses = ", ".join(f"{told.statuses[status]} {status}" for status in STATUSES if told.statuses[status])
    return "\n".join(
        [
            *warnings,
            f"{told.kept} rows of {told.files} files: {statuses}",
            f"{told.superseded} older rows superseded by a newer row of the same key and machine",
            f"written: {out}",
            f"written: {sheet}",
        ]
    )


if __name__ == "__main__":
    main()
