"""Every method of the comparison by its label: which model, which loss, which noise schedule.

A label is a base with options appended: `unet`, `unet-residual`, `unet-ut1` (one frame beyond the first), `unet-pf1` (the
same with the gradient cut between frames), `linear`, `cosine`, `sigmoid`, `log-uniform`, `refiner`, and `adaptive` for a
searched schedule with ε-prediction; `-v`, `-x0` and `-residual` choose the parameterisation and the target, `-focus` trains
the lowest level more than the others, and `-proxy` stands for the fine-tuned model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from biasbound.core.denoise import PREDICTIONS, NetDenoiser
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.models.artifact import Model
from biasbound.models.losses import (
    diffusion_loss,
    direct_loss,
    informed,
    proxy_unrolled_loss,
    refiner_loss,
)
from biasbound.models.predict import DirectPredictor, Refiner
from biasbound.nets import ConditionalNet, DirectNet, UNetConfig

__all__ = ["LABELS", "Method", "method", "order_of", "title_of"]

FOCUS = 0.6  # share of the lowest level, which makes the sample; those above only have to be good enough for τ
LABELS = ("unet", "refiner", "adaptive", *SCHEDULES)
TITLES = {  # in the order of the paper's tables
    "unet": "U-Net",
    "linear": "Linear",
    "cosine": "Cosine",
    "sigmoid": "Sigmoid",
    "log-uniform": "Log-uniform",
    "refiner": "PDE-Refiner",
    "adaptive": "Adaptive",
}
OPTIONS = {
    "v": "v-prediction",
    "x0": "x0-prediction",
    "residual": "residual target",
    "focus": "focused",
}


@dataclass(frozen=True)
class Method:
    """What is trained. `unroll` is the number of frames in the loss beyond the first."""

    label: str
    base: str
    prediction: str = "eps"  # of `denoise.PREDICTIONS`
    residual: bool = False
    unroll: int = 0
    pushforward: bool = False
    proxy: bool = False
    proxy_steps: int = 0  # n of P⁽ⁿ⁾
    detach: bool = False  # no gradient through the proxy
    lowest: float | None = None  # share of the samples that train σ_0; None: as many as any level
    levels: int = 20  # T of a fixed schedule
    refinements: int = 3  # K of the refiner
    sigma_min: float = 3e-3  # of the refiner

    @property
    def window(self) -> int:
        """Frames after the first that a batch must hold."""
        return 1 + self.unroll

    def schedule(self) -> Schedule | None:
        """The fixed noise schedule, where the method has one."""
        return SCHEDULES[self.base](self.levels) if self.base in SCHEDULES else None

    def finetuned(self, unroll: int = 1) -> Method:
        """The same model with Proxy Unrolled Training."""
        return replace(self, label=f"{self.label}-proxy", proxy=True, unroll=unroll)

    def explored(self) -> Method:
        """The method whose exploration gives this one's ladder: there is no lowest level to focus on before it ends."""
        parts = self.label.split("-")
        return method("-".join(part for part in parts if part not in ("focus", "proxy")))

    def model(self, network: UNetConfig, scale: float) -> Model:
        """A fresh model over `network`, a denoiser's; `scale` is the spread of y − x."""
        channels, residual = network.out_channels, scale if self.residual else None
        if self.base == "unet":
            return DirectPredictor(DirectNet(network.deterministic()), channels, residual)
        net = ConditionalNet(network)
        if self.base == "refiner":
            return Refiner(
                net, channels, steps=self.refinements, sigma_min=self.sigma_min, residual=residual
            )
        return PREDICTIONS[self.prediction](net, residual)

    def loss(
        self, schedule: Callable[[], Schedule] | None = None
    ) -> Callable[[nn.Module, Any, torch.Generator], Tensor]:
        """The loss of a batch with `frames` (B, W, C, *N) and `conditions` (B, P, *N).

        `schedule` is asked at every update, because an exploration's shrinks.
        """

        def compute(model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
            frames, extra = batch.frames, batch.conditions
            if isinstance(model, DirectPredictor):
                return direct_loss(model, frames, pushforward=self.pushforward, conditions=extra)
            x, y = informed(frames[:, 0], extra), frames[:, 1]
            if isinstance(model, Refiner):
                return refiner_loss(model, x, y, generator=generator)
            assert isinstance(model, NetDenoiser)
            assert schedule is not None
            if not self.proxy:
                return diffusion_loss(
                    model, x, y, schedule(), generator=generator, lowest=self.lowest
                )
            return proxy_unrolled_loss(
                model,
                frames,
                schedule(),
                n=self.proxy_steps,
                detach=self.detach,
                conditions=extra,
                generator=generator,
                lowest=self.lowest,
            )

        return compute


def method(label: str) -> Method:
    """The method of a label; a label that is none is refused with those that are."""
    base = next((b for b in LABELS if label == b or label.startswith(f"{b}-")), None)
    rest = [] if base is None else [part for part in label.removeprefix(base).split("-") if part]
    made = Method(label, base or "")
    for part in rest:
        unrolled = re.fullmatch(r"(ut|pf)(\d+)", part)
        if part in PREDICTIONS and base not in ("unet", "refiner"):
            made = replace(made, prediction=part)
        elif part == "residual":
            made = replace(made, residual=True)
        elif part == "focus" and base not in ("unet", "refiner"):
            made = replace(made, lowest=FOCUS)
        elif part == "proxy" and base not in ("unet", "refiner"):
            made = replace(made, proxy=True, unroll=1)
        elif unrolled and base == "unet":
            made = replace(made, unroll=int(unrolled[2]), pushforward=unrolled[1] == "pf")
        else:
            base = None
    if base is None:
        raise ValueError(
            f"unknown method {label!r}: choose one of {', '.join(LABELS)}, with -residual, -v or -x0, -focus, -proxy, and for "
            "unet -ut1, -pf1, … appended"
        )
    if "proxy" in label.removesuffix("-proxy").split("-"):  # without its end it names its training
        right = "-".join([base, *(part for part in rest if part != "proxy"), "proxy"])
        raise ValueError(f"-proxy must end the method {label!r}: write {right}")
    return made


def _titled(label: str) -> str | None:
    return next((b for b in TITLES if label == b or label.startswith(f"{b}-")), None)


def title_of(label: str) -> str:
    """A method's name in the paper's words; somebody else's label is its own title.

    `unet-ut1` has two frames in its loss and is "U-Net UT, U=2". A fine-tuned model does not
    name its U, which is a setting of the run (`finetune.unroll`) and not of the label.
    """
    base = _titled(label)
    parts = [] if base is None else [p for p in label.removeprefix(base).split("-") if p]
    words, how = [], "" if base in ("refiner", "adaptive") else " TF"
    for part in parts:
        unrolled = re.fullmatch(r"(ut|pf)(\d+)", part)
        if unrolled and base == "unet":
            how = f" {unrolled[1].upper()}, U={int(unrolled[2]) + 1}"
        elif part == "proxy":
            how = " + Proxy UT"
        elif part in OPTIONS:
            words.append(OPTIONS[part])
        else:
            return label
    return label if base is None else ", ".join([TITLES[base] + how, *words])


def order_of(label: str) -> tuple[Any, ...]:
    """The place of a method in a table: (family, then label with ut10 after ut2).

    Families are numbered as in the paper; somebody else's label is behind them all.
    """
    base = _titled(label)
    family = len(TITLES) if base is None else list(TITLES).index(base)
    parts = re.split(r"(\d+)", label)
    return family, [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]
