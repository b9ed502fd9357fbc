"""``plan=true``: what a run would do, on one page. No kernel runs, no worker starts, nothing is written."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.agenda import Standing, point_keys, survey, wanted_rows
from experiments.expected import CEILINGS_S, Forecast, Span
from experiments.jobs import Orders, Unbuildable
from experiments.measuring.crew import Group, grouped
from experiments.measuring.point import obstacle
from experiments.measuring.prepare import oracle_bytes, replica_bytes, replica_count
from experiments.measuring.row import Where
from experiments.measuring.scopes import blocked_scopes, workspaces
from experiments.measuring.series import Series
from experiments.measuring.sweep import sweep_bytes
from experiments.progress import counted
from experiments.record import apart
from experiments.recorded import Recorded
from experiments.terminal import say, show

HEADER = ("series", "points", "there", "refused", "too_large", "to_measure", "GiB", "minutes")
REASONS = 40  # lines of them; a study of thousands of points has few kinds
LONGEST = 300  # characters of one


@dataclass
class Line:
    """One series: its points by what would become of them, the most bytes of one, and how long they take."""

    name: str
    points: int
    there: int
    found: Counter[str] = field(default_factory=Counter)
    able: list[Where] = field(default_factory=list)
    bytes: int = 0
    time: Span = field(default_factory=Span)

    def cells(self) -> tuple[str, ...]:
        """As the table shows it; ``predicted`` and broken series measure nothing."""
        counts = (self.points, self.there, self.found["refused"], self.found["too_large"], len(self.able))
        gib = f"{self.bytes / 2**30:.2f}" if self.able else ""
        return self.name, *map(str, counts), gib, minutes(self.time) if self.able else ""


def show_plan(jobs: Sequence[Series | Unbuildable], orders: Orders) -> None:
    """Print one line per series, why points are refused, and what the whole takes."""
    recorded = Recorded.read(orders.folder)
    plan = _Plan(orders, recorded)
    for job, standing in zip(jobs, survey(jobs, orders, recorded), strict=True):
        plan.add(job, standing)
    plan.foretell()
    plan.show()


def minutes(span: Span) -> str:
    """Seconds at least and at most, as minutes."""
    least, most = (f"{s / 60:.1f}" if s < 600 else f"{s / 60:.0f}" for s in (span.least, span.most))
    return least if least == most else f"{least}-{most}"


class _Plan:
    """The lines of a plan, the reasons in them, and the sums."""

    def __init__(self, orders: Orders, recorded: Recorded) -> None:
        self.orders = orders
        self.recorded = recorded
        self.forecast = Forecast(recorded)
        self.lines: list[Line] = []
        self.reasons: Counter[str] = Counter()
        self.there: Counter[str] = Counter()
        self.able: list[tuple[Line, Standing]] = []
        self.once = Span()

    def add(self, job: Series | Unbuildable, standing: Standing) -> None:
        """One job, sorted by arithmetic alone."""
        self.there.update(row.status for row in standing.there)
        if isinstance(job, Unbuildable):
            self.reasons[f"error: {job.labels.attention}: {job.reason}"] += 1
            self.lines.append(Line(f"{job.labels.attention} (cannot be built)", 1, 1 - len(standing.broken)))
            return
        line = Line(job.name, len(standing.places), len(standing.places) - len(standing.left))
        self.lines.append(line)
        if job.origin == "predicted":
            return
        for where in standing.left:
            self._sort(line, where)
        if line.able:
            self.able.append((line, standing))

    def _sort(self, line: Line, where: Where) -> None:
        why = obstacle(where)
        if why is not None:
            line.found[why.status] += 1
            for reason in apart(why.reason) if why.status == "refused" else [f"{line.name}, e.g. {why.reason}"]:
                self._reason(f"{why.status}: {reason}")
            return
        line.able.append(where)
        line.bytes = max(line.bytes, _bytes(where))
        for scope, failed in blocked_scopes(where).items():
            self._reason(f"{failed.status}: {scope}: {failed.reason}")

    def _reason(self, text: str) -> None:
        """Count it; of the points of a series that are too large, the first stands for all."""
        kind = text.partition(", e.g. ")[0]
        self.reasons[next((known for known in self.reasons if known.partition(", e.g. ")[0] == kind), text)] += 1

    def foretell(self) -> None:
        """Fill in how long each series takes, racing as it will."""
        lines = {id(standing.places): line for line, standing in self.able}
        able = {point_keys(where) for line, _ in self.able for where in line.able}
        for group in grouped([standing.places for _, standing in self.able], self.orders.conduct):
            self._foretell(group, able, lines)
        if self.able:
            self.once = Span(CEILINGS_S, 2 * CEILINGS_S)

    def _foretell(self, group: Group, able: set[tuple[str, ...]], lines: dict[int, Line]) -> None:
        begun: set[str] = set()
        for index in range(len(group[0])):
            runs = [run for run in group if point_keys(run[index]) in able]
            if not runs:
                continue
            wheres = [run[index] for run in runs]
            first = not {where.series.name for where in wheres} <= begun
            begun |= {where.series.name for where in wheres}
            told = self.forecast.of_point(wheres, [wanted_rows(where) for where in wheres], first)
            for run, span in zip(runs, told, strict=True):
                lines[id(run)].time += span

    def show(self) -> None:
        """Print it."""
        moods = ["good" if line.there == line.points else "plain" if line.able else "warn" for line in self.lines]
        show(HEADER, [line.cells() for line in self.lines], moods)
        for reason, count in self.reasons.most_common(REASONS):
            say(f"{count} x {reason if len(reason) <= LONGEST else reason[: LONGEST - 1] + '…'}")
        if len(self.reasons) > REASONS:
            say(f"and {len(self.reasons) - REASONS} more reasons")
        for line in self._sums():
            say(line)

    def _sums(self) -> list[str]:
        left = sum(len(line.able) for line in self.lines)
        points, there = (sum(getattr(line, name) for line in self.lines) for name in ("points", "there"))
        whole = sum((line.time for line in self.lines), self.once)
        sources = ", ".join(f"{source} ({rows} rows)" for source, rows in self.forecast.sources.most_common())
        told = [f"{points} points of {len(self.lines)} series: {there} are there, {left} to be measured"]
        told += [f"rows that are there, in {self.orders.folder}: {counted(self.there)}"] if self.there else []
        told += self.recorded.warnings
        if left:
            sweep = max(sweep_bytes(device) for line in self.lines for w in line.able if (device := w.device))
            told.append(f"each series takes at most the GiB above, and the run {sweep / 2**30:.2f} GiB to evict caches")
            told.append(f"expected minutes: {minutes(whole)}, an estimate, starts and warm-up included, from {sources}")
        return [*told, "nothing was measured or written"]


def _bytes(where: Where) -> int:
    """Bytes that a point takes at most: its replicas, the oracle's sequence, and what other scopes need."""
    assert where.device is not None
    replicas = replica_count(where.series, where.point, where.device.free_memory())
    parts = sum(replica_bytes(where.series, where.point).values()) * replicas
    return parts + oracle_bytes(where.series, where.point) + sum(workspaces(where).values())
