"""Predict: ``python -m experiments.predict device=h200 points=FILE.csv out=FILE.csv``; no GPU, no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.door import Composed, open_door


def predict(configs: Sequence[Composed]) -> int:
    """Write the predictions each config asks for, or say how its device's profile was fitted; 0 on success.

    Raises ValueError or OSError, with nothing written.
    """
    from experiments.planning.profile import DeviceProfile  # numpy: not needed for --help

    profiles = [DeviceProfile.parse(_profile(config.values)) for config in configs]
    if any(config.values["oracle"] for config in configs):
        print(_fits(profiles, [config.values for config in configs]))
        return 0
    outs = [config.values["out"] for config in configs]
    if len(set(outs)) < len(outs):
        raise ValueError(f"each of several devices needs an out of its own; got out={outs[0]} for {len(outs)}")
    for config, profile in zip(configs, profiles, strict=True):
        _write(profile, config.values)
    return 0


def main() -> None:
    """Entry point of ``kvariants-predict``."""
    open_door("predict", predict)


def _profile(values: Mapping[str, Any]) -> Any:
    device = values.get("device")
    if not isinstance(device, Mapping) or "profile" not in device:
        got = device.get("kind") if isinstance(device, Mapping) else device
        raise ValueError(f"device must be one whose yaml in conf/device has a profile, e.g. device=h200; got {got!r}")
    return device["profile"]


def _write(profile: Any, values: Mapping[str, Any]) -> None:
    from experiments.planning.files import predict_file

    missing = [name for name in ("points", "out") if not values[name]]
    if missing:
        raise ValueError(f"{missing[0]} must name a CSV file, e.g. points=points.csv out=predicted.csv; got nothing")
    out = Path(str(values["out"]))
    count = predict_file(profile, Path(str(values["points"])), out)
    print(f"{count} points predicted for {profile.name}: {out}")


def _fits(profiles: Sequence[Any], values: Sequence[Mapping[str, Any]]) -> str:
    from experiments.planning.fit import as_yaml
    from experiments.planning.oracle import read_oracle
    from experiments.planning.score import score, table

    scores = []
    for profile, asked in zip(profiles, values, strict=True):
        if profile.oracle is None or not asked["oracle"]:
            raise ValueError(f"{profile.name} was not fitted to an oracle; leave oracle away or choose another device")
        latencies = read_oracle(Path(str(asked["oracle"])), profile.oracle)
        scores += [score(profile, points) for points in latencies.values()]
    fitted = [f"# {s.device}, {s.layout}: all points\n{as_yaml(s.fitted)}\n" for s in scores]
    return "\n".join([*fitted, table(scores)])


if __name__ == "__main__":
    main()
