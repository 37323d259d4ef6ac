r"""Where the error of a rollout comes from, by one step of a reference solver from the emulator's own state.

    x^k − x̂^k  =  [x^k − G(x̂^{k−1})]  +  [G(x̂^{k−1}) − x̂^k]
      total         inherited drift         own error at the own state

The drift is what the solver G itself would make of the state that it was given: no emulator can mend it. The own error
over its value at the true state, ‖G(x^{k−1}) − M(x^{k−1})‖, is the exposure bias in time: 1 for an emulator that is as good
on its own states as on true ones. In mean squares the parts add up with their cross term, total = drift + own + cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from biasbound.metrics.arrays import Array, double
from biasbound.metrics.errors import Scale
from biasbound.metrics.intervals import bootstrap
from biasbound.metrics.scene import Result

__all__ = ["Parts", "split"]

Table = Float64[Tensor, "S K"]


@dataclass(frozen=True)
class Parts:
    """Predictions x̂^k, the truth x^k, and what follows from the states before them; each (S, K, C, *N).

    A state for which there is no G is NaN there: its errors are not finite.
    """

    prediction: Array
    truth: Array
    reference: Array  # G(x̂^{k−1})
    at_truth: Array  # M(x^{k−1}), the emulator's own step from the true state
    reference_at_truth: Array  # G(x^{k−1}), which is x^k where the data hold all that the solver knows


def split(parts: Parts, steps: Sequence[int], spread: Scale | None = None) -> Iterator[Result]:
    """Mean squares of the parts at each step, in units of `spread` where it is given, and the ratio of own errors.

    `split_floor` is the reference's own error at the true state: what was lost by storing the data.
    """
    made, true, there, own, follow = (double(each) for each in vars(parts).values())
    unit = torch.ones(made.shape[2]) if spread is None else torch.tensor([float(s) for s in spread])
    unit = unit.double().reshape(-1, *[1] * (made.ndim - 3))
    total, drift, error = (true - made) / unit, (true - there) / unit, (there - made) / unit
    exposed, floor = (follow - own) / unit, (true - follow) / unit
    tables = {
        "split_total": _product(total, total),
        "split_drift": _product(drift, drift),
        "split_own": _product(error, error),
        "split_cross": 2 * _product(drift, error),
        "split_true": _product(exposed, exposed),
        "split_floor": _product(floor, floor),
    }
    for i, step in enumerate(steps):
        for name, table in tables.items():
            yield Result(name, bootstrap(table[:, i]), step)
        ratio = tables["split_own"][:, i].mean() / tables["split_true"][:, i].mean()
        yield Result("split_ratio", ratio.sqrt(), step)


def _product(a: Tensor, b: Tensor) -> Table:
    return (a * b).flatten(2).mean(2)
