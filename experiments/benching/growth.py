"""How latency grows: with the tokens that are cached, and with nothing else."""

from collections.abc import Callable, Mapping

from experiments.benching.caches import check, filled, oracle, plan, query, replicas
from experiments.benching.points import BenchPoint, Result
from experiments.benching.race import Contender, Latency, race
from experiments.benching.sizes import Sizes
from experiments.measuring.bench import Bench
from variants.protocols import StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

ROOM = 2**30  # bytes of caches per contender
PAGE_SIZE = 64
POOL = 8  # times the pages that are used


def growth_latencies(point: BenchPoint, sizes: Sizes, bench: Bench) -> dict[str, Latency]:
    """Latency over context, one sequence; contenders are called by their number of tokens."""
    made = [_contender(str(tokens), point, sizes, Contiguous(), tokens, tokens) for tokens in sizes.growing]
    return race(point.name, made, bench.timer, sizes.rounds, bench.sweep)


def pool_latencies(point: BenchPoint, sizes: Sizes, bench: Bench) -> dict[str, Latency]:
    """The same tokens in a pool of pages that just holds them, and in one many times larger."""
    paged, used = Paged(PAGE_SIZE), point.context
    made = [_contender(f"pool x{n}", point, sizes, paged, used, used * n) for n in (1, POOL)]
    return race(point.name, made, bench.timer, sizes.rounds, bench.sweep)


def nonlinearity(point: BenchPoint, taken: Mapping[str, Latency]) -> list[Result]:
    """How far the time per token strays from its mean over all contexts, as a share of it."""
    each = [latency.p50_us / int(tokens) for tokens, latency in taken.items()]
    mean = sum(each) / len(each)
    value = max(abs(us / mean - 1) for us in each)
    return [Result(point.name, "nonlinearity", value, point.targets["nonlinearity"])]


def pool_ratio(point: BenchPoint, taken: Mapping[str, Latency]) -> list[Result]:
    """Latency in the large pool over latency in the small one."""
    value = taken[f"pool x{POOL}"].p50_us / taken["pool x1"].p50_us
    return [Result(point.name, "pool_ratio", value, point.targets["pool_ratio"])]


def _contender(
    name: str, point: BenchPoint, sizes: Sizes, storage: StoragePolicy, used: int, capacity: int
) -> Contender:
    layout = sizes.spec(point.variant).layout(point.dtype)
    count = replicas(storage.allocated_bytes(layout, 1, capacity), ROOM, sizes.replicas, fewest=4)
    calls = [_call(point, sizes, storage, used, capacity, number) for number in range(count)]
    return Contender(name, calls, layout.bytes(used))


def _call(
    point: BenchPoint, sizes: Sizes, storage: StoragePolicy, used: int, capacity: int, number: int
) -> Callable[[], object]:
    spec = sizes.spec(point.variant)
    geometry = spec.geometry()
    cache = filled(storage, spec.layout(point.dtype), capacity, used, seed=number)
    q = query(geometry, point.dtype, seed=number)
    attend = plan(geometry, cache, used).attend
    if number == 0:
        check(point.name, attend(q)[0], oracle(geometry, cache.view, used, q)[0], point.dtype)
    return lambda: attend(q)
