"""The shape of the package: imports point one way, the method sees no network, file or clock."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import biasbound

ROOT = Path(biasbound.__file__).parent

# The method serves anyone's network: it may know these modules of ours and nothing else of ours.
METHOD = {"noise", "denoise", "oracle", "sample", "bias", "search", "metrics"}
METHOD_MAY_USE = METHOD | {"files"}
# What touches disk, clock or terminal, and who may.
FORBIDDEN = {
    "os", "io", "pathlib", "shutil", "tempfile", "h5py", "json", "pickle", "time", "datetime", "logging", "rich",
    "numpy", "biasbound.files",
}  # fmt: skip
FREE_OF_SIDE_EFFECTS = {"denoise", "oracle", "sample", "bias", "search"}
# Scores take anyone's arrays: these libraries and nothing else, of ours or of others.
METRICS_MAY_USE = {
    "__future__", "biasbound.metrics", "collections", "dataclasses", "jaxtyping", "math", "numpy", "torch", "typing", "warnings",
}  # fmt: skip
BARE = {"data", "report", "pipeline", "commands"}  # packages that are no more than their modules
MAY_PRINT = {"pipeline", "report", "commands", "cli", "data.commands"}


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, root, package="biasbound"):
    """Absolute names of all modules that a file imports, at the top or inside functions."""
    here = [package, *path.relative_to(root).with_suffix("").parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{stem}.{alias.name}"


def upward_imports(root, flow, package="biasbound"):
    """(file, module) pairs in which a file imports what stands after it in the flow."""
    order = {name: i for i, name in enumerate(flow)}
    for path in sorted(root.rglob("*.py")):
        own = module_name(path, root).split(".")[0]
        if own not in order:  # the package itself and __main__
            continue
        for name in imports(path, root, package):
            parts = name.split(".")
            if (
                parts[0] == package
                and len(parts) > 1
                and parts[1] in order
                and order[parts[1]] > order[own]
            ):
                yield str(path.relative_to(root)), parts[1]


def cycles(root, package="biasbound"):
    """A cycle among the package's files, or None."""
    known = {module_name(p, root): p for p in root.rglob("*.py")}
    graph = {}
    for name, path in known.items():
        targets = {
            n.removeprefix(f"{package}.")
            for n in imports(path, root, package)
            if n.startswith(f"{package}.")
        }
        # `from .a import b` names a.b, which may be the module a.b or something inside a.
        graph[name] = {
            t if t in known else t.rpartition(".")[0] for t in targets
        } & known.keys() - {name, ""}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_modules_import_only_what_stands_before_them():
    assert list(upward_imports(ROOT, biasbound.FLOW)) == []


def test_no_file_imports_in_a_circle():
    assert cycles(ROOT) is None


def test_every_module_has_its_place_in_the_flow():
    found = {m.name for m in pkgutil.iter_modules([str(ROOT)])} - {"__main__"}
    assert found == set(biasbound.FLOW)


def test_the_method_knows_no_network_data_or_config():
    for path in ROOT.rglob("*.py"):
        if module_name(path, ROOT).split(".")[0] in METHOD:
            ours = {n.split(".")[1] for n in imports(path, ROOT) if n.startswith("biasbound.")}
            assert ours <= METHOD_MAY_USE, path


def test_the_method_touches_no_disk_clock_or_terminal():
    for path in ROOT.rglob("*.py"):
        name = module_name(path, ROOT)
        if name.split(".")[0] in FREE_OF_SIDE_EFFECTS:
            used = set(imports(path, ROOT))
            assert not {
                u for u in used if any(u == f or u.startswith(f + ".") for f in FORBIDDEN)
            }, path
        calls = {
            n.func.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        if name.split(".")[0] not in MAY_PRINT and name not in MAY_PRINT:
            assert "print" not in calls, path


def test_metrics_see_arrays_only():
    files = [p for p in ROOT.rglob("*.py") if module_name(p, ROOT).split(".")[0] == "metrics"]
    assert files
    for path in files:
        for name in imports(path, ROOT):
            assert any(name == m or name.startswith(f"{m}.") for m in METRICS_MAY_USE), (
                path,
                name,
            )
        calls = {
            n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)
        }
        assert not calls & {"load", "save", "fromfile", "tofile"}, path


def test_nothing_hangs_on_the_training_flag():
    for path in ROOT.rglob("*.py"):
        attributes = {
            n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)
        }
        assert "training" not in attributes, path


@pytest.mark.parametrize(
    ("statement", "caught"),
    [
        ("from .late import f", True),
        ("from . import late", True),
        ("import pkg.late", True),
        ("def f():\n    from pkg.late import g", True),
        ("from .early import f", False),
    ],
)
def test_the_check_itself_catches_an_upward_import(tmp_path, statement, caught):
    for name, text in (("early", ""), ("middle", statement), ("late", "")):
        (tmp_path / f"{name}.py").write_text(text)
    found = list(upward_imports(tmp_path, ("early", "middle", "late"), "pkg"))
    assert found == ([("middle.py", "late")] if caught else [])


def test_the_check_itself_catches_a_circle(tmp_path):
    (tmp_path / "a.py").write_text("from .b import x")
    (tmp_path / "b.py").write_text("from .a import y")
    assert cycles(tmp_path, "pkg") is not None


def test_every_public_name_exists():
    for info in pkgutil.walk_packages([str(ROOT)], "biasbound."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        names = module.__all__ if hasattr(module, "__all__") else []
        assert names or info.name.removeprefix("biasbound.") in BARE, f"{info.name} has no __all__"
        for name in names:
            assert hasattr(module, name), f"{info.name}.__all__ names {name}, which does not exist"


def test_an_unknown_module_is_named():
    with pytest.raises(AttributeError, match=r"no attribute 'nosuch'.*noise"):
        biasbound.nosuch  # noqa: B018
    assert "noise" in dir(biasbound)


def test_help_does_not_import_torch():
    code = "import sys, biasbound.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
        == 0
    )


def test_version_is_that_of_the_package():
    from importlib.metadata import version

    assert biasbound.__version__ == version("biasbound")
