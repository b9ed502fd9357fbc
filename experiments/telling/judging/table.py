"""The table of quality: one line per variant and state of training."""

from collections.abc import Sequence

from experiments.scored import Scored
from experiments.telling.judging.numbers import Judged, against
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, count, number, percent

HEADER = (
    "attention",
    "cache B/token/layer",
    "of the original's",
    "how",
    "steps per layer",
    "perplexity",
    "of the original's [95 %]",
    "KL, nats/token",
    "error of a layer",
    "loss, first to last",
)
HOW = {"original": "as it is", "repeat": "heads repeated", "mean_pool": "heads averaged", "low_rank": "low rank"}


def scores(found: Sequence[Judged], base: Scored) -> Table:
    """Every row, variants with most bytes first, a conversion before what it learnt."""
    return Table(HEADER, tuple(_line(row, base) for it in found for row in it.rows))


def ratio(row: Scored, base: Scored) -> str:
    """``1.031x [1.020, 1.043]``."""
    it = against(row, base)
    if row.key == base.key:
        return "1"
    interval = "" if it.interval is None else " [{:.4g}, {:.4g}]".format(*it.interval)
    return f"{it.ratio:.4g}x{interval}"


def _line(row: Scored, base: Scored) -> tuple[str, ...]:
    lossy = HOW[row.method] + (", exact" if row.exact and row.method != "original" else "")
    losses = (row.loss_first, row.loss_last)
    return (
        row.label,
        count(row.bytes_per_token),
        percent(row.bytes_per_token / base.bytes_per_token),
        lossy,
        str(row.steps) if row.steps or not row.exact else NOTHING,
        number(row.perplexity),
        ratio(row, base),
        f"{row.divergence:.4f}",
        NOTHING if row.layer_error is None or row.steps else percent(row.layer_error),
        NOTHING if None in losses else " to ".join(number(loss, 3) for loss in losses),
    )
