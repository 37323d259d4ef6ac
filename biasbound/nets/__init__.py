"""Networks: one U-Net for 1-D and 2-D fields, with or without the log-SNR as an input.

`config` describes a network and `presets` holds the paper's networks and small ones. `layers` and
`blocks` are the parts; `unet` assembles them.
"""

from biasbound.nets.config import UNetConfig
from biasbound.nets.presets import mini, paper
from biasbound.nets.unet import ConditionalNet, DirectNet, UNet

__all__ = ["ConditionalNet", "DirectNet", "UNet", "UNetConfig", "mini", "paper"]
