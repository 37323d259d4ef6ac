"""A small training that the tests of fitting share."""

import torch
from toys import Filter, advected

from biasbound.core.denoise import VDenoiser
from biasbound.core.schedule import log_uniform
from biasbound.models.losses import diffusion_loss
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

SCHEDULE = log_uniform(4, 0.05, 0.99)


DATA = advected(256, frames=3)


def options(**changes):
    return FitOptions(
        **(
            {"updates": 60, "batch": 16, "log_every": 5, "checkpoint_every": 10, "lr": 0.02}
            | changes
        )
    )


def diffusion(model, frames, generator):
    return diffusion_loss(model, frames[:, 0], frames[:, 1], SCHEDULE, generator=generator)


def trainer(changes=None, loss=diffusion, model=None, **more):
    torch.manual_seed(0)
    model = model or VDenoiser(Filter())
    return Trainer(
        model,
        loss,
        lambda i: DATA[torch.as_tensor(i)],
        len(DATA),
        options(**(changes or {})),
        **more,
    )


def weights(of):
    return {k: v.clone() for k, v in of.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
