"""A small training that the tests of fitting share."""

import torch
from toys import Filter, batch, diffusion, frame

from biasbound.data.batches import Batch
from biasbound.models.direct import Direct
from biasbound.models.model import Recipe
from biasbound.models.refiner import Refiner
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

DATA = batch(256, frames=3)


def windows(frames=3):
    """What a trainer asks for its batches: the first frames of these windows."""
    return lambda i: Batch(DATA.frames[torch.as_tensor(i), :frames], DATA.conditions[torch.as_tensor(i)])


def trained_by(model, **recipe):
    model.recipe = Recipe(**recipe)
    return model


MODELS = {
    "eps": lambda: diffusion(Filter(), "eps"),
    "x0": lambda: diffusion(Filter(), "x0"),
    "v": lambda: diffusion(Filter()),
    "v residual": lambda: diffusion(Filter(), scale=0.6),
    "focus": lambda: trained_by(diffusion(Filter()), share=0.6),
    "proxy": lambda: trained_by(diffusion(Filter()), unroll=1, between="proxy"),
    "full": lambda: trained_by(diffusion(Filter()), unroll=1, between="full", detach=True),
    "direct residual": lambda: Direct(Filter(), frame(0.6)),
    "direct unrolled": lambda: trained_by(Direct(Filter(), frame()), unroll=1),
    "pushforward": lambda: trained_by(Direct(Filter(), frame()), unroll=1, detach=True),
    "refiner": lambda: Refiner(Filter(), frame(), sigma_min=0.1),
}


def options(**changes):
    told = {"updates": 60, "batch": 16, "log_every": 5, "checkpoint_every": 10, "lr": 0.02}
    return FitOptions(**(told | changes))


def trainer(changes=None, model="v", **more):
    """A training of a model by its name above, or of one's own."""
    torch.manual_seed(0)
    made = MODELS[model]() if isinstance(model, str) else model
    frames = 2 + made.recipe.unroll if hasattr(made, "recipe") else 2
    return Trainer(made, windows(frames), len(DATA.frames), options(**(changes or {})), **more)


def weights(of):
    return {k: v.clone() for k, v in of.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
