"""What every Hydra door does before its task runs: refuse configs that could run code, errors become one line."""

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

CONF = Path(__file__).parent / "conf"
LAUNCHERS = ("rounds", "basic")
SETTABLE = ("mode", "sweeper.params", "run.dir", "sweep.dir", "sweep.subdir")  # all that may be changed under hydra.*
DERIVED = ("runtime", "job.name", "job.override_dirname", "job.config_name", "job.num", "job.id")
BAD_INPUT = 2


@dataclass(frozen=True)
class Composed:
    """A config as plain data, and which yaml was chosen for each group."""

    values: dict[str, Any]
    choices: dict[str, str | None]


Task = Callable[[Sequence[Composed]], int]


def open_door(config_name: str, task: Task) -> NoReturn:
    """Compose with Hydra, call ``task`` once with every config of the run, and exit with the code that it returns.

    Exit code 2 and one line on stderr for anything the user can mend: a config that does not compose or is refused, or
    a ValueError or OSError from the task.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # let Hydra raise, so that its errors become one line here
    outcome = _Outcome(task)
    try:
        _refuse_code(config_name)
        with tempfile.TemporaryDirectory() as scratch:
            _keep_sweep_files_out(Path(scratch))
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(outcome.run)()
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError) as error:
        outcome.error = error
    if outcome.error is not None:
        print(f"error: {_one_line(outcome.error)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    sys.exit(outcome.code)


class _Outcome:
    """Runs the task inside Hydra, which would print its own lines about an error that passes through it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.code = 0
        self.error: Exception | None = None

    def run(self, configs: DictConfig | list[DictConfig]) -> None:
        """Called by Hydra: once, or once per job under Hydra's own launchers."""
        try:
            self.code = max(self.code, self.task(_composed(configs)))
        except (OmegaConfBaseException, ValueError, OSError) as error:
            self.error = error


def _composed(configs: DictConfig | list[DictConfig]) -> list[Composed]:
    """Plain data of one config (a single run: Hydra has set its node aside) or of a whole sweep's."""
    if isinstance(configs, DictConfig):
        return [_plain(configs, HydraConfig.get())]
    return [_plain(config, config.hydra) for config in configs]


def _plain(config: DictConfig, node: Any) -> Composed:
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    values: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    return Composed(values, dict(node.runtime.choices))


def _keep_sweep_files_out(scratch: Path) -> None:
    """Hydra writes a multirun.yaml before it has looked at the sweep; nothing of ours is to be half-written."""
    arguments = _arguments()
    if arguments.shell_completion or arguments.help or arguments.hydra_help or arguments.info:
        return
    overrides = arguments.overrides
    if not any("hydra.sweep.dir=" in override for override in overrides):
        beside = sys.argv.index(overrides[0]) if overrides else len(sys.argv)  # argparse wants overrides in one run
        sys.argv.insert(beside, f"hydra.sweep.dir={scratch}")


def _refuse_code(config_name: str) -> None:
    """Raise ValueError if flags, overrides or config files set anything under ``hydra`` that could run code.

    Hydra instantiates callbacks, sweepers and logging handlers named in a config. So the config is composed here first,
    with nothing instantiated, and its ``hydra`` node is compared with the one we ship.
    """
    arguments = _arguments()
    if arguments.experimental_rerun or arguments.config_path or arguments.config_name:
        raise ValueError("--experimental-rerun, --config-path and --config-name are not supported; use --config-dir")
    nothing_set = not (arguments.overrides or arguments.config_dir)
    if arguments.shell_completion or ((arguments.help or arguments.hydra_help) and nothing_set):
        return  # else help is checked like a run: Hydra configures logging for it too
    search_path = create_automatic_config_search_path(None, None, str(CONF))
    plain = _hydra_node(search_path, config_name, [])
    if arguments.config_dir:
        own = f"file://{Path(arguments.config_dir).resolve()}"
        search_path.prepend(provider="command-line", path=own, anchor=SearchPathQuery(provider="schema"))
    asked = _hydra_node(search_path, config_name, arguments.overrides)
    launcher = asked["runtime"]["choices"].get("hydra/launcher")
    if launcher not in LAUNCHERS:
        raise ValueError(f"hydra/launcher must be one of {', '.join(LAUNCHERS)}; got {launcher!r}")
    if launcher != plain["runtime"]["choices"]["hydra/launcher"]:
        plain = _hydra_node(
            create_automatic_config_search_path(None, None, str(CONF)), config_name, [f"hydra/launcher={launcher}"]
        )
    ours = launcher == "rounds" and not arguments.config_dir  # our launcher acts on no job's hydra node: save the time
    jobs = [] if ours else _jobs(search_path, arguments.overrides, asked["sweeper"]["params"] or {})
    nodes = (asked, *(_hydra_node(search_path, config_name, job, RunMode.RUN) for job in jobs))
    changed = [name for node in nodes for name in _changes(plain, node)]
    if changed:
        raise ValueError(
            f"{changed[0]} may not be set: what is under hydra can run code; "
            f"only {', '.join('hydra.' + key for key in SETTABLE)} and hydra/launcher={{{','.join(LAUNCHERS)}}} may"
        )


