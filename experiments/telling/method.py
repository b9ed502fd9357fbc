"""How the rows of a report came about: samples and rounds of measured ones, errors of predicted ones."""

from typing import Any

import pandas as pd

from experiments.telling.doubt import Doubts, doubt_of
from experiments.telling.frame import distinct, plain
from experiments.telling.options import span
from experiments.telling.words import percent


def method(table: pd.DataFrame, doubts: Doubts) -> dict[str, Any]:
    """How rows came about; what concerns samples is said of measured rows alone."""
    rows = table[table["origin"] == "measured"]
    return {
        "predicted": len(rows) < len(table),
        "prefill": bool(((table["origin"] == "predicted") & (table["scope"] == "prefill")).any()),
        "doubts": _doubts(table[table["origin"] == "predicted"], doubts),
        "measured": len(rows) > 0,
        "samples": span(distinct(plain(rows["samples"]))),
        "rounds": span(distinct(plain(rows["rounds"]))),
        "temperatures": distinct(plain(rows["temperature"])),
        "reuse": span([f"{bytes_:,}" for bytes_ in distinct(plain(rows["reuse_bytes"]))]),
        "kernels": ", ".join(distinct(plain(rows["kernel"]))) or "not named",
    }


def _doubts(predicted: pd.DataFrame, doubts: Doubts) -> list[str]:
    """How far each kind of kernel's times were off, of the devices and kernels that the rows name."""
    kinds = sorted(
        {pair for pair in zip(plain(predicted["device"]), plain(predicted["kernel"]), strict=True) if all(pair)}
    )
    found = [(device, kernel, doubt_of(doubts, device, kernel)) for device, kernel in kinds]
    return [
        f"{device}, {kernel}: {percent(doubt.median)} by the median, {percent(doubt.p90)} for nine of ten, of shapes "
        f"with {doubt.rows[0]} to {doubt.rows[1]} query heads per cached head."
        for device, kernel, doubt in found
        if doubt
    ]
