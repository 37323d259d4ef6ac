"""Networks of the user's own: made from what was given, and called as ours are.

What is given is an architecture `(spec, noisy)` as in `build`, an `nn.Module` class or any other callable that returns a
module, or a module. A class or callable gets, by the names in its signature, `in_channels`, `out_channels`, `grid`,
`dims`, `noisy` and `spec`, and the user's options. A module is copied: every training starts from its weights.

How a module is called is read from the signature of its `forward`:

    forward(z_t, x, log_snr)     as ours; `timestep` may stand for `log_snr`
    forward(field, log_snr)      field: z_t and x along the channels
    forward(sample, timestep)    the same, as diffusers does; the answer may be an object with `.sample`
    forward(field)               z_t, x and a constant plane log-SNR/10 along the channels

With λ the log-SNR, the timestep is 25 (20 − λ), between 0 and 1000: it rises with the noise as diffusers' does, and
levels that are evenly spaced in λ stay so. Without noise (a direct model) the field is x alone. An argument that
cannot be left out is then a constant: λ = 0, and zeros for z_t.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.core.noise import Condition, State

__all__ = ["Call", "Foreign", "adopt", "timestep"]

CONDITION = ("x", "cond", "condition")  # names of a second argument that is x, even where it has a default
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
PLANE = 0.1  # log-SNRs are tens: as a channel they are scaled like the others


def timestep(log_snr: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """25 (20 − log-SNR), cut off at 0 and 1000."""
    return (25 * (20 - log_snr)).clamp(0, 1000)


@dataclass(frozen=True)
class Call:
    """How a module's `forward` wants to be called."""

    apart: bool  # z_t and x are two arguments
    alone: bool  # of which the second can be left out
    told: str | None  # the argument that says how much noise there is
    clock: bool  # by a timestep
    needed: bool  # and cannot be left out

    @classmethod
    def of(cls, module: nn.Module) -> Call:
        """From the names in its signature."""
        first, rest = (found := _arguments(module.forward))[:1], found[1:]
        told = next((p for p in rest if _tells(p.name)), None)
        others = [p for p in rest if p is not told and p.default is p.empty]
        second = next((p for p in rest[:1] if p is not told and p.kind in POSITIONAL), None)
        apart = second is not None and (second in others or second.name in CONDITION)
        if not first or len(others) > apart or (apart and told is None):
            said = ", ".join(p.name for p in found)
            raise ValueError(
                f"{type(module).__name__}.forward({said}) cannot be called: it may take (z_t, x, log_snr), "
                "(field, log_snr), (sample, timestep) or (field); rename its arguments, or give the others defaults"
            )
        return cls(
            apart=apart,
            alone=apart and second not in others,
            told=None if told is None else told.name,
            clock=told is not None and "snr" not in told.name,
            needed=told is not None and told.default is told.empty,
        )

    def channels(self, spec: Any, noisy: bool) -> int:
        """Of all fields that the module gets."""
        if noisy:
            return int(spec.inputs + spec.outputs + (self.told is None))
        return int(spec.inputs + (spec.outputs if self.apart and not self.alone else 0))


