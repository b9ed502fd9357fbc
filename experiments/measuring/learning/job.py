"""One training of a run: what names it, what decides it, and the row that it becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from experiments.learned import Training
from experiments.measuring.device import Device
from experiments.measuring.learning.lesson import Lesson
from experiments.measuring.learning.match import Matched, match
from experiments.measuring.learning.train import Learned
from experiments.measuring.series import make_plugin
from experiments.record import point_key
from variants.contract.dtype import Dtype
from variants.contract.identity import identity_of
from variants.protocols import Spec

DTYPE = Dtype.F32


@dataclass(frozen=True)
class Job:
    """A variant, a task and a seed."""

    lesson: Lesson
    attention: str
    kind: str
    matched: Matched
    baseline: str
    task: str
    seed: int

    @property
    def setting(self) -> str:
        """A hash of what must be alike for two variants to be compared."""
        lesson = self.lesson
        common = {name: getattr(lesson, name) for name in ("evaluations", "warmup", "weight_decay", "device")}
        task = {"name": self.task, **asdict(lesson.task(self.task))}
        return point_key({**common, "model": asdict(lesson.model), "task": task, "baseline": self.baseline})

    @property
    def key(self) -> str:
        """A hash of all that decides the training."""
        own = {"spec": identity_of(self.matched.spec), "mlp_width": self.matched.mlp_width, "seed": self.seed}
        return point_key({"setting": self.setting, "kind": self.kind, **own})


@dataclass(frozen=True)
class Said:
    """What all rows of a run say alike."""

    study: str
    command: str
    device: Device
    threads: int


def jobs(lesson: Lesson, variants: Mapping[str, Mapping[str, Any]], baseline: str) -> list[Job]:
    """Every training of a run, seed by seed, so that a run which is broken off has something of each variant.

    ``variants``: by label, a yaml of conf/attention. Raises ValueError for one that cannot be built or matched.
    """
    if baseline not in variants:
        raise ValueError(f"learning.attention must hold the baseline {baseline}; got {', '.join(variants)}")
    specs = {label: _spec(label, raw, lesson) for label, raw in variants.items()}
    matched = {task: match(lesson.model, specs, baseline, lesson.task(task).vocabulary) for task in lesson.tasks}
    return [
        Job(lesson, label, str(raw["kind"]), matched[task][label], baseline, task, seed)
        for seed in lesson.seeds
        for task in lesson.tasks
        for label, raw in variants.items()
    ]


def ended(job: Job, said: Said, result: Learned | str, started: datetime) -> Training:
    """The row of a training that ended well, or why it did not."""
    lesson, spec, sizes = job.lesson, job.matched.spec, job.lesson.task(job.task)
    fate: dict[str, Any] = {"status": "error", "reason": result}
    if isinstance(result, Learned):
        curve = tuple((at.step, at.loss, at.accuracy) for at in result.curve)
        fate = {"status": "ok", "curve": curve, "loss": curve[-1][1], "accuracy": curve[-1][2], "data": result.data}
        fate["seconds"] = result.seconds
    return Training(
        key=job.key,
        setting=job.setting,
        study=said.study,
        attention=job.attention,
        kind=job.kind,
        task=job.task,
        seed=job.seed,
        steps=sizes.steps,
        batch=sizes.batch,
        context=sizes.context,
        pairs=lesson.recall.pairs if job.task == "recall" else None,
        learning_rate=sizes.learning_rate,
        hidden_size=lesson.model.hidden_size,
        layers=lesson.model.num_hidden_layers,
        heads=lesson.model.num_attention_heads,
        vocabulary=sizes.vocabulary,
        mlp_width=job.matched.mlp_width,
        parameters=job.matched.parameters,
        baseline=job.baseline,
        cache_bytes=float(spec.layout(DTYPE).bytes_per_token),
        dtype=DTYPE.value,
        chance=lesson.chance(job.task),
        threads=said.threads,
        device=said.device.name,
        host=said.device.host,
        versions=said.device.versions,
        commit=said.device.commit,
        command=said.command,
        started_at=started.astimezone(UTC).isoformat(timespec="seconds"),
        **fate,
    )


def labels(entries: object) -> dict[str, tuple[str, dict[str, Any]]]:
    """By label, the name in conf/attention and the options that are set beside its yaml.

    An entry is a name, or a name with options: ``{mla: {kv_lora_rank: 24}}`` is called ``mla (kv_lora_rank 24)``.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise ValueError(f"learning.attention must be a list of names in conf/attention; got {entries!r}")
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for entry in entries:
        one = {entry: {}} if isinstance(entry, str) else entry
        if not isinstance(one, Mapping) or len(one) != 1 or not all(isinstance(v, Mapping) for v in one.values()):
            raise ValueError(f"learning.attention holds names and name: {{option: value}}; got {entry!r}")
        ((name, options),) = one.items()
        said = ", ".join(f"{key} {value}" for key, value in sorted(options.items()))
        label = f"{name} ({said})" if options else str(name)
        if label in found:
            raise ValueError(f"learning.attention must name each variant once; got {label} twice")
        found[label] = (str(name), dict(options))
    return found


def _spec(label: str, raw: Mapping[str, Any], lesson: Lesson) -> Spec:
    try:
        spec: Spec = make_plugin("attention", raw, lambda kind: _from(kind, lesson))
        spec.layout(DTYPE).slabs()
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    return spec


def _from(kind: Any, lesson: Lesson) -> Any:
    return lambda **options: kind.from_model(lesson.model.place, **options)
