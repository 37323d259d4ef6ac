"""A method of a study as a value: which model, target, schedule and training. Its label is derived from it.

A label is a base followed by its options, in this order:

    base     direct, refiner, edm, flow, recfm, meanflow, flowrefiner, member, or another registered model; for diffusion
             its schedule: adaptive, a registered one, FILE.json; persistence and interpolation, the first guess of a
             task, which have nothing to train: one of them stands in every table
    -dilated, -fno, …        a network of its own, where it is not the study's
    -v, -x0  the prediction of a diffusion model, where it is not ε
    -residual                the network learns the increment over the task's first guess
    -focus                   the lowest level is trained more than the others
    -ut2, -pf2               direct: two frames in the loss beyond the first; pf cuts the gradient between them
    -ddim, -ddpm             the transition of the chain, where it is not the study's
    -proxy, -full            fine-tuned by Proxy Unrolled Training, or by full unrolling, which a direct model has too
    -crps, -ucrps            fine-tuned on the fair CRPS of two answers, or of two rollouts: member, or a diffusion model
                             through its chain
    -ode, -heun, -2m, -4     the sampler of a trained model and its calls: labels that differ in these alone share a training

`method` reads labels, in any order of the options, and mappings of the fields; it is the only place that does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.mask import Mask
from biasbound.core.sample import Transition
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.models.model import MODELS, Frame, Model, Recipe, Settings, make, target_of
from biasbound.models.task import Task
from biasbound.models.titles import FINETUNES, SAMPLERS, title
from biasbound.nets import NETS, NetSpec
from biasbound.registry import find, known

__all__ = ["ADAPTIVE", "FINETUNES", "GUESSES", "Method", "method", "order_of", "title_of"]

ADAPTIVE = "adaptive"
GUESSES = ("persistence", "interpolation")  # what a table compares all others with
CALLS = 10_000  # network calls per step that a sampler may be asked for
OLD = {"unet": "direct"}  # names that older records and configs use
LATER = {"later": True}  # a field that older keys do not know


@dataclass(frozen=True)
class Method:
    """What is trained. Equal values have equal labels, and a label names one value."""

    model: str = "diffusion"
    schedule: str = ""  # of diffusion: adaptive, a name of SCHEDULES, or a file
    prediction: str = "eps"
    residual: bool = False
    focus: bool = False
    unroll: int = 0  # of direct: frames in the loss beyond the first
    pushforward: bool = False
    transition: str = ""  # empty: the study's
    finetune: str = ""  # a key of FINETUNES that its model has
    network: str = field(default="", metadata=LATER)  # empty: the study's
    sampler: str = field(default="", metadata=LATER)  # empty: that of the training
    calls: int = field(default=0, metadata=LATER)  # per step, where the training leaves them open; 0: its own

    def __post_init__(self) -> None:
        kind = find(MODELS, self.model)
        known_fields = {"model", *kind.accepts, *(["network"] if kind.trained else [])}
        for f in fields(self):
            if getattr(self, f.name) != f.default and f.name not in known_fields:
                raise ValueError(f"a {self.model} model has no {f.name}: leave it out of the method")
        if "schedule" in kind.accepts:
            self._check_chain()
        for name, choices in (("finetune", kind.finetunes), ("sampler", kind.samplers)):
            if (told := getattr(self, name)) and told not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}, not {told!r}")
        if self.network:
            find(NETS, self.network)
        if not 0 <= self.calls <= CALLS:
            raise ValueError(f"calls counts network calls per step, from 1 to {CALLS:,}: {self.calls}")
        if self.unroll < 0 or (self.pushforward and not self.unroll):
            raise ValueError("unroll counts frames beyond the first, and pushforward needs at least one")

    def _check_chain(self) -> None:
        if not self.schedule:
            raise ValueError(
                f"a {self.model} model needs a schedule: {ADAPTIVE}, {', '.join(known(SCHEDULES))}, or a schedule file"
            )
        if self.schedule != ADAPTIVE and not self.file:
            find(SCHEDULES, self.schedule)
        find(PREDICTIONS, self.prediction)
        if self.transition and self.transition not in get_args(Transition):
            raise ValueError(f"the transition is one of {', '.join(get_args(Transition))}, not {self.transition!r}")

    @property
    def file(self) -> Path | None:
        """The schedule file, where the method has one."""
        return Path(self.schedule) if self.schedule.endswith(".json") else None

    @property
    def searched(self) -> bool:
        return self.schedule == ADAPTIVE

    @property
    def label(self) -> str:
        base = (self.file.stem if self.file else self.schedule) or self.model
        return "-".join([base, *self._options()])

    def _options(self) -> list[str]:
        told = {
            self.network: bool(self.network),
            self.prediction: self.prediction != "eps",
            "residual": self.residual,
            "focus": self.focus,
            f"{'pf' if self.pushforward else 'ut'}{self.unroll}": self.unroll > 0,
            self.transition: bool(self.transition),
            self.finetune: bool(self.finetune),
            self.sampler: bool(self.sampler),
            str(self.calls): self.calls > 0,
        }
        return [option for option, given in told.items() if given]

    @property
    def spelling(self) -> str | dict[str, Any]:
        """As a config says it: the label, or a mapping for a schedule file, whose place a label leaves out."""
        told = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        return told if self.file else self.label

    @property
    def title(self) -> str:
        """As a table calls it."""
        return title(self)

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place in a table: first guesses, direct models, fixed schedules, other models, searched ones; then by label."""
        names = [*GUESSES, "direct", *SCHEDULES, *_models(), ADAPTIVE]
        base = self.schedule or self.model
        return names.index(base) if base in names else len(names) - 1, _natural(self.label)

    @property
    def trained(self) -> Method:
        """The method whose training this one starts from: itself, unless it is fine-tuned or sampled in another way."""
        return replace(self.emulated, finetune="")

    @property
    def emulated(self) -> Method:
        """The method whose emulator this one samples: itself, unless it says how."""
        return replace(self, sampler="", calls=0)

    def sampled(self, model: Model) -> None:
        """Let a model of `emulated` answer as this method does."""
        model.resample(self.sampler, self.calls)

    @property
    def explored(self) -> Method:
        """The method whose exploration finds this one's ladder: before it there is no lowest level to focus on."""
        return replace(self.trained, focus=False)

    def recipe(self, unroll: int = 1, n: int = 0, detach: bool = False) -> Recipe:
        """How its loss is made; the numbers are those of a fine-tuning."""
        share = find(MODELS, self.model).focus if self.focus else None
        if self.finetune == "crps":
            return Recipe(share=share, members=2)
        if self.finetune == "ucrps":
            return Recipe(unroll, detach=detach, share=share, members=2)
        if self.finetune:
            return Recipe(unroll, "full" if self.finetune == "full" else "proxy", n, detach, share)
        return Recipe(self.unroll, detach=self.pushforward, share=share)

    def chain(self, levels: int = 20, cap: float | None = None) -> Schedule | None:
        """The schedule that is known before any search, capped where it is a standard one; None for none."""
        if self.file:
            return Schedule.load(self.file)
        if not self.schedule or self.searched:
            return None
        made = find(SCHEDULES, self.schedule)(levels)
        return made if cap is None else made.capped(cap)

    def options(self, settings: Settings) -> dict[str, Any]:
        """What its model is made with beside network and frame: what it reads, and nothing else."""
        found: dict[str, Any] = find(MODELS, self.model).options(self, settings)
        return found

    def widened(self, spec: NetSpec) -> NetSpec:
        """The spec of its network, with the channels that its model adds to x."""
        return replace(spec, inputs=spec.inputs + find(MODELS, self.model).extra(spec.outputs))

    def build(
        self, spec: NetSpec, task: Task, scale: float, options: Mapping[str, Any], mask: Mask | None = None
    ) -> Model:
        """A fresh model around a fresh network; `scale` is the spread of y − guess(x), `mask` the valid points.

        With a mask the network has one more input channel than x: `spec.inputs` counts it.
        """
        kind = find(MODELS, self.model)
        net = self.widened(spec).build(kind.noisy) if kind.trained else None
        target = target_of((scale,) if self.residual else (), task, spec.outputs)
        model = make(self.model, net, Frame(spec.outputs, task, target, mask), options)
        model.recipe = self.recipe()
        return model


