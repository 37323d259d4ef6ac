"""The alternatives behind the parts of the networks and of a training step: python benchmarks/throughput_parts.py

Microseconds of CPU time on one thread, forward and backward; the alternatives of a table run in turn, round after round.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from plain_unet import DECAY
from throughput import ROUND, Runs, Timed
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from biasbound.nets import ConditionalNet, layers, mini
from biasbound.train.average import MovingAverage

Table = tuple[str, Runs]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def both_ways(run: Callable[..., Tensor], *tensors: Tensor) -> Callable[[], object]:
    """Forward and backward, for all of `tensors`."""

    def inner() -> object:
        y = run(*tensors)
        return torch.autograd.grad(y, tensors, torch.ones_like(y))

    return inner


def plainly(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What nn.Conv does with padding_mode="circular"."""
    conv = F.conv1d if x.ndim == 3 else F.conv2d
    return conv(F.pad(x, (1, 1) * (x.ndim - 2), mode="circular"), weight, bias)


def wrapped(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """oneDNN's convolution on channels that stand last, wrapped in disjoint pieces."""
    reach = (weight.shape[1] // 2, weight.shape[2] // 2)
    x = layers.wrap(x, reach, ROUND)[0].permute(0, 3, 1, 2)
    return F.conv2d(x, weight.permute(0, 3, 1, 2), bias)


def convolutions_1d() -> Iterator[Table]:
    for b, c, n in ((32, 32, 64), (32, 96, 16)):
        image, weight, bias = leaf(b, 1, n, c), leaf(c, 1, 3, c), leaf(c)
        ours = layers.Conv((c, c), (1, 3), ROUND)
        yield (
            f"1-D convolution, batch {b}, {c} channels, {n} points",
            {
                "nn.Conv1d": both_ways(plainly, leaf(b, c, n), leaf(c, c, 3), bias),
                "conv2d of height 1, channels last": both_ways(wrapped, image, weight, bias),
                "ours: product over shifted copies": both_ways(
                    lambda x, *_, ours=ours: ours(x), image, ours.weight, ours.bias
                ),
            },
        )


def nine_copies(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    columns = layers.shifted_copies(x, 3, "circular")
    return F.linear(torch.cat([columns.roll(1, 1), columns, columns.roll(-1, 1)], -1), weight, bias)


def channels_last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return plainly(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias)


def convolutions_2d() -> Iterator[Table]:
    for b, c, n in ((8, 24, 32), (8, 48, 16)):
        image, weight, bias = leaf(b, n, n, c), leaf(c, 3, 3, c), leaf(c)
        ours = layers.Conv((c, c), (3, 3), ROUND)
        yield (
            f"2-D convolution, batch {b}, {c} channels, {n} × {n} points",
            {
                "nn.Conv2d": both_ways(plainly, leaf(b, c, n, n), leaf(c, c, 3, 3), bias),
                "nn.Conv2d, channels last": both_ways(channels_last, image, weight, bias),
                "product over 9 shifted copies": both_ways(nine_copies, image, leaf(c, 9 * c), bias),
                "ours: wrapped in pieces, channels last": both_ways(
                    lambda x, *_, ours=ours: ours(x), image, ours.weight, ours.bias
                ),
            },
        )


def pointwise() -> Iterator[Table]:
    last, first = leaf(32, 1, 64, 32), leaf(32, 32, 64)
    yield (
        "normalisation and activation, batch 32, 64 points, 32 channels",
        {
            "group_norm(1), channels first": both_ways(lambda x: F.group_norm(x, 1), first),
            "group_norm(8), channels first": both_ways(lambda x: F.group_norm(x, 8), first),
            "rms_norm over channels": both_ways(lambda x: F.rms_norm(x, x.shape[3:]), last),
            "ours: layer_norm of the sample": both_ways(lambda x: F.layer_norm(x, x.shape[1:]), last),
            "GELU": both_ways(F.gelu, last),
            "ours: SiLU": both_ways(F.silu, last),
        },
    )  # fmt: skip


def around_the_gradient() -> Iterator[Table]:
    net = ConditionalNet(mini("small"))
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    lists = list(copy.deepcopy(net).parameters()), list(net.parameters())

    @torch.no_grad()
    def loop() -> None:
        for mean, current in zip(*lists, strict=True):
            mean.mul_(DECAY).add_(current, alpha=1 - DECAY)

    yield (
        f"optimiser and average of weights, {len(lists[0])} tensors",
        {
            "Adam, default": torch.optim.Adam(net.parameters()).step,
            "Adam, foreach": torch.optim.Adam(net.parameters(), foreach=True).step,
            "ours: Adam, fused": torch.optim.Adam(net.parameters(), fused=True).step,
            "average by a loop": loop,
            "AveragedModel.update_parameters": lambda: averaged.update_parameters(net),
            "ours: on lists that are kept": MovingAverage(net, DECAY).update,
        },
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for tables in (convolutions_1d, convolutions_2d, pointwise, around_the_gradient):
        for title, runs in tables():
            timed = Timed(runs, rounds=31, repeats=5)
            print(f"\n{title}")
            for name in runs:
                print(f"  {name:42s}{1e6 * timed.cpu(name):8.0f} µs")
