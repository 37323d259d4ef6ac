"""A model trained with azula: where does its chain leave its training data, and which few levels does it need?

    python examples/04_azula.py [UPDATES]            # needs pip install azula

Training and sampling are azula's own. The five lines in `laddered` are all that biasbound adds.
"""

import sys

import torch
from azula.denoise import KarrasDenoiser
from azula.noise import VPSchedule
from azula.sample import DDIMSampler
from torch import nn

import biasbound as bb
from biasbound.core.interop.azula import denoiser_of, sampler_of
from biasbound.core.options import SearchOptions


def pairs(count: int, seed: int, points: int = 32):
    """Smooth random waves, and the same moved by one point."""
    noise = torch.randn(count, 1, points, generator=torch.Generator().manual_seed(seed))
    kept = torch.exp(-(torch.arange(points // 2 + 1) ** 2) / 4)
    x = torch.fft.irfft(torch.fft.rfft(noise) * kept)
    x = x / x.std()
    return x, x.roll(1, 2)


class Backbone(nn.Module):
    """Circular convolutions that see y_t, x and log σ/α."""

    def __init__(self, width: int = 32):
        super().__init__()
        sizes = [(3, width), (width, width), (width, width), (width, 1)]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 5, padding=2, padding_mode="circular") for a, b in sizes)

    def forward(self, x_t, t, cond):
        told = t.reshape(-1, 1, 1).expand(len(x_t), 1, x_t.shape[-1]) / 4
        h = torch.cat([x_t, cond, told], 1)
        for layer in self.layers[:-1]:
            h = nn.functional.silu(layer(h))
        return self.layers[-1](h)


def train(denoiser, updates: int) -> None:
    """azula's loss at random times."""
    x, y = pairs(512, seed=1)
    optimiser = torch.optim.Adam(denoiser.parameters(), 3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    for _ in range(updates):
        rows = torch.randint(512, (64,))
        loss = denoiser.loss(y[rows], torch.rand(64), cond=x[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()


@torch.no_grad()
def laddered(model, x, y):
    """azula's sampler on the ladder that suits this model."""
    lowest, *_, highest = bb.Schedule.from_azula(model.schedule, steps=64).sigma
    denoiser = denoiser_of(model, by="cond")
    found = bb.diagnose(denoiser, x, y, SearchOptions(levels=16, sigma_min=lowest, sigma_max=highest))
    print(f"{len(found.stable)} of {len(found.levels)} levels are stable")
    return found.ladder, None if found.ladder is None else sampler_of(model, found.ladder.sigma)


def main(updates: int = 1500) -> None:
    torch.manual_seed(0)
    model = KarrasDenoiser(Backbone(), VPSchedule())
    train(model, updates)
    x, y = pairs(64, seed=2)
    ladder, sampler = laddered(model.eval(), x, y)
    if ladder is None:
        print("no ladder: train longer, or raise τ")
        return
    print("ladder:", ", ".join(f"{s:.4g}" for s in ladder.sigma))
    for name, one in (("DDIM", DDIMSampler(model, steps=20, silent=True)), ("the ladder", sampler)):
        torch.manual_seed(0)
        error = (one(torch.randn_like(x), cond=x) - y).square().mean().sqrt()
        print(f"{one.steps:3d} calls with {name}: error {error:.3g} of the data's spread")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
