"""Networks by name: the paper's three, and small ones for CPUs."""

from __future__ import annotations

from biasbound.nets.config import UNetConfig

__all__ = ["mini", "paper"]

# Channels of the emulated state, channels of the condition x, width, padding. The Mach number of
# the transonic flow is a channel of x only.
PAPER: dict[str, tuple[int, int, int, tuple[str, ...]]] = {
    "ks": (1, 1, 64, ("circular",)),
    "kolmogorov": (2, 2, 64, ("circular", "circular")),
    "transonic": (4, 5, 128, ("zeros", "zeros")),
}

MINI = {
    (1, "small"): (32, (1, 1, 1)),
    (1, "large"): (48, (1, 2, 2)),
    (2, "small"): (24, (1, 1, 1)),
    (2, "large"): (24, (1, 2, 2)),
    (3, "small"): (16, (1, 1, 1)),
    (3, "large"): (16, (1, 2, 2)),
}


def paper(case: str) -> UNetConfig:
    """The paper's denoiser network for "ks", "kolmogorov" or "transonic"."""
    if case not in PAPER:
        raise ValueError(f"the paper has no network for {case!r}; choose from {', '.join(PAPER)}")
    state, condition, width, padding = PAPER[case]
    return UNetConfig(
        in_channels=state + condition,
        out_channels=state,
        dims=len(padding),
        width=width,
        multipliers=(1, 1, 1),
        block="convnext",
        blocks=2,
        middle=True,
        attention=True,
        padding=padding,
        embedding=4 * width,
    )


def mini(
    size: str = "small", *, in_channels: int = 2, out_channels: int = 1, padding: tuple[str, ...] = ("circular",)
) -> UNetConfig:
    """A lean denoiser network for CPUs, "small" or "large".

    The number of paddings makes it 1-D, 2-D or 3-D. Small networks converge within minutes, large ones
    within an hour. Large networks are wider at the coarse levels, where that is cheap.
    """
    if (len(padding), size) not in MINI:
        raise ValueError(
            f"there is no mini network {size!r} in {len(padding)} dimensions; "
            'choose the size "small" or "large" and 1, 2 or 3 dimensions'
        )
    width, multipliers = MINI[len(padding), size]
    return UNetConfig(
        in_channels=in_channels,
        out_channels=out_channels,
        dims=len(padding),
        width=width,
        multipliers=multipliers,
        padding=padding,
    )
