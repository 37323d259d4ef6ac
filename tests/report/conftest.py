import shutil

import pytest
from browsing import Watched, browsers, skip_without_browser
from report_study import EVIL, fabricate

from biasbound.report.page import write_page
from biasbound.report.study import read_study


def pytest_collection_modifyitems(items):
    skip_without_browser(items)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run folder with analytic content, which no test may change."""
    return fabricate(tmp_path_factory.mktemp("report") / "run", dataset=EVIL)


@pytest.fixture(scope="session")
def study(run):
    return read_study(run)


@pytest.fixture(scope="session")
def flow(tmp_path_factory):
    """The same in two dimensions."""
    return fabricate(tmp_path_factory.mktemp("report") / "flow", rank=2, points=16, frames=9, methods=["unet"])


@pytest.fixture
def copy(run, tmp_path):
    """A run folder of the test's own."""
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture(scope="session")
def file(study, tmp_path_factory):
    return write_page(study, tmp_path_factory.mktemp("page") / "index.html")


@pytest.fixture(scope="session")
def browser():
    yield from browsers()


@pytest.fixture(scope="session")
def opened(browser, file):
    """The page of `run`, which tests share: each sets the controls that it reads."""
    watched = Watched(browser, file, viewport={"width": 1280, "height": 900})
    yield watched
    watched.context.close()


@pytest.fixture
def tab(opened):
    return opened.tab


@pytest.fixture(scope="session")
def visitor(browser, file):
    """A second tab, for pages that a test makes: `visitor.visit(file)`."""
    watched = Watched(browser, file, viewport={"width": 1280, "height": 900})
    yield watched
    watched.context.close()
