"""The shape of the package; which way imports point is a contract in pyproject.toml, checked by `make lint`."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import biasbound

ROOT = Path(biasbound.__file__).parent

MAY_PRINT = {"study", "report", "fitting", "cli"}


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_nobody_prints_below_the_study():
    for path in ROOT.rglob("*.py"):
        calls = {
            n.func.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        if module_name(path, ROOT).split(".")[0] not in MAY_PRINT:
            assert "print" not in calls, path


def test_nothing_depends_on_the_training_flag():
    for path in ROOT.rglob("*.py"):
        attributes = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
        assert "training" not in attributes, path


def test_every_exported_name_exists():
    for info in pkgutil.walk_packages([str(ROOT)], "biasbound."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name}.__all__ names {name}, which does not exist"


def test_an_unknown_module_is_named():
    with pytest.raises(AttributeError, match=r"no attribute 'nosuch'.*core"):
        biasbound.nosuch  # noqa: B018
    assert "core" in dir(biasbound)


def test_version_is_that_of_the_package():
    from importlib.metadata import version

    assert biasbound.__version__ == version("biasbound")
