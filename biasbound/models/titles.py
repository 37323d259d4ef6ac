"""What tables and figures call a method."""

from __future__ import annotations

from typing import Any

from biasbound.core.schedule import SCHEDULES

__all__ = ["FINETUNES", "SAMPLERS", "title"]

BASES = {
    "refiner": "PDE-Refiner",
    "log-uniform": "Log-uniform",
    "edm": "EDM",
    "flow": "Rectified flow",
    "recfm": "RecFM",
    "meanflow": "Improved MeanFlow",
    "flowrefiner": "FlowRefiner",
    "member": "Direct with noise",
}
FINETUNES = {"proxy": "Proxy UT", "full": "Full UT", "crps": "CRPS", "ucrps": "unrolled CRPS"}
NETWORKS = {"unet": "U-Net", "fno": "FNO", "dilated": "dilated ResNet", "dit": "DiT"}
SAMPLERS = {"2m": "DPM-Solver++(2M)", "heun": "Heun", "ode": "no fresh noise"}


def title(method: Any) -> str:
    """The title of a `Method`: its base and training, then what else tells it from others."""
    base = method.file.stem if method.file else method.schedule or method.model
    name = BASES.get(base, base[:1].upper() + base[1:].replace("-", " "))
    if method.finetune:
        name += f" + {FINETUNES[method.finetune]}"
    elif method.unroll:
        name += f" {'PF' if method.pushforward else 'UT'}, U={method.unroll + 1}"
    elif base in SCHEDULES or method.model == "direct":
        name += " TF"
    told = {
        NETWORKS.get(method.network, method.network): bool(method.network),
        f"{method.prediction}-prediction": method.prediction != "eps",
        "residual target": method.residual,
        "focused": method.focus,
        method.transition: bool(method.transition),
        SAMPLERS.get(method.sampler, method.sampler): bool(method.sampler),
        "1 call" if method.calls == 1 else f"{method.calls} calls": method.calls > 0,
    }
    return ", ".join([name, *(each for each, given in told.items() if given)])
