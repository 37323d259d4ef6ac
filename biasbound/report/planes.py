"""What a picture can show of a field: a line, a plane, or the middle planes of a volume, and familiar quantities there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound.data.trajectories import Trajectories
from biasbound.metrics import vorticity

LETTERS = "xyz"  # of velocity components
LABELS = {  # all other flows are without units
    "transonic": {"pressure": "pressure p / ρ∞a∞²", "vorticity": "vorticity ω D / a∞"},
    "": {"pressure": "pressure p", "vorticity": "vorticity ω"},
}


@dataclass(frozen=True)
class Plane:
    """The axes of the data that a picture shows, one or two; all others are cut in their middle.

    Where the mask hides all of that plane, it is the nearest one with a valid point.
    """

    of: Trajectories
    axes: tuple[int, ...]

    @cached_property
    def cut(self) -> dict[int, int]:
        """The axes that are not shown, each with the number of the point where it is cut."""
        grid, mask = self.of.layout.grid, self.of.mask
        found = {}
        for axis in [a for a in range(len(grid)) if a not in self.axes]:
            others = tuple(a for a in range(len(grid)) if a != axis)
            known = range(grid[axis]) if mask is None else np.flatnonzero(mask.any(others)).tolist()
            found[axis] = min(known, key=lambda point: abs(point - grid[axis] // 2))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the axes that are shown."""
        named = self.of.labels.named(len(self.of.layout.grid))
        return tuple(named[a] for a in self.axes)

    @property
    def place(self) -> str:
        """Where the volume is cut, "z = 0.5"; empty where all of the field is shown."""
        named = self.of.labels.named(len(self.of.layout.grid))
        return ", ".join(f"{named[a]} = {self.of.coordinates[a][point]:.3g}" for a, point in self.cut.items())

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        return tuple(self.of.layout.domain[a] for a in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.of.layout.grid[a] for a in self.axes)

    @property
    def ratio(self) -> float:
        """Height over width of a picture of a plane, within what fits on paper."""
        (left, right), (bottom, top) = self.domain
        return min(2.0, max(0.25, (top - bottom) / (right - left)))

    def part(self, field: np.ndarray) -> np.ndarray:
        """(…, *N) → (…, *n) at the points of the plane."""
        points: Any = (self.cut.get(a, slice(None)) for a in range(len(self.of.layout.grid)))
        return np.asarray(field[(..., *points)])

    @property
    def valid(self) -> np.ndarray | None:
        """The points of the plane that are neither masked nor inside a body; None where all are."""
        grid, mask = self.of.layout.grid, self.of.mask
        if mask is None and len(grid) > 1 and (body := self.of.static.get("mask")) is not None:
            mask = body.reshape(-1, *grid).max(0) >= 0.5
        return None if mask is None else self.part(mask)

    @property
    def hidden(self) -> str:
        """What the points without a value are, for a legend; empty where there are none."""
        if (valid := self.valid) is None or valid.all():
            return ""
        return "masked points" if self.of.mask is not None else "body"

    def quantities(self, fields: Float[np.ndarray, "K C *N"]) -> dict[str, Float[np.ndarray, "K ..."]]:
        """What to show of some frames, by name; the most familiar quantity is the first.

        Pressure and vorticity of a gas, vorticity of a flow, else the channels: with a mask always these, since a
        vorticity is not known at its edge. Values inside a body and at masked points are NaN. Axes go upwards,
        whichever way they are stored (latitudes often go down).
        """
        shown = self.part(fields)
        named = {name: shown[:, c] for c, name in enumerate(self.of.channels)}
        found = self._flow(named) or (named if len(self.axes) == 1 else dict([*named.items()][:3]))
        if (valid := self.valid) is not None:
            found = {name: np.where(valid, values, np.nan) for name, values in found.items()}
        ends = {i: self.of.coordinates[a] for i, a in enumerate(self.axes)}
        down = tuple(i - len(ends) for i, points in ends.items() if points[-1] < points[0])
        return {name: np.flip(values, down) for name, values in found.items()}

    def _flow(self, named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Of a velocity its rotation in the plane, ω = ∂_x v − ∂_y u, and the pressure; nothing of other fields.

        In a volume it is the component along the axis that is cut, (∇ × u)_z, (∇ × u)_x, or −ω = (∇ × u)_y.
        """
        letters = [LETTERS[a] for a in self.axes if a < len(LETTERS)]
        if self.of.mask is not None or len(letters) < 2 or min(self.shape) < 3:
            return {}
        if {"density", *(f"momentum_{a}" for a in letters)} <= {*named}:
            named = named | {f"velocity_{a}": named[f"momentum_{a}"] / named["density"] for a in letters}
        if not {f"velocity_{a}" for a in letters} <= {*named}:
            return {}
        spacing = [float(self.of.coordinates[a][1] - self.of.coordinates[a][0]) for a in self.axes]
        periodic = [self.of.layout.boundary[a] == "periodic" for a in self.axes]
        velocity = np.stack([named[f"velocity_{a}"] for a in letters], 1)
        omega = vorticity(velocity, periodic=periodic, spacing=spacing)[:, 0].numpy()
        label = LABELS.get(self.of.layout.name, LABELS[""])
        pressure = {label["pressure"]: named["pressure"]} if "pressure" in named else {}
        if [*self.cut] == [1]:
            omega = -omega
        along = "".join(f"_{LETTERS[a]}" for a in self.cut)
        return {label["vorticity"].replace("ω", f"ω{along}"): omega} | pressure


def planes(of: Trajectories) -> tuple[Plane, ...]:
    """All that there is to show: the field itself, or the middle planes of a volume, that across its last axis first."""
    rank = len(of.layout.grid)
    return tuple(Plane(of, axes) for axes in combinations(range(rank), min(rank, 2)))


def quantities(of: Trajectories, fields: Float[np.ndarray, "K C *N"]) -> dict[str, Float[np.ndarray, "K ..."]]:
    """`Plane.quantities` of the first plane, each with the place where a volume is cut in its name."""
    plane = planes(of)[0]
    return {placed(name, plane): values for name, values in plane.quantities(fields).items()}


def placed(name: str, plane: Plane) -> str:
    return f"{name} at {plane.place}" if plane.place else name
