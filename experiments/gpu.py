"""Everything that needs a CUDA GPU, in minutes: ``python -m experiments.gpu --out results --sections env,oracle``.

Needs torch, numpy, einops, jaxtyping and psutil; no network, no Hydra, no pandas.
"""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from experiments.plain import UNCLEAN, Parser, leave

NEEDED = ("torch", "numpy", "einops", "jaxtyping", "psutil")


def gpu(arguments: Sequence[str]) -> int:
    """Run the sections asked for; 0 all rows clean and all targets met, 3 one is not.

    Raises ValueError for anything the user can mend, a machine without a GPU included.
    """
    asked = _parse(arguments)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"this Python has no {', '.join(missing)}; take one that has, or run `make setup`")
    import torch

    from experiments.gpu_sections.journal import BUNDLE, LOG, Journal
    from experiments.gpu_sections.rig import Rig
    from experiments.gpu_sections.runner import run, select
    from experiments.measuring.device import find_device

    names = select(asked.sections)
    device = find_device("cuda")
    if device is None:
        raise ValueError(f"this machine has no CUDA GPU that torch {torch.__version__} can use")
    journal = Journal(asked.out, device.commit, names)
    with torch.no_grad():
        run(Rig(device), names, journal)
    print(f"{len(journal.rows)} rows in {asked.out / BUNDLE} and {asked.out / LOG}")
    return 0 if journal.clean else UNCLEAN


def main() -> NoReturn:
    """Entry point."""
    leave(gpu)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("python -m experiments.gpu", description="What needs a CUDA GPU; exit code 3: something is amiss.")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the bundle and the log")
    parser.add_argument("--sections", help="comma-separated names; the rest of an earlier bundle there is kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
