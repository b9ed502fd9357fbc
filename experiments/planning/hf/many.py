"""Several files at once: classes are asked in one process for all of them, and a bad file is a reason, not an end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.planning.hf import classes
from experiments.planning.hf.fields import Undecided
from experiments.planning.hf.read import Defaults, read_file
from experiments.planning.model_cache import ModelCache


@dataclass(frozen=True)
class Refused:
    """Why a file could not be read, in one line."""

    reason: str


def read_many(paths: Sequence[Path], form: str = "latent") -> list[ModelCache | Refused]:
    """What each file holds, in order."""
    first = [_read(path, form, None) for path in paths]
    open_questions = {found.class_name: found for found in first if isinstance(found, Undecided)}
    if not open_questions:
        return [found for found in first if not isinstance(found, Undecided)]
    try:
        defaults = classes.ask(open_questions)
    except ValueError as error:
        return [_unanswered(found, error) if isinstance(found, Undecided) else found for found in first]
    second = (
        _read(path, form, defaults) if isinstance(found, Undecided) else found
        for path, found in zip(paths, first, strict=True)
    )
    return [Refused(str(found)) if isinstance(found, Undecided) else found for found in second]


def _read(path: Path, form: str, defaults: Defaults | None) -> ModelCache | Refused | Undecided:
    try:
        return read_file(path, form, defaults)
    except Undecided as question:
        return question
    except (ValueError, OSError) as error:
        return Refused(" ".join(str(error).split()))


def _unanswered(question: Undecided, error: ValueError) -> Refused:
    return Refused(f"{question.field} is missing, and what its class makes of that is not known: {error}")
