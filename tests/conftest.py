import pytest
import torch
from hypothesis import settings

# Random examples, but the same ones on every run: a red test must be red again.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
torch.set_num_threads(1)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)
