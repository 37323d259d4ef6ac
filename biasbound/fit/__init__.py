r"""One training loop for every method.

A training is a function of (model at the start, data, loss, options): the batch, the noise and the learning rate of
update i follow from the seed and i alone, so a run that is killed and started again ends with the same bits, and one
that is divided among processes sees the same batches and the same noise.
"""

from ..options import FitOptions, learning_rate
from .trainer import Diverged, Observer, Report, Trainer, distributed

__all__ = [
    "Diverged",
    "FitOptions",
    "Observer",
    "Report",
    "Trainer",
    "distributed",
    "learning_rate",
]
