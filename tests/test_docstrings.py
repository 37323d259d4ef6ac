"""Examples in docstrings run, and say what they show."""

import ast
import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import biasbound

ROOT = Path(biasbound.__file__).parent
PARSER = doctest.DocTestParser()


def examples():
    """(module, place, docstring) of every docstring with an example, from the source: decorators may hide it."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ">>> " not in text:
            continue
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ">>> " in (
                ast.get_docstring(node) or ""
            ):
                yield module, getattr(node, "name", "module"), ast.get_docstring(node)


EXAMPLES = list(examples())


@pytest.mark.parametrize(("module", "place", "text"), EXAMPLES, ids=[f"{m}.{p}" for m, p, _ in EXAMPLES])
def test_the_example_runs(module, place, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = PARSER.get_doctest(text, dict(vars(import_module(module))), f"{module}.{place}", module, 0)
    said = []
    assert len(test.examples) <= 6, "an example is short"
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


def test_what_a_script_needs_first_has_an_example():
    without = [name for name in biasbound.HOMES if ">>> " not in (inspect.getdoc(getattr(biasbound, name)) or "")]
    assert not without
    assert {"sample", "own_bias", "bias_curve", "rollout"} <= {place for _, place, _ in EXAMPLES}