def _arguments() -> Namespace:
    """What stands on the command line; ValueError, not a page of usage, if argparse does not understand it."""

    def refuse(message: str) -> NoReturn:
        raise ValueError(f"{message} (flags stand before or after all overrides; see --help)")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args()


def _hydra_node(
    search_path: ConfigSearchPath, config_name: str, overrides: list[str], mode: RunMode = RunMode.MULTIRUN
) -> dict[str, Any]:
    """The composed ``hydra`` node as plain data; nothing in it is instantiated.

    Raises ValueError if ``hydra.overrides`` holds more than ``overrides``: Hydra composes the jobs of a sweep from it.
    """
    GlobalHydra.instance().clear()
    try:
        composer = Hydra.create_main_hydra2(task_name="door", config_search_path=search_path)
        config = composer.compose_config(config_name, overrides, mode, with_log_configuration=False)
        node: Any = OmegaConf.to_container(config.hydra, resolve=False)
    finally:
        GlobalHydra.instance().clear()
    heard = node.pop("overrides")
    if sorted([*heard["hydra"], *heard["task"]]) != sorted(overrides):
        raise ValueError("hydra.overrides may not be set: what is under hydra can run code")
    return dict(node)


def _jobs(search_path: ConfigSearchPath, overrides: list[str], params: dict[str, Any]) -> list[list[str]]:
    """Overrides of every job of a sweep: a swept yaml can set ``hydra`` too, and the main config does not show that."""
    parser = OverridesParser.create(ConfigLoaderImpl(search_path))
    parsed = parser.parse_overrides(overrides)
    if not params and not any(o.is_sweep_override() for o in parsed):
        return []
    own = [str(o.input_line) for o in parsed if o.is_hydra_override()]
    swept = [f"{key}={value}" for key, value in params.items()]
    swept += [str(o.input_line) for o in parsed if not o.is_hydra_override()]
    return [[*own, *job] for job in BasicSweeper.split_arguments(parser.parse_overrides(swept), None)[0]]


def _changes(plain: Any, asked: Any, path: str = "") -> list[str]:
    """Dotted names under ``hydra`` that differ and may not."""
    if path in SETTABLE or path in DERIVED or plain == asked:
        return []
    if not (isinstance(plain, dict) and isinstance(asked, dict)):
        return [f"hydra.{path}"]
    keys = [*plain, *(key for key in asked if key not in plain)]
    missing = object()
    found = (_changes(plain.get(k, missing), asked.get(k, missing), f"{path}.{k}".lstrip(".")) for k in keys)
    return [name for names in found for name in names]


def _one_line(error: Exception) -> str:
    """The message without line breaks and without Hydra's list of search paths, which says nothing to a user."""
    text = " ".join(str(error).split("Config search path:")[0].split()) or type(error).__name__
    key, _, value = error.override.partition("=") if isinstance(error, OverrideParseException) else ("", "", "")
    if value:
        text += f" (special characters need quotes: '{key}=\"{value}\"')"
    return text
