"""One small emulator of each kind, with random weights."""

from toys import SCHEDULE, frame, stirred

from biasbound.models.emulator import Emulator
from biasbound.models.model import MODELS, make
from biasbound.models.normalise import Normalisation
from biasbound.nets import NetSpec
from biasbound.registry import find

UNITS = Normalisation((0.5,), (2.0,))
KINDS = {
    "eps": ("diffusion", frame(), {"schedule": SCHEDULE}),
    "v residual ddpm": ("diffusion", frame(0.3), {"schedule": SCHEDULE, "prediction": "v", "transition": "ddpm"}),
    "x0 ddim": ("diffusion", frame(), {"schedule": SCHEDULE, "prediction": "x0", "transition": "ddim"}),
    "direct": ("direct", frame(), {}),
    "direct residual": ("direct", frame(0.3), {}),
    "direct with history": ("direct", frame(0.3, history=2), {}),
    "refiner": ("refiner", frame(), {"refinements": 2, "sigma_min": 0.02}),
    "edm": ("edm", frame(), {"sampler": "heun", "calls": 3, "sigma_max": 20.0}),
    "recfm residual": ("recfm", frame(0.3), {"calls": 2}),
    "member": ("member", frame(), {}),
}


def model(name):
    kind, own, options = KINDS[name]
    inputs = own.task.inputs(1) + find(MODELS, kind).extra(1)
    spec = NetSpec("unet", inputs, 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]})
    return make(kind, stirred(spec.resolved().build(find(MODELS, kind).noisy), 0.15), own, options)


def emulator(name):
    return Emulator(model(name), UNITS, ("u",), 0.2, meta={"seed": 3, "of": [name]})
