"""A model trained with diffusers: where does its chain leave its training data, and which few levels does it need?

    python examples/03_diffusers.py [UPDATES]        # needs pip install 'biasbound[interop]'

Training and sampling are diffusers' own loops. The five lines in `laddered` are all that biasbound adds.
"""

import sys

import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

import biasbound as bb
from biasbound.core.interop.diffusers import denoiser_of
from biasbound.core.options import SearchOptions


def pairs(count: int, seed: int, points: int = 16):
    """Smooth random fields, and the same moved by one point along each axis."""
    noise = torch.randn(count, 1, points, points, generator=torch.Generator().manual_seed(seed))
    k = torch.fft.fftfreq(points) * points
    kept = torch.exp(-(k[:, None] ** 2 + k[None] ** 2) / 4)
    x = torch.fft.ifft2(torch.fft.fft2(noise) * kept).real
    x = x / x.std()
    return x, x.roll((1, 1), (2, 3))


def make():
    """A small U-Net that sees y_t and x along its channels, and the scheduler that it is trained with."""
    torch.manual_seed(0)
    unet = UNet2DModel(
        in_channels=2,
        out_channels=1,
        block_out_channels=(16, 16),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
    )
    return unet, DDPMScheduler(1000, prediction_type="v_prediction", clip_sample=False)


def train(unet, scheduler, updates: int) -> None:
    """The loop of diffusers' tutorials."""
    x, y = pairs(512, seed=1)
    optimiser = torch.optim.Adam(unet.parameters(), 2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    for _ in range(updates):
        rows, t = torch.randint(512, (16,)), torch.randint(1000, (16,))
        eps = torch.randn_like(y[rows])
        y_t = scheduler.add_noise(y[rows], eps, t)
        output = unet(torch.cat([y_t, x[rows]], 1), t).sample
        loss = (output - scheduler.get_velocity(y[rows], eps, t)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()


@torch.no_grad()
def sampled(unet, scheduler, x):
    """diffusers' sampling loop, for any of its schedulers and for ours."""
    torch.manual_seed(0)
    y = torch.randn_like(x)
    for t in scheduler.timesteps:
        y = scheduler.step(unet(torch.cat([y, x], 1), t).sample, t, y).prev_sample
    return y


@torch.no_grad()
def laddered(unet, scheduler, x, y):
    """The scheduler of the ladder that suits this network."""
    lowest, *_, highest = bb.Schedule.from_diffusers(scheduler).sigma
    denoiser = denoiser_of(unet, scheduler)
    found = bb.diagnose(denoiser, x, y, SearchOptions(levels=10, sigma_min=lowest, sigma_max=highest))
    print(f"{len(found.stable)} of {len(found.levels)} levels are stable")
    return None if found.ladder is None else found.ladder.to_diffusers(like=scheduler)


def main(updates: int = 600) -> None:
    unet, scheduler = make()
    train(unet, scheduler, updates)
    unet.eval()
    x, y = pairs(16, seed=2)
    ladder = laddered(unet, scheduler, x, y)
    if ladder is None:
        print("no ladder: train longer, or raise τ")
        return
    print("ladder:", ", ".join(f"{s:.4g}" for s in ladder.schedule.sigma))
    plain = DDIMScheduler.from_config(scheduler.config)
    plain.set_timesteps(20)
    for name, one in (("DDIM", plain), ("the ladder", ladder)):
        error = (sampled(unet, one, x) - y).square().mean().sqrt()
        print(f"{len(one.timesteps):3d} calls with {name}: error {error:.3g} of the data's spread")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
