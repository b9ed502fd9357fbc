"""Our attend against the roofline and against everything torch offers for the same cache."""

from collections.abc import Callable

from torch import Tensor

from experiments.benching.caches import check, filled, oracle, plan, query, replicas
from experiments.benching.paths import PLAIN, torch_paths
from experiments.benching.points import BenchPoint, Result
from experiments.benching.race import Contender, Latency, race, screen
from experiments.benching.sizes import Sizes
from experiments.measuring.bench import Bench
from variants.contract.cost import Point, Work, attend_work, roofline
from variants.storage.contiguous import Contiguous

OURS = "numba_split_kv"
BEST, ENABLE_GQA = "speedup_vs_best_torch", "speedup_vs_enable_gqa"
ROOM = 2 * 2**30  # bytes of caches in one axis order
Answers = dict[str, Callable[[], Tensor]]  # by contender: o [1, 1, H, V] of one replica


def attend_latencies(point: BenchPoint, sizes: Sizes, bench: Bench) -> dict[str, Latency]:
    """Latencies of our kernel and of every torch path worth timing; ValueError where one of them answers wrongly."""
    io_bytes = work_of(point, sizes).io_bytes
    made = [_replica(point, sizes, number) for number in range(replicas(io_bytes, ROOM, sizes.replicas))]
    ours, *theirs = (Contender(name, [answers[name] for answers in made], io_bytes) for name in made[0])
    kept = [c.name for c in theirs if c.name.startswith(PLAIN)] if ENABLE_GQA in point.targets else []
    return race(point.name, [ours, *screen(theirs, bench.timer, kept)], bench.timer, sizes.rounds, bench.sweep)


def speedups(point: BenchPoint, taken: dict[str, Latency]) -> list[Result]:
    """Best torch path, and torch's own grouped SDPA where there is a target for it, over ours."""
    ours = taken[OURS].p50_us
    theirs = {name: latency.p50_us for name, latency in taken.items() if name != OURS}
    plain = [us for name, us in theirs.items() if name.startswith(PLAIN)]
    results = [Result(point.name, BEST, min(theirs.values()) / ours, point.targets[BEST])]
    if ENABLE_GQA in point.targets:
        results.append(Result(point.name, ENABLE_GQA, min(plain) / ours, point.targets[ENABLE_GQA]))
    return results


def roofline_fraction(point: BenchPoint, sizes: Sizes, p50_us: float, bench: Bench) -> Result:
    """The time that the ceilings allow over the time it took."""
    floor = roofline(work_of(point, sizes), bench.ceilings.cold_gbps, bench.matmul_tflops(point.dtype))
    return Result(point.name, "roofline_fraction", floor.us / p50_us, point.targets["roofline_fraction"])


def work_of(point: BenchPoint, sizes: Sizes) -> Work:
    """Bytes and FLOPs of one attend."""
    spec = sizes.spec(point.variant)
    one = Point(1, point.context, 1, point.dtype)
    return attend_work(spec.layout(point.dtype), spec.geometry(), spec.matmuls(), one)


def _replica(point: BenchPoint, sizes: Sizes, number: int) -> Answers:
    """Every way over one cache and one query; the first replica's answers are held to the oracle."""
    spec, length = sizes.spec(point.variant), point.context
    geometry = spec.geometry()
    cache = filled(Contiguous(), spec.layout(point.dtype), length, length, seed=number)
    q = query(geometry, point.dtype, seed=number)
    ours = plan(geometry, cache, length).attend
    answers: Answers = {OURS: lambda: ours(q)[0]}
    for name, path in torch_paths(geometry, cache.view, length).items():
        answers[name] = _bound(path, q)
    if number == 0:
        exact, _ = oracle(geometry, cache.view, length, q)
        for name, answer in answers.items():
            check(name, answer(), exact, point.dtype)
    return answers


def _bound(path: Callable[[Tensor], Tensor], q: Tensor) -> Callable[[], Tensor]:
    return lambda: path(q)
