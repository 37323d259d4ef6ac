"""Networks: `build` has their registry, `config` says what a U-Net is, `presets` has the paper's and small ones.

`layers` and `blocks` are the U-Net's parts, `unet` puts them together. `fno`, `dilated` and `dit` are chains of blocks at
one resolution; `chain` is what they share.
"""

from biasbound.nets.build import NETS, NetSpec
from biasbound.nets.config import UNetConfig
from biasbound.nets.presets import mini, paper
from biasbound.nets.unet import ConditionalNet, DirectNet, UNet

__all__ = ["NETS", "ConditionalNet", "DirectNet", "NetSpec", "UNet", "UNetConfig", "mini", "paper"]
