"""What the planner would have said of rows that were measured: their device's profile, their own bytes and FLOPs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.planning.configs import profiles, yamls
from experiments.planning.profile import DeviceProfile
from experiments.planning.scope import SCOPES, tell
from variants.contract.cost import Point
from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
from variants.contract.plugin import find

Row = Mapping[str, Any]
GIVEN = ("form", "window", "num_kv_heads")  # what a row says of its variant beside its name


def foreteller(conf: Path) -> Callable[[Sequence[Row]], dict[str, float]]:
    """Tells us by key for those rows whose device has a profile of that name in ``conf/device``.

    A row is left out where the planner counts other bytes or FLOPs than it holds: then it would predict another thing.
    """

    def foretold(rows: Sequence[Row]) -> dict[str, float]:
        known = {it.name: it for it in profiles(conf / "device").values()}
        asked = [row for row in rows if row["device"] in known and row["scope"] in SCOPES and row["temperature"]]
        models = {raw["name"]: raw for raw in yamls(conf / "model").values()} if asked else {}
        variants = yamls(conf / "attention") if asked else {}
        told = {row["key"]: _us(known[row["device"]], row, models, variants) for row in asked}
        return {key: us for key, us in told.items() if us is not None}

    return foretold


def _us(profile: DeviceProfile, row: Row, models: Mapping[str, Any], variants: Mapping[str, Any]) -> float | None:
    if row["model"] not in models or row["attention"] not in variants:
        return None
    options = dict(variants[row["attention"]])
    kind = find("attention", options.pop("kind"))
    options |= {name: row[name] for name in GIVEN if name in options and row[name] is not None and row["tp"] == 1}
    try:
        spec = kind.from_model(ModelShape.parse(models[row["model"]]), **options).shard(row["tp"])
        point = Point(row["batch"], row["context"], row["queries"], Dtype.parse(row["dtype"]))
        told = tell(profile, spec, Dtype.parse(row["kv_dtype"]), point, row["scope"], row["temperature"])
    except ValueError:  # a split that cannot be, a dtype without a rate
        return None
    same = (told.work.io_bytes, told.work.flops) == (row["io_bytes"], row["flops"])
    return told.us if same else None
