"""Every figure of the gallery from fixed rows of some variants: what the image tests look at."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.planned import planner
from experiments.record import Measurement
from experiments.telling.crossing import maps
from experiments.telling.decision import decide_all
from experiments.telling.evidence import Evidence, read_evidence
from experiments.telling.figures import bandwidth, cache, crossover, latency, roofline
from experiments.telling.figures import evidence as papers
from experiments.telling.figures import support as matrix
from experiments.telling.figures.canvas import look
from experiments.telling.figures.sizes import Sheet, draw_cache, draw_capacity, draw_devices
from experiments.telling.figures.style import styles
from experiments.telling.gallery import sections
from experiments.telling.published import of_variants
from experiments.telling.scene import Scene
from experiments.telling.setting import Setting
from experiments.telling.support import support
from tests.builders import CONF
from tests.experiments.telling.rows import BYTES_PER_TOKEN, failed, pages, row, rule

FAMILY = ("mha", "gqa", "mqa", "mla")
CONTEXTS = (1024, 4096, 16384)
PACE = {"mha": 1.6, "gqa": 1.0, "mqa": 0.6, "mla": 0.8}  # us per token, so that no two lines lie on each other
Names = Sequence[str]


def plain(names: Names) -> list[Measurement]:
    """Both scopes at three contexts; MLA lacks one and has one that is not to be believed."""
    rows = [_timed(a, s, c) for a in names for s in ("attend", "step") for c in CONTEXTS if (a, c) != ("mla", 16384)]
    doubtful = _timed("mla", "step", 16384, status="quarantined", reason="too fast")
    return [*rows, doubtful, failed("mla", "attend", 16384, "oom", "no memory")] if "mla" in names else rows


def _timed(attention: str, scope: str, context: int, batch: int = 1, **given: object) -> Measurement:
    us = PACE[attention] * context * batch**0.7 * (1.0 if scope == "attend" else 1.5) + 300
    size = BYTES_PER_TOKEN[attention] * context * batch
    work = {"bandwidth_gbps": size / us / 1e3, "flops": size * 4, "tflops": size * 4 / us / 1e6}
    return row(attention, scope, context, us, **{"batch": batch, **work, **given})


def _page(names: Names) -> Setting:
    (page,) = pages(*plain(names))
    return page


def _map(names: Names, folder: Path) -> None:
    start, each = {"mha": 100, "gqa": 300, "mqa": 700, "mla": 500}, {"mha": 0.2, "gqa": 0.06, "mqa": 0.015, "mla": 0.03}
    at = [(c, batch) for c in CONTEXTS for batch in (1, 8)]  # each variant wins somewhere
    rows = [row(a, "step", c, start[a] + each[a] * c * batch, batch=batch) for a in names for c, batch in at]
    (found,) = maps(pages(*rows), rule(), list(names), {})
    crossover.draw(found, styles(names), folder, "crossover")


def _matrix(names: Names, folder: Path) -> None:
    rows = [
        row(a, "attend", 4096, 100.0 * n, backend=b, storage=s, roofline_fraction=0.9 / n)
        for n, (b, s) in enumerate((("eager", "contiguous"), ("sdpa", "contiguous"), ("eager", "paged")), start=1)
        for a in names
        if (a, b) != ("mla", "sdpa")
    ]
    refused = [failed(a, "attend", 4096, "refused", "reads no pages", backend="sdpa", storage="paged") for a in names]
    (decision,) = decide_all(pages(*rows, *refused), rule(scope="attend"))
    found = support(decision, rule(scope="attend"))
    assert found is not None
    matrix.draw(found, folder, "support")


def _papers(names: Names, folder: Path) -> None:
    papers.draw(quoted(names), styles(names), folder, "evidence")


def quoted(names: Names) -> list[Evidence]:
    """Two papers, with some of their variants."""
    return of_variants(read_evidence(CONF / "evidence", ["gqa_t5_xxl", "mlra_2_9b"]), names)


def _in_sections(names: Names, folder: Path) -> None:
    scopes = ("project", "absorb", "append", "attend", "output", "recompute", "prefill", "step")
    some = [_timed(a, s, c) for a in names for s in scopes for c in (1024, 4096) if a == "mla" or s != "absorb"]
    more = [_timed(a, "step", 1024, batch) for a in names for batch in (4, 64)]
    asked = rule(needs={"memory": "6GB"}, context=1024)
    plan, others = planner(CONF)(["llama-3-8b"]), {"llama-3-8b": 6_000_000_000}
    for made in sections(Scene(pages(*some, *more), asked, folder, others, plan, _told)):
        for figure in (block.figure for block in made.blocks if block.figure):
            for suffix in (".png", ".svg"):
                file = folder / f"{figure.stem}{suffix}"
                file.rename(file.with_name(file.name.removeprefix("01-batch-1-")))


def _told(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    off = {"attend": 0.7, "step": 1.1}
    return {r["key"]: r["latency_us_p50"] * off[r["scope"]] for r in rows if r["scope"] in off and r["batch"] == 1}


def _sheet(stem: str, names: Names, xs: Sequence[int], up: float) -> Sheet:
    points = {n: [(x, BYTES_PER_TOKEN[n] * 1000 * (x / xs[0]) ** up if x < 9999 else None) for x in xs] for n in names}
    return Sheet(stem, "What a cache takes", "some model, bf16", "a panel", "a value", points, "it cannot be")


def draw(name: str, names: Names, folder: Path) -> Path:
    """The PNG of one figure of ``FIGURES``; what stands in sections is drawn all at once."""
    path = folder / f"{name}.png"
    if not path.exists():
        with look():
            DRAWN.get(name, _in_sections)(names, folder)
    return path


def _rows_of(module: Any, name: str) -> Callable[[Names, Path], object]:
    return lambda names, folder: module.draw(_page(names), styles(names), folder, name)


DRAWN: dict[str, Callable[[Names, Path], object]] = {
    "cache": _rows_of(cache, "cache"),
    "latency": _rows_of(latency, "latency"),
    "bandwidth": _rows_of(bandwidth, "bandwidth"),
    "roofline": _rows_of(roofline, "roofline"),
    "crossover": _map,
    "support": _matrix,
    "evidence": _papers,
    "cache-context": lambda names, folder: draw_cache(_sheet("cache-context", names, CONTEXTS, 1), folder),
    "device-tp": lambda names, folder: draw_devices(_sheet("device-tp", names, (1, 2, 4, 8), -1), folder),
    "capacity-context": lambda names, folder: draw_capacity(_sheet("capacity-context", names, CONTEXTS, -1), folder),
}
IN_SECTIONS = ("saving-step", "saving-added", "parts", "devices", "capacity", "throughput", "foretold")
FIGURES = (*DRAWN, *IN_SECTIONS)