def method(told: str | Mapping[str, Any] | Method) -> Method:
    """The method of a label or of a mapping of its fields; one that is none is refused with those that are.

    >>> made = method("adaptive-residual-v")
    >>> made.label, made.title
    ('adaptive-v-residual', 'Adaptive, v-prediction, residual target')
    """
    if isinstance(told, Method):
        return told
    if isinstance(told, Mapping):
        return _from_mapping(told)
    base, options = _divided(told)
    given: dict[str, Any] = {"model": base} if base in _models() else {"schedule": base}
    for option in options:
        name, value = _meaning(option, told)
        if name in given:
            raise ValueError(f"the method {told!r} says its {name} twice")
        given[name] = value
        if option.startswith("pf"):
            given["pushforward"] = True
    try:
        return Method(**given)
    except ValueError as error:
        raise ValueError(f"method {told!r}: {error}") from None


def _from_mapping(told: Mapping[str, Any]) -> Method:
    names = {f.name: f for f in fields(Method)}
    for name, value in told.items():
        if name not in names:
            raise ValueError(f"a method has no field {name!r}; its fields are {', '.join(names)}")
        if type(value) is not type(names[name].default):
            raise ValueError(f"a method's {name} is {value!r}, but it must be like {names[name].default!r}")
    return Method(**told)


