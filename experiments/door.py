"""What every Hydra door does before its task runs: refuse configs that could run code, errors become one line."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from experiments.foreign import FOREIGN, Errand, check_installed, is_option, options

CONF = Path(__file__).parent / "conf"
LAUNCHERS = ("rounds", "basic")
SETTABLE = ("mode", "sweeper.params", "run.dir", "sweep.dir", "sweep.subdir")  # all that may be changed under hydra.*
DERIVED = ("runtime", "job.name", "job.override_dirname", "job.config_name", "job.num", "job.id")
BAD_INPUT = 2
LOST = 3  # as other rows that are not clean


@dataclass(frozen=True)
class Composed:
    """A config as plain data, and which yaml was chosen for each group."""

    values: dict[str, Any]
    choices: dict[str, str | None]
    job: int | None = None  # its number, where each config of a run is a job that a launcher has sent elsewhere


Task = Callable[[Sequence[Composed]], int]
Check = Callable[[Sequence[Composed]], None]
Told = tuple[int, str | None]  # of a job: exit code, and the line of a refusal


def open_door(config_name: str, task: Task, check: Check | None = None) -> NoReturn:
    """Compose with Hydra, call ``task`` once with every config of the run, and exit with the code that it returns.

    With ``check``, Hydra's other launchers may send the configs elsewhere, to a ``task`` each. It has seen all of them
    before, and raises ValueError if none is to be sent.

    Exit code 2 and one line on stderr for anything the user can mend: a config that does not compose or is refused, or
    a ValueError or OSError from the task.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # let Hydra raise, so that its errors become one line here
    outcome = _Outcome(task, check)
    try:
        _forget_defaults_of_others()
        _refuse_code(config_name, (*LAUNCHERS, *FOREIGN) if check else LAUNCHERS)
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(outcome.run)()
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError) as error:
        outcome.error = error
    if outcome.error is not None:
        print(f"error: {_one_line(outcome.error)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    sys.exit(outcome.code)


class _Outcome:
    """Runs the task inside Hydra, which would print its own lines about an error that passes through it.

    Launchers of others send a copy of it with every job; what those copies return comes back through our sweeper.
    """

    def __init__(self, task: Task, check: Check | None) -> None:
        self.task = task
        self.check = check
        self.errand = Errand()
        self.code = 0
        self.error: Exception | None = None

    def run(self, configs: DictConfig | list[DictConfig]) -> Told:
        """Called by Hydra: once, or once per job under Hydra's own launchers."""
        told, error = 0, None
        try:
            composed = _composed(configs)
            if composed[0].job is not None:
                self.errand.arrive()
            told = self.task(composed)
            self.code = max(self.code, told)
        except (OmegaConfBaseException, ValueError, OSError) as caught:
            self.error = error = caught
        return (told, None) if error is None else (BAD_INPUT, _one_line(error))

    def before(self, configs: list[DictConfig]) -> None:
        """Called by our sweeper before jobs are sent elsewhere."""
        assert self.check is not None
        self.check([_plain(config, config.hydra) for config in configs])

    def hear(self, told: Sequence[Told]) -> None:
        """What the jobs of others returned."""
        self.code = max((code for code, _ in told), default=0)
        for line in dict.fromkeys(line for _, line in told if line):
            print(f"error: {line}", file=sys.stderr)
        clean = sum(code == 0 for code, _ in told)
        print(f"jobs: {clean} clean, {len(told) - clean} not", file=sys.stderr)

    def lost(self, error: Exception) -> None:
        """The launcher itself failed, or an answer did not come back from some job."""
        self.code = LOST
        print(f"error: the launcher failed: {_one_line(error)}; rows that were written stay", file=sys.stderr)


def _composed(configs: DictConfig | list[DictConfig]) -> list[Composed]:
    """Plain data of one config (a single run: Hydra has set its node aside) or of a whole sweep's."""
    if isinstance(configs, DictConfig):
        return [_plain(configs, HydraConfig.get())]
    return [_plain(config, config.hydra) for config in configs]


def _plain(config: DictConfig, node: Any) -> Composed:
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    values: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    choices = dict(node.runtime.choices)
    number = OmegaConf.select(node, "job.num", throw_on_missing=False)
    return Composed(values, choices, number if choices.get("hydra/launcher") in FOREIGN else None)


def _forget_defaults_of_others() -> None:
    """Of launchers that have a file in our conf, that file is all there is: Hydra would warn of two sources."""
    Plugins.instance()  # reads them
    known: dict[str, Any] = ConfigStore.instance().repo["hydra"]["launcher"]
    for name in FOREIGN:
        known.pop(f"{name}.yaml", None)


def _refuse_code(config_name: str, launchers: Sequence[str]) -> None:
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
    if arguments.config_dir:
        own = f"file://{Path(arguments.config_dir).resolve()}"
        search_path.prepend(provider="command-line", path=own, anchor=SearchPathQuery(provider="schema"))
    asked = _hydra_node(search_path, config_name, arguments.overrides)
    launcher = asked["runtime"]["choices"].get("hydra/launcher")
    if launcher not in launchers:
        raise ValueError(f"hydra/launcher must be one of {', '.join(launchers)}; got {launcher!r}")
    if launcher in FOREIGN:
        check_installed(launcher)
    plain = _shipped(config_name, launcher)
    ours = launcher == "rounds" and not arguments.config_dir  # our launcher acts on no job's hydra node: save the time
    jobs = [] if ours else _jobs(search_path, arguments.overrides, asked["sweeper"]["params"] or {})
    nodes = (asked, *(_hydra_node(search_path, config_name, job, RunMode.RUN) for job in jobs))
    changed = [name for node in nodes for name in _changes(plain, node, launcher)]
    if changed:
        raise ValueError(
            f"{changed[0]} may not be set: what is under hydra can run code; only "
            f"{', '.join('hydra.' + key for key in (*SETTABLE, *options(launcher)))} and "
            f"hydra/launcher={{{','.join(launchers)}}} may"
        )


def _arguments() -> Namespace:
    """What stands on the command line; ValueError, not a page of usage, if argparse does not understand it."""

    def refuse(message: str) -> NoReturn:
        raise ValueError(f"{message} (flags stand before or after all overrides; see --help)")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args()


@cache
def _shipped(config_name: str, launcher: str) -> dict[str, Any]:
    """The ``hydra`` node that we ship, for one of the launchers."""
    search_path = create_automatic_config_search_path(None, None, str(CONF))
    plain = _hydra_node(search_path, config_name, [])
    if launcher == plain["runtime"]["choices"]["hydra/launcher"]:
        return plain
    return _hydra_node(search_path, config_name, [f"hydra/launcher={launcher}"])


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


def _changes(plain: Any, asked: Any, launcher: str, path: str = "") -> list[str]:
    """Dotted names under ``hydra`` that differ and may not."""
    if path in SETTABLE or path in DERIVED or plain == asked or is_option(launcher, path, asked):
        return []
    if not (isinstance(plain, dict) and isinstance(asked, dict)):
        return [f"hydra.{path}"]
    keys = [*plain, *(key for key in asked if key not in plain)]
    missing = object()
    found = (_changes(plain.get(k, missing), asked.get(k, missing), launcher, f"{path}.{k}".lstrip(".")) for k in keys)
    return [name for names in found for name in names]


def _one_line(error: Exception) -> str:
    """The message without line breaks and without Hydra's list of search paths, which says nothing to a user."""
    text = " ".join(str(error).split("Config search path:")[0].split()) or type(error).__name__
    key, _, value = error.override.partition("=") if isinstance(error, OverrideParseException) else ("", "", "")
    if value:
        text += f" (special characters need quotes: '{key}=\"{value}\"')"
    return text
