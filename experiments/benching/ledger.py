"""What was found: a line per number as it comes, and one file at the end."""

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.benching.points import AT_MOST, BenchPoint, Result
from experiments.benching.race import Latency
from experiments.benching.sizes import Sizes
from experiments.measuring.bench import Bench
from experiments.measuring.cold import is_cold
from experiments.record import utc_now


@dataclass
class Ledger:
    """Results and latencies of a run in the order in which they came."""

    started_at: str = field(default_factory=utc_now)
    results: list[Result] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)

    def add(self, results: Iterable[Result]) -> None:
        """Keep results and print each."""
        for result in results:
            self.results.append(result)
            print(line(result), flush=True)

    def failed(self, point: BenchPoint, reason: str) -> None:
        """No value for any metric of a point."""
        self.add(Result(point.name, metric, None, target, reason) for metric, target in point.targets.items())

    @property
    def all_ok(self) -> bool:
        """Whether every target is met."""
        return all(result.ok for result in self.results)

    def as_json(self, bench: Bench, sizes: Sizes, threads: int, command: str) -> dict[str, Any]:
        """The file: results against the ceilings and on the device that they were measured with."""
        device, cache = bench.device, bench.device.last_level_cache
        return {
            "schema": 1,
            "started_at": self.started_at,
            "command": command,
            "device": device.name,
            "cores": device.cores,
            "threads": threads,
            "last_level_cache": cache,
            "read_ceiling_gbps": bench.ceilings.cold_gbps,
            "read_kernel": bench.ceilings.cold_kernel,
            "matmul_ceiling_tflops": {dtype.value: rate for dtype, rate in bench.matmuls.items()},
            "versions": ", ".join([device.versions, *_transformers()]),
            "commit": device.commit,
            "sizes": asdict(sizes),
            "cold": all(is_cold(latency.reuse_bytes, cache) for latency in self.latencies),
            "results": [{**asdict(result), "ok": result.ok} for result in self.results],
            "latencies": [asdict(latency) for latency in self.latencies],
        }


def heading() -> str:
    """Above the lines."""
    return _row("point", "metric", "value", "target", "ok")


def line(result: Result) -> str:
    """One result as a row of the table."""
    value = "-" if result.value is None else f"{result.value:.3g}"
    bound = f"{'<=' if result.metric in AT_MOST else '>='} {result.target:g}"
    return _row(result.point, result.metric, value, bound, "ok" if result.ok else result.reason or "missed")


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON whole or not at all: an interrupted run leaves the older file as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _row(point: str, metric: str, value: str, target: str, ok: str) -> str:
    return f"{point:<22} {metric:<32} {value:>8} {target:>8}  {ok}"


def _transformers() -> list[str]:
    try:
        return [f"transformers {metadata.version('transformers')}"]
    except metadata.PackageNotFoundError:
        return []
