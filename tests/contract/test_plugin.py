"""Plug-ins are found by bare name inside the package; nothing else is imported."""

import subprocess
import sys

import pytest

from tests.builders import ROOT, config
from variants.contract import plugin

NOT_A_KIND: tuple[str, ...] = (
    "os",
    "os.path",
    "../x",
    "antigravity",
    "grouped.module",
    "variants.attention.grouped",
    "",
)
NOT_A_KIND += ("Grouped", "grouped ", "grouped\n", "__init__", "cache")


@pytest.mark.parametrize("folder", plugin.FOLDERS)
def test_every_listed_kind_is_a_plugin(folder):
    assert plugin.kinds(folder)
    for kind in plugin.kinds(folder):
        assert callable(plugin.find(folder, kind))


def test_kinds_known_today():
    assert {"grouped", "latent"} <= set(plugin.kinds("attention"))
    assert {"eager", "sdpa"} <= set(plugin.kinds("backend"))
    assert "contiguous" in plugin.kinds("storage")
    assert "cache" not in plugin.kinds("storage")  # what storages are built of, not a storage


@pytest.mark.parametrize(
    "kind",
    [None, 1, ["grouped"], *NOT_A_KIND],
)
@pytest.mark.parametrize("folder", plugin.FOLDERS)
def test_anything_else_lists_the_choices_and_imports_nothing(folder, kind):
    before = set(sys.modules)
    with pytest.raises(
        ValueError, match=f"{folder} kind must be one of {', '.join(plugin.kinds(folder))}; got "
    ) as error:
        plugin.find(folder, kind)
    assert str(error.value).endswith(f"got {kind!r}")
    assert set(sys.modules) == before


@pytest.mark.parametrize("folder", ["contract", "os", "", "attention/../backend", "variants.attention"])
def test_folders_are_a_closed_list(folder):
    with pytest.raises(ValueError, match="plug-in folder must be one of attention, storage, backend"):
        plugin.find(folder, "grouped")


@pytest.mark.parametrize("folder", plugin.FOLDERS)
def test_every_yaml_names_a_known_kind(folder):
    assert {raw["kind"] for raw in config(folder).values()} <= set(plugin.kinds(folder))


def test_contract_and_specs_need_no_torch():
    """Every module of the contract and every spec, with torch blocked; listing plug-ins imports none."""
    code = """
import importlib, pathlib, sys
sys.modules["torch"] = None
for path in sorted(pathlib.Path("variants/contract").glob("*.py")):
    importlib.import_module(f"variants.contract.{path.stem}".removesuffix(".__init__"))
from variants.contract import plugin
from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
before = set(sys.modules)
kinds = [plugin.kinds(folder) for folder in plugin.FOLDERS]
assert set(sys.modules) == before, set(sys.modules) - before
model = ModelShape("m", "s", 64, 1, 4)
for kind in plugin.kinds("attention"):
    spec = plugin.find("attention", kind).from_model(model)
    print(kind, spec.layout(Dtype.BF16).bytes(1), spec.geometry().d_qk, spec.shard(2).weight_elements)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == plugin.kinds("attention")
