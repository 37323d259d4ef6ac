r"""One frame of the flow that made some data, from any state on their grid: the reference that an emulator is held to.

A state is lifted to the solver's own points, advanced by the time between two frames, and brought back. On data that hold
all that the solver knows (Kuramoto–Sivashinsky) the lift is exact. Frames of Kolmogorov flow are means over blocks of the
solver's points: the lift undoes the mean of every wave that the coarse grid resolves and leaves the others empty. What is
lost in this way shows as the reference's own error at the true state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import pi
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from biasbound.data.trajectories import Trajectories
from biasbound.flows.kolmogorov import KolmogorovFlow, KolmogorovSolver
from biasbound.flows.ks import KuramotoSivashinsky, trajectory

__all__ = ["Reference", "reference"]

States = Float[np.ndarray, "B C *N"]
Reference = Callable[
    [States, Int64[np.ndarray, " B"]], States
]  # states and the trajectories that they are of ↦ a frame later


def reference(data: Trajectories) -> Reference | None:
    """The reference of data that one of our flows made, by their provenance; None for any others."""
    for kind, make in {KuramotoSivashinsky: _ks, KolmogorovFlow: _kolmogorov}.items():
        if data.provenance.get("generator") == kind.__name__:
            names = {f.name for f in fields(kind)}
            flow = kind(**{k: v for k, v in data.provenance.items() if k in names})
            return _guarded(make(flow, data, max(1, round(data.dt / flow.dt))))  # type: ignore[operator]
    return None


def _guarded(advance: Reference) -> Reference:
    """NaN where a state is not finite, or is one that the solver cannot advance."""

    def guarded(states: States, rows: Int64[np.ndarray, " B"]) -> States:
        made = np.full(states.shape, np.nan)
        fine = np.isfinite(states).all(tuple(range(1, states.ndim)))
        try:
            made[fine] = advance(states[fine], rows[fine])
        except ValueError:  # of one state among them: each alone
            for i in np.flatnonzero(fine):
                try:
                    made[i] = advance(states[[i]], rows[[i]])[0]
                except ValueError:
                    continue
        return made

    return guarded


def _ks(flow: KuramotoSivashinsky, data: Trajectories, frames: int) -> Reference:
    (points,) = data.layout.grid
    own: Mapping[str, Any] = data.parameters if flow.jitter else {}

    def advance(states: States, rows: Int64[np.ndarray, " B"]) -> States:
        told = {name: torch.from_numpy(own[name][rows]) if name in own else getattr(flow, name) for name in _OWN}
        u0 = _interpolated(torch.from_numpy(states[:, 0]).double(), flow.points)
        made = trajectory(u0, frames=2, substeps=flow.substeps * frames, nu=flow.nu, **_longer(told, frames))
        return np.asarray(made[:, 1:, :: flow.points // points].numpy())

    return advance


_OWN = ("dt", "length")


def _longer(told: Mapping[str, Any], frames: int) -> dict[str, Any]:
    return {**told, "dt": told["dt"] * frames}


def _interpolated(u: Float[Tensor, "B n"], points: int) -> Float[Tensor, "B N"]:
    """The same waves on more points; the Nyquist wave, whose phase a grid does not know, is left out."""
    if u.shape[-1] == points:
        return u
    modes = torch.fft.rfft(u)
    modes[..., u.shape[-1] // 2 :] = 0
    found: Tensor = torch.fft.irfft(modes, n=points) * (points / u.shape[-1])
    return found


def _kolmogorov(flow: KolmogorovFlow, data: Trajectories, frames: int) -> Reference:
    if data.layout.grid != (flow.grid, flow.grid):
        raise ValueError(
            f"{data.name} has the grid {data.layout.grid} of a flow on {flow.grid}²: leave data.stride_space at 1 to "
            "split the error of rollouts"
        )
    equation = {name: getattr(flow, name) for name in ("nu", "drag", "force", "wavenumber")}
    solver = KolmogorovSolver(flow.points, dtype=getattr(torch, flow.precision), **equation)

    @torch.no_grad()
    def advance(states: States, rows: Int64[np.ndarray, " B"]) -> States:
        parts = []
        for part in np.array_split(states, -(-len(states) // flow.batch) or 1):
            chain = solver.frames(
                solver.modes(lifted(torch.from_numpy(part).double(), flow.points)),
                flow.dt,
                cfl=flow.cfl,
                max_speed=flow.max_speed,
            )
            for _ in range(frames + 1):
                now = next(chain)
            parts.append(solver.velocity(now, flow.grid).double().numpy())
        return np.concatenate(parts)

    return advance


def lifted(means: Float[Tensor, "B C n n"], points: int) -> Float[Tensor, "B C N N"]:
    r"""Point values at the N × N cell centres, from means over the blocks of an n × n grid.

    A wave e^{ikx} has the block mean T(k) e^{ikX}, T = sin(krh/2)/(r sin(kh/2)), r points h apart around the centre X.
    """
    n = means.shape[-1]
    block = -(-points // n)  # as `KolmogorovSolver.velocity` takes them
    kept = min((n - 1) // 2, (points - 1) // 2)
    k = torch.arange(-kept, kept + 1, dtype=torch.float64)
    h = 2 * pi / (n * block)
    mean = torch.where(k == 0, 1.0, torch.sin(k * block * h / 2) / (block * torch.sin(k * h / 2)))
    phase = torch.exp(0.5j * k * (2 * pi / points - 2 * pi / n))  # from the centre of a cell to that of another grid's
    modes = torch.fft.fft2(means.double(), norm="forward")
    fine = modes.new_zeros(*means.shape[:2], points, points)
    factor = phase / mean
    index = k.long()
    fine[..., index[:, None], index] = modes[..., index[:, None], index] * (factor[:, None] * factor)
    found: Tensor = torch.fft.ifft2(fine, norm="forward").real
    return found