def _models() -> tuple[str, ...]:
    """Models that a label may begin with: one with a chain is named by its schedule."""
    return tuple(name for name in known(MODELS) if name != "diffusion")


def _divided(label: str) -> tuple[str, list[str]]:
    """(base, options) of a label; the longest known base wins."""
    file = re.match(r"(.+?\.json)(?:-|$)", label)
    imported = re.match(r"([\w.]+:\w+)(?:-|$)", label)
    bases = sorted((*_models(), *OLD, ADAPTIVE, *known(SCHEDULES)), key=len, reverse=True)
    base = file[1] if file else imported[1] if imported else None
    base = base or next((b for b in bases if label == b or label.startswith(f"{b}-")), None)
    if base is None:
        raise ValueError(
            f"unknown method {label!r}: a method is one of {', '.join((*_models(), ADAPTIVE, *known(SCHEDULES)))} or a "
            "schedule file FILE.json, with options appended: -v, -x0, -residual, -focus, -ut1, -pf1, -ddim, -proxy, -fno"
        )
    return OLD.get(base, base), [part for part in label.removeprefix(base).split("-") if part]


def _meaning(option: str, label: str) -> tuple[str, Any]:
    """(field, value) of one option."""
    unrolled = re.fullmatch(r"(ut|pf)(\d+)", option)
    if unrolled:
        return "unroll", int(unrolled[2])
    if option in ("residual", "focus"):
        return option, True
    if option.isdecimal() and int(option):
        return "calls", int(option)
    if option in known(PREDICTIONS):
        return "prediction", option
    if option in get_args(Transition):
        return "transition", option
    if option in FINETUNES:
        return "finetune", option
    if option in known(NETS):
        return "network", option
    if option in SAMPLERS:
        return "sampler", option
    raise ValueError(f"method {label!r}: there is no option -{option}")


def title_of(label: str) -> str:
    """The title of a label; one that somebody else gave stays as it is."""
    try:
        return method(label).title
    except ValueError:
        return label


def order_of(label: str) -> tuple[Any, ...]:
    """Where a table lists a label; somebody else's stand behind all others."""
    try:
        return method(label).order
    except ValueError:
        return (10_000, _natural(label))


def _natural(label: str) -> list[tuple[int, str]]:
    """So that ut10 comes after ut2."""
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"(\d+)", label)]
