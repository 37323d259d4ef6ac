import shutil

import pytest
import torch
from browsing import Watched
from calling import TINY
from hypothesis import settings
from report_study import fabricate

from biasbound.cli import main
from biasbound.report.page import write_page
from biasbound.report.study import read_study

# Random examples, but the same ones on every run: a red test must be red again.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
torch.set_num_threads(1)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """A run with one diffusion emulator and one direct one."""
    folder = tmp_path_factory.mktemp("commands") / "run"
    assert main(["train", str(folder), "--method", "linear,unet", *TINY]) == 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with analytic content."""
    return fabricate(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture(scope="module")
def flow(tmp_path_factory):
    """The same in two dimensions."""
    return fabricate(tmp_path_factory.mktemp("report") / "flow", rank=2, points=16, frames=9, methods=["unet"])


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture(scope="module")
def file(run):
    return write_page(read_study(run), run / "index.html")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("no Chromium was found to open the page with; install it: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def opened(browser, file):
    watched = Watched(browser, file, viewport={"width": 1280, "height": 900})
    yield watched
    watched.context.close()


@pytest.fixture
def tab(opened):
    return opened.tab


LONG = (
    "test_studies.py",
    "test_pipeline.py",
    "test_docs.py",
    "test_fit.py",
    "test_fit_killed.py",
    "test_page.py",
    "test_page_ladder.py",
)


def pytest_collection_modifyitems(items):
    """Long files first: two workers that take whole files then end at the same time."""
    items.sort(key=lambda item: item.path.name not in LONG)
