"""A flow that a small network can learn in seconds: advection by one grid point per frame."""

import torch
from torch import nn

from biasbound.core.schedule import log_uniform
from biasbound.data.batches import Batch
from biasbound.models.diffusion import Diffusion
from biasbound.models.model import Frame, target_of
from biasbound.models.task import Forecast

SCHEDULE = log_uniform(4, 0.05, 0.99)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def advected(count, points=16, seed=0, frames=2, dtype=torch.float32):
    """Windows (B, W, 1, N): smooth random waves, each frame the one before moved by one point."""
    generator = torch.Generator().manual_seed(seed)
    k = torch.arange(1, 4, dtype=torch.float64)
    grid = torch.arange(points, dtype=torch.float64) / points
    phase = 2 * torch.pi * torch.rand(count, 3, 1, generator=generator, dtype=torch.float64)
    size = torch.randn(count, 3, 1, generator=generator, dtype=torch.float64)
    moved = torch.stack([grid - w / points for w in range(frames)])
    waves = torch.sin(2 * torch.pi * k[:, None, None] * moved + phase[..., None])
    return (size[..., None] * waves).sum(1)[:, :, None].to(dtype)


def batch(count, told=0, **how):
    """The same as a batch, with `told` channels that only inform."""
    frames = advected(count, **how)
    return Batch(frames, torch.randn(count, told, frames.shape[-1], generator=seeded(8)).to(frames))


def frame(scale=(), history=1, channels=1):
    """What a model of the toy flow works on; a scale makes the target residual."""
    task = Forecast(history)
    return Frame(channels, task, target_of((scale,) if isinstance(scale, float) else scale, task, channels))


def diffusion(net, prediction="v", scale=(), schedule=SCHEDULE, transition="renoise", history=1):
    return Diffusion(net, frame(scale, history), schedule=schedule, prediction=prediction, transition=transition)


class Filter(nn.Module):
    """Two linear filters over the circle, mixed by functions of the log-SNR: enough for an exact answer."""

    def __init__(self, condition=1, points=16, noise=True):
        super().__init__()
        self.noise = noise
        self.mix = nn.Parameter(torch.zeros(2, condition + 1, points, points))
        self.told = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2 * (condition + 1)))

    def forward(self, z_t, x=None, log_snr=None):
        fields = z_t if x is None else torch.cat([z_t, x], 1)
        told = torch.zeros(len(fields), device=fields.device) if log_snr is None else log_snr
        features = torch.stack([told / 5, torch.sigmoid(told)], 1).to(fields)
        weights = self.told(features).reshape(len(fields), 2, -1)[:, :, : fields.shape[1]] + 1
        return torch.einsum("bmc,mcij,bcj->bi", weights, self.mix[:, : fields.shape[1]], fields)[:, None]


def stirred(net, std=0.2, seed=0):
    """The same network with weights that are neither zero nor exact."""
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(std * torch.randn(p.shape, generator=seeded(seed)))
    return net


def exact(y_t, x, sigma):
    """A denoiser without error where y = x."""
    return x.clone()
