"""From a name and a shape to a network: the one registry of architectures.

An architecture is a callable `(spec, noisy) -> nn.Module`. With `noisy` the module is called as `net(z_t, x, log_snr)`, a
noisy target, the condition and the log-SNR of each sample; without, as `net(x)`. Both give a field with the channels of
y. If the architecture has a method `resolve(spec) -> spec`, it is asked first: it fills in defaults and refuses what
does not fit. A resolved spec is all that a saved emulator keeps of its network. `foreign` says what else may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from biasbound.nets.config import UNetConfig
from biasbound.nets.foreign import adopt
from biasbound.nets.presets import mini, paper
from biasbound.nets.unet import ConditionalNet, DirectNet
from biasbound.registry import find, home

__all__ = ["NETS", "NetSpec", "check_dims"]


@dataclass(frozen=True)
class NetSpec:
    """A network as JSON values: its architecture's name, what it maps, and the architecture's own options."""

    name: str
    inputs: int  # channels of x
    outputs: int  # channels of y
    grid: tuple[int, ...] = ()
    boundary: tuple[str, ...] = ()  # "periodic", "open" or "wall" per space axis
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def padding(self) -> tuple[str, ...]:
        """How each axis goes on beyond its end: "circular" or "zeros"."""
        return tuple("circular" if b == "periodic" else "zeros" for b in self.boundary)

    def resolved(self) -> NetSpec:
        """With every default written out; refuses what the architecture cannot do."""
        resolve = getattr(find(NETS, self.name), "resolve", None)
        return self if resolve is None else resolve(self)

    def build(self, noisy: bool) -> nn.Module:
        """A fresh network, which remembers its spec."""
        net: Any = adopt(find(NETS, self.name), self, noisy)
        net.spec = self
        made: nn.Module = net
        return made


def check_dims(spec: NetSpec) -> None:
    """Refuse fields that none of our networks takes."""
    if len(spec.grid) not in (1, 2, 3):
        raise ValueError(f"a network works in one, two or three dimensions, and these fields have {len(spec.grid)}")


class _UNet:
    """A U-Net: each level halves the grid, and meets its counterpart on the way back"""

    def resolve(self, spec: NetSpec) -> NetSpec:
        """Options: `size` (small, large, paper) and any field of `UNetConfig` but its channels."""
        given: dict[str, Any] = dict(spec.options)
        size, dims = given.pop("size", "small"), len(spec.grid)
        check_dims(spec)
        if size == "paper":
            template = paper("ks" if dims == 1 else "kolmogorov")
            if "width" in given:  # as the paper's scales with its width
                given.setdefault("embedding", 4 * given["width"])
        else:
            template = mini(size, padding=("circular",) * dims)
        given |= {"in_channels": spec.inputs + spec.outputs, "out_channels": spec.outputs, "padding": spec.padding}
        made = UNetConfig.from_dict({**template.to_dict(), "dims": dims, **given})
        made = made if made.halvings else made.fitted(spec.grid)
        left_out = {"in_channels", "out_channels", "noise"} | ({"halvings"} if not made.halvings else set())
        return replace(spec, options={k: v for k, v in made.to_dict().items() if k not in left_out})

    def __call__(self, spec: NetSpec, noisy: bool) -> nn.Module:
        channels = spec.inputs + (spec.outputs if noisy else 0)
        config = UNetConfig.from_dict(
            {**spec.options, "in_channels": channels, "out_channels": spec.outputs, "noise": noisy}
        )
        return ConditionalNet(config) if noisy else DirectNet(config)


NETS: dict[str, Callable[[NetSpec, bool], nn.Module]] = home(
    "nets",
    {
        "unet": _UNet(),
        "fno": "biasbound.nets.fno:fno",
        "dilated": "biasbound.nets.dilated:dilated",
        "dit": "biasbound.nets.dit:dit",
    },
)
