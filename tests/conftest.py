import pytest
import torch
from calling import TINY
from hypothesis import settings

from biasbound.cli import main

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
