"""Networks: one U-Net for 1-D and 2-D fields, told the log-SNR or not.

`config` says what a network is, `presets` has those of the paper and small ones; `layers` and `blocks` are the
parts, `unet` puts them together.
"""

from biasbound.nets.config import UNetConfig
from biasbound.nets.presets import mini, paper
from biasbound.nets.unet import ConditionalNet, DirectNet, UNet

__all__ = ["ConditionalNet", "DirectNet", "UNet", "UNetConfig", "mini", "paper"]
