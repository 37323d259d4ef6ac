"""Your own network, your own training loop, your own data: diagnose it and give it a ladder.

    python examples/02_own_network.py                     # makes waves.h5, trains, saves net.safetensors, diagnoses
    cd examples && biasbound diagnose 02_own_network:denoiser --data waves.h5 --out diagnosis

Nothing of biasbound is inside the network: a denoiser is any function (y_t, x, sigma) → estimate of y, where
y_t = √(1 − σ²) y + σ ε is the noisy next state and x the present one.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from biasbound.core.diagnose import diagnose
from biasbound.core.options import SearchOptions
from biasbound.core.sample import sample
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories

HERE = Path(__file__).parent
WEIGHTS = HERE / "net.safetensors"


class MyNet(nn.Module):
    """A few circular convolutions that see y_t, x and log σ, and predict the noise."""

    def __init__(self, width: int = 32):
        super().__init__()
        sizes = [(3, width), (width, width), (width, width), (width, 1)]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 9, padding=4, padding_mode="circular") for a, b in sizes)

    def forward(self, y_t: torch.Tensor, x: torch.Tensor, sigma: torch.Tensor | float):
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(len(y_t))
        a, s = ((1 - level**2).sqrt(), level)
        told = (a / s).log().to(y_t).reshape(-1, 1, 1).expand(-1, 1, y_t.shape[-1])
        h = torch.cat([y_t, x, told / 4], 1)
        for layer in self.layers[:-1]:
            h = torch.nn.functional.gelu(layer(h))
        eps, a, s = self.layers[-1](h), a.to(y_t)[:, None, None], s.to(y_t)[:, None, None]
        return (y_t - s * eps) / a


def make_data(path: Path, count: int = 64, frames: int = 24, points: int = 32) -> None:
    """Two dispersive waves of random phase and amplitude, u_t = −u_xxx on a periodic line."""
    random = np.random.default_rng(0)
    x, t = 2 * np.pi * np.arange(points) / points, 0.15 * np.arange(frames)[:, None]
    fields = np.zeros((count, frames, points))
    for k in (1, 2):
        amplitude, phase = (random.uniform(0.5, 1, (count, 1, 1)), random.uniform(0, 6.3, (count, 1, 1)))
        fields += amplitude * np.sin(k * x + k**3 * t + phase)
    made = Trajectories.from_array(fields[:, :, None].astype(np.float32), dt=0.15, name="waves")
    save(made, path, overwrite=True)


def train(path: Path, updates: int = 600) -> MyNet:
    """A plain loop: levels log-uniform in the noise-to-signal ratio, Adam, mean squared error."""
    torch.manual_seed(0)
    net, data = MyNet(), load(path)
    windows, scale = data.pairs(), float(data.statistics.std[0])
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    for _ in range(updates):
        batch = windows[torch.randint(len(windows), (64,)).numpy()]
        x, y = batch.x / scale, batch.y / scale
        sigma = torch.sigmoid(torch.empty(64).uniform_(math.log(0.01), 6)).double() * 0.9998
        level = sigma.float()[:, None, None]
        y_t = (1 - level**2).sqrt() * y + level * torch.randn_like(y)
        loss = ((net(y_t, x, sigma) - y) / (level / (1 - level**2).sqrt())).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()
    return net


def denoiser() -> MyNet:
    """The factory that `biasbound diagnose 02_own_network:denoiser` calls."""
    net = MyNet()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def main(updates: int = 600) -> None:
    make_data(HERE / "waves.h5")
    save_file(train(HERE / "waves.h5", updates).state_dict(), WEIGHTS)
    pairs = load(HERE / "waves.h5").pairs()[:128]
    scale = float(load(HERE / "waves.h5").statistics.std[0])
    x, y = pairs.x / scale, pairs.y / scale
    found = diagnose(denoiser(), x, y, SearchOptions(levels=16, sigma_min=0.01))
    print(f"{len(found.stable)} of {len(found.levels)} levels are stable")
    if found.ladder is None:
        print("no ladder: train longer, or raise τ")
        return
    print("ladder:", ", ".join(f"{s:.3g}" for s in found.ladder.sigma))
    print("REB at its end:", found.along_ladder[0].reb)
    with torch.no_grad():
        y_est = sample(denoiser(), x, found.ladder, generator=torch.Generator().manual_seed(0))
    print(f"one-step error of the chain: {(y_est - y).square().mean().sqrt():.3g} of the data's spread")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