class Foreign(nn.Module):
    """A module of the user's as ours are called: net(z_t, x, log_snr), or net(x) without noise.

    Its parameters keep their names, behind `module.`.
    """

    def __init__(self, module: nn.Module, spec: Any) -> None:
        super().__init__()
        self.module, self.call, self.spec = module, Call.of(module), spec
        self._fits = False  # until its first answer

    def forward(
        self, first: Float[Tensor, "B _ *N"], x: Condition | None = None, log_snr: Float[Tensor, " B"] | None = None
    ) -> State:
        fields, told = self._given(first, x, log_snr)
        answer: State
        if self._fits:
            answer = _tensor(self.module(*fields, **told))
            return answer
        try:
            answer = _tensor(self.module(*fields, **told))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            shapes = " and ".join(str(tuple(f.shape)) for f in fields)
            raise ValueError(
                f"{self._name} does not take fields of shape {shapes} ({_line(error)}): {self._needs}"
            ) from error
        expected = (first.shape[0], self.spec.outputs, *first.shape[2:])
        got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        if got != expected:
            raise ValueError(f"{self._name} must return shape (B, C, *N) = {expected}, got {got}: {self._needs}")
        self._fits = True
        return answer

    def state_dict(self, *args: Any, **how: Any) -> Any:
        """Tensors alone: neuraloperator's models put their arguments among them."""
        found = super().state_dict(*args, **how)
        for name in [name for name, value in found.items() if not isinstance(value, Tensor)]:
            del found[name]
        return found

    def _given(self, first: Any, x: Any, log_snr: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Fields and keywords of the module."""
        call, noisy = self.call, x is not None
        level = log_snr if noisy else first.new_zeros(first.shape[0])
        fields = [first, x] if noisy else [first]
        if not noisy and call.apart and not call.alone:
            fields = [first.new_zeros(first.shape[0], self.spec.outputs, *first.shape[2:]), first]
        if noisy and not call.apart:
            if call.told is None:
                plane = PLANE * level.reshape(-1, *[1] * (first.ndim - 1))
                fields.append(plane.expand(-1, 1, *first.shape[2:]))
            fields = [torch.cat(fields, 1)]
        if call.told is None or not (noisy or call.needed):
            return fields, {}
        return fields, {call.told: timestep(level) if call.clock else level}

    @property
    def _name(self) -> str:
        return f"the network {type(self.module).__name__}"

    @property
    def _needs(self) -> str:
        noisy, direct = (self.call.channels(self.spec, noisy) for noisy in (True, False))
        return (
            f"it gets {_count(noisy)} in a diffusion model and {_count(direct)} in a direct one, and returns "
            f"{self.spec.outputs}"
        )


def adopt(thing: Any, spec: Any, noisy: bool) -> nn.Module:
    """A fresh network of a spec (`NetSpec`), from an architecture, a class, another callable or a module."""
    if isinstance(thing, nn.Module):
        if spec.options:
            raise ValueError(f"{spec.name} is a module already and takes no options: {', '.join(spec.options)}")
        return Foreign(copy.deepcopy(thing.module if isinstance(thing, Foreign) else thing), spec)
    if not callable(thing):
        raise ValueError(f"{spec.name} is neither a module nor what makes one: it is of type {type(thing).__name__}")
    takes, chance = _parameters(thing, spec.name), torch.get_rng_state()
    told = spec.inputs + (spec.outputs if noisy else 0)
    module = _made(thing, takes, spec, noisy, told)
    if {"spec", "noisy"} <= takes.keys() and _as_ours(module, noisy):
        return module
    made = Foreign(module, spec)
    right = made.call.channels(spec, noisy)
    if right != told and "in_channels" in takes:  # only its forward says how many; the same random numbers again
        torch.set_rng_state(chance)
        made = Foreign(_made(thing, takes, spec, noisy, right), spec)
    return made


def _made(thing: Any, takes: dict[str, inspect.Parameter], spec: Any, noisy: bool, channels: int) -> nn.Module:
    known = {
        "in_channels": channels,
        "out_channels": spec.outputs,
        "grid": spec.grid,
        "dims": len(spec.grid),
        "noisy": noisy,
        "spec": spec,
    }
    given = {name: value for name, value in known.items() if name in takes}
    every = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    options = {name: value for name, value in spec.options.items() if every or name in takes}
    strange = sorted(spec.options.keys() - options.keys())
    if strange and "spec" not in takes:  # which has the options too
        raise ValueError(f"{spec.name} takes no option {strange[0]!r}; it takes {', '.join(takes)}")
    required = [
        n for n, p in takes.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if missing := [name for name in required if name not in {**given, **options}]:
        raise ValueError(
            f"{spec.name} needs {', '.join(missing)}: give {'it' if len(missing) == 1 else 'them'} as options"
        )
    try:
        module = thing(**{**given, **options})
    except (TypeError, ValueError, AttributeError, RuntimeError, KeyError, IndexError, AssertionError) as error:
        if "spec" in takes and isinstance(error, ValueError):  # an architecture's own sentence
            raise
        raise ValueError(
            f"{spec.name} cannot be made with {_spelled({**given, **options})}: {_line(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{spec.name} must return a torch.nn.Module, not {type(module).__name__}")
    return module


def _parameters(thing: Any, name: str) -> dict[str, inspect.Parameter]:
    """What it can be given by name. A class is asked for its `__init__`: a `__new__` may hide it."""
    whole = isinstance(thing, type)
    try:
        found = list(inspect.signature(thing.__init__ if whole else thing).parameters.values())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} has no signature that says what it takes: write a function around it") from error
    return {p.name: p for p in (found[1:] if whole else found)}


def _arguments(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    """Of a forward: those that count here, and one for *args."""
    found = list(inspect.signature(forward).parameters.values())
    return [
        p
        for p in found
        if p.kind in POSITIONAL or (p.kind is p.KEYWORD_ONLY) or (p.kind is p.VAR_POSITIONAL and p is found[0])
    ]


def _tells(name: str) -> bool:
    """Whether an argument of this name is how noisy the field is."""
    return "snr" in name or "time" in name or name == "t"


def _as_ours(module: nn.Module, noisy: bool) -> bool:
    """Whether a module of an architecture can be called as it stands."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*range(3 if noisy else 1)).arguments
    except TypeError:
        return False
    return not (noisy and any(_tells(name) for name in list(bound)[:2]))


def _tensor(answer: Any) -> Any:
    """What a module returned, out of an object with `.sample` or a tuple."""
    if isinstance(answer, tuple | list):
        return answer[0]
    return answer if isinstance(answer, Tensor) else getattr(answer, "sample", answer)


def _count(channels: int) -> str:
    return "1 channel" if channels == 1 else f"{channels} channels"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


def _spelled(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if name != "spec")
