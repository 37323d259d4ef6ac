"""Networks as a user writes them: they know nothing of biasbound."""

from functools import partial

import numpy as np
from torch import nn


class Convolution(nn.Module):
    """A plain network; batch norm and dropout act otherwise while they learn."""

    def __init__(self, in_channels, out_channels, width=8, dims=1, drop=0.0):
        super().__init__()
        conv = partial({1: nn.Conv1d, 2: nn.Conv2d}[dims], kernel_size=3, padding="same", padding_mode="circular")
        norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}[dims]
        self.layers = nn.Sequential(
            conv(in_channels, width), norm(width), nn.GELU(), nn.Dropout(drop), conv(width, out_channels)
        )

    def forward(self, field):
        return self.layers(field)


class Perceptron(nn.Module):
    def __init__(self, in_channels, out_channels, grid, hidden=16):
        super().__init__()
        self.shape = (out_channels, *grid)
        points = int(np.prod(grid))
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(in_channels * points, hidden), nn.Tanh(), nn.Linear(hidden, out_channels * points)
        )

    def forward(self, field):
        return self.layers(field).unflatten(1, self.shape)
