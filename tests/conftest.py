"""What all tests share: repeatable examples, and one smoke study for the whole test run."""

import fcntl
import os
import shutil

import pytest
import torch
from browsing import on_ci
from calling import SMOKE, program
from hypothesis import settings
from jaxtyping import config as checking

# Random examples, but the same ones on every run: a red test must be red again.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("repeatable")
torch.set_num_threads(1)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def own_names(monkeypatch):
    """What a test adds to a registry or imports by name is gone after it: worker processes are told all additions."""
    from biasbound import registry

    monkeypatch.setattr(registry, "_ALLOWED", set())
    before = {kind: dict(entries) for kind, entries in registry.kinds().items()}
    yield
    for kind, entries in registry.kinds().items():
        added = entries.keys() - before.get(kind, registry._HOMES[kind].built_in)
        for name in added:
            del entries[name]
        entries.update(before.get(kind, {}))


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """The smoke study of every method, from data to report; nobody may write into it.

    The first worker that asks makes it, the others wait. It is made by the program itself, without the checks of types.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "smoke" / "ks"
    with (shared / "smoke.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "07-report/stage.json").exists():
            made = program("run", folder, *SMOKE)
            assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def copied(smoke, tmp_path):
    """The smoke study as a test's own, without its report."""
    return shutil.copytree(smoke, tmp_path / "ks", ignore=shutil.ignore_patterns("07-report"))


LONGEST = {"test_docs.py", "test_plugins.py", "test_stopped.py"}
LONG_FIXTURES = {"smoke", "browser"}
LONG_FILES = {  # solvers, kills, long trainings and commands that run a whole study or fit
    "test_appendix_command.py",
    "test_diagnose_command.py",
    "test_fit.py",
    "test_generate.py",
    "test_grow.py",
    "test_kolmogorov.py",
    "test_ks.py",
    "test_masked_study.py",
    "test_paper_presets.py",
    "test_trainer_killed.py",
    "test_transonic.py",
    "test_transonic_data.py",
}


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items):
    """Mark what takes long, and let it start first, the longest before the rest, so that two workers end together."""
    for item in items:
        if LONG_FIXTURES & set(item.fixturenames) or item.path.name in LONG_FILES:
            item.add_marker("long")
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, item.path.name not in LONGEST))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Types and shapes are checked at every call where a law is tested, not in whole studies, whose time they double."""
    before = checking.jaxtyping_disable
    checking.update("jaxtyping_disable", item.get_closest_marker("long") is not None)
    try:
        return (yield)
    finally:
        checking.update("jaxtyping_disable", before)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """On a CI a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if on_ci() and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
