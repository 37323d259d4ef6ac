"""Arrays that the tests of metrics share."""

import warnings

import torch

from biasbound import metrics

GRIDS = [(16,), (15,), (8, 8), (7, 9), (12, 6), (5, 8)]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def quiet_fsd(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        return metrics.fsd(*args, **kwargs)
