"""What this machine can measure, with what, and why not: ``python -m experiments.doctor``.

Exit code 0: something can be measured, whatever the notes and problems; 3: nothing can (no torch, no backend, no
memory, nowhere to write), or, with ``strict=true``, anything is a problem; 2: bad input.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.door import Composed, open_door

if TYPE_CHECKING:
    from experiments.checkup.check import Check
    from experiments.checkup.examine import Readings

UNFIT = 3
HEADER = ("", "check", "seen", "what to do")
MOODS = {"ok": "plain", "note": "warn", "problem": "bad"}


def doctor(configs: Sequence[Composed]) -> int:
    """Examine this machine as each config asks; 3 if one of them finds it unfit, else 0. ValueError for bad options."""
    return max((_doctor(config.values) for config in configs), default=0)


def main() -> None:
    """Console entry point."""
    open_door("doctor", doctor)


def _doctor(values: Mapping[str, Any]) -> int:
    for name in ("json", "strict"):
        if not isinstance(values[name], bool):
            raise ValueError(f"{name} must be true or false; got {values[name]!r}")
    if not isinstance(values["results"], str) or not values["results"]:
        raise ValueError(f"results must name a folder, e.g. results=results; got {values['results']!r}")
    from experiments.checkup.reading.machine import read  # torch: not needed for --help

    return tell(read(Path(values["results"])), values["json"], values["strict"])


def tell(seen: "Readings", as_json: bool, strict: bool) -> int:
    """Judge and print what was read; the exit code."""
    from experiments.checkup.examine import abilities, judge, tally
    from experiments.terminal import say, show

    checks = judge(seen)
    if as_json:
        say(_json(seen, checks))
    else:
        rows = [(check.verdict, check.name, check.numbers, check.advice) for check in checks]
        show(HEADER, rows, [MOODS[check.verdict] for check in checks])
        say("\n".join(["", "can measure on", *(f"  {line}" for line in abilities(seen)), "", tally(checks)]))
    unfit = any(check.stops or (strict and check.verdict == "problem") for check in checks)
    return UNFIT if unfit else 0


def _json(seen: "Readings", checks: Sequence["Check"]) -> str:
    from experiments.checkup.examine import abilities

    content = {"checks": [asdict(check) for check in checks], "abilities": abilities(seen), "readings": asdict(seen)}
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


if __name__ == "__main__":
    main()
