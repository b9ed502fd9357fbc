"""Compare our kernels with torch and transformers: ``python -m experiments.bench``, or ``--only 'attend/*'``."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from experiments.plain import UNCLEAN, Parser, leave
from variants.contract.checks import check_count

THREADS = 2
OUT = Path("results", "bench.json")


def bench(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; 0 all targets met, 3 one is missed, 130 interrupted (nothing is written).

    Raises ValueError for anything the user can mend.
    """
    asked = _parse(arguments)
    # torch takes a second to import, and `--help` is not to wait for it
    from experiments.benching.compare import compare
    from experiments.benching.ledger import Ledger, heading, write
    from experiments.benching.points import all_points, select
    from experiments.benching.sizes import SMOKE, Sizes
    from experiments.measuring.bench import Bench
    from experiments.measuring.device import find_device
    from experiments.measuring.timing import fixed_threads, make_timer
    from variants.contract.tokens import parse_tokens

    sizes = SMOKE if asked.smoke else replace(Sizes(), context=parse_tokens(asked.context, "--context"))
    points = select(all_points(sizes), asked.only)
    if any(point.section == "step" for point in points) and find_spec("transformers") is None:
        raise ValueError("steps are compared with transformers, which is not installed: use --only 'attend/*,growth/*'")
    device, ledger = find_device("cpu"), Ledger()
    assert device is not None  # there is always a CPU
    print(heading(), flush=True)
    with fixed_threads(asked.threads) as threads:
        shared = Bench(device, make_timer("wall", device.kind, device.synchronize), threads)
        compare(points, sizes, shared, ledger)
        content = ledger.as_json(shared, sizes, threads, shlex.join(["python", "-m", "experiments.bench", *arguments]))
    if asked.out:
        write(asked.out, content)
    return 0 if ledger.all_ok else UNCLEAN


def main() -> NoReturn:
    """Entry point."""
    leave(bench)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("python -m experiments.bench", description="Speed to reach, on this CPU; exit code 3: not reached.")
    parser.add_argument("--only", help="comma-separated patterns of points, e.g. 'attend/*/bf16/*,step/mla/*'")
    parser.add_argument("--context", default="16k", help="cached tokens of the attend section, e.g. 32k")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--out", type=Path, help=f"the file to write (default: {OUT}; with --smoke: none)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that everything runs")
    asked = parser.parse_args(arguments)
    check_count("--threads", asked.threads)
    if asked.out is None and not asked.smoke:
        asked.out = OUT
    return asked


if __name__ == "__main__":
    main()
