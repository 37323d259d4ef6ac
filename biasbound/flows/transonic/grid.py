r"""Structured body-fitted grids and the metrics that a finite-volume scheme needs of them.

Rows r and columns c of cells; (row, column) is right-handed. Every face keeps

    n_x, n_y, |S|             unit normal towards larger r or c, and length,
    |S|/J, T_x/J, T_y/J       of the gradient ∇q = (δ₁q S + δ₂q T)/J, with δ₁ across the face and δ₂ along it.

With e₁ the line between the two cell centres and e₂ the face itself, J = e₁·S and T ⊥ e₁, T·e₂ = J. The normals of a
cell sum to zero by construction, so a uniform flow stays uniform on any grid.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Vectors = Float64[np.ndarray, "2 m n"]


@dataclass(frozen=True)
class Grid:
    """Metrics of R×C cells; `periodic` joins the first and the last row, column."""

    volume: Float64[np.ndarray, "R C"]
    centres: Float64[np.ndarray, "2 R C"]
    nodes: Float64[np.ndarray, "2 R+1 C+1"]  # corners of the cells, (x, y) first
    across: Float64[np.ndarray, "6 R+1 C"]  # faces between rows
    along: Float64[np.ndarray, "6 R C+1"]  # faces between columns
    periodic: tuple[bool, bool]

    @classmethod
    def from_nodes(cls, nodes: Float64[np.ndarray, "2 R1 C1"], periodic: tuple[bool, bool]) -> "Grid":
        """Metrics of the grid with these corners, (x, y) first."""
        a, b = nodes[:, 1:, 1:] - nodes[:, :-1, :-1], nodes[:, :-1, 1:] - nodes[:, 1:, :-1]
        volume = 0.5 * (a[0] * b[1] - a[1] * b[0])
        if not (volume > 0).all():
            raise ValueError("The grid has folded cells, or its rows and columns are left-handed.")
        inner = 0.25 * (nodes[:, 1:, 1:] + nodes[:, :-1, 1:] + nodes[:, 1:, :-1] + nodes[:, :-1, :-1])
        row_face, col_face = nodes[:, :, 1:] - nodes[:, :, :-1], nodes[:, 1:] - nodes[:, :-1]
        row_line = _centre_lines(inner, nodes, periodic[0])
        turned = inner.swapaxes(1, 2), nodes.swapaxes(1, 2)
        col_line = _centre_lines(*turned, periodic[1]).swapaxes(1, 2)
        across = _metrics(_rotate(row_face, -1), row_line, _rotate(row_line, 1))
        along = _metrics(_rotate(col_face, 1), col_line, _rotate(col_line, -1))
        return cls(volume, inner, nodes, across, along, periodic)

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.volume.shape[0], self.volume.shape[1]


def _rotate(vector: Vectors, sign: int) -> Vectors:
    """A quarter turn, anticlockwise for sign 1."""
    return np.stack([-sign * vector[1], sign * vector[0]])


def _centre_lines(centres: Vectors, nodes: Float64[np.ndarray, "2 m+1 n+1"], periodic: bool) -> np.ndarray:
    """From the centre below each row of faces to that above, (2, m+1, n); beyond an edge its mirror image."""
    if periodic:
        period = nodes[:, -1:, :1] - nodes[:, :1, :1]
        ends = centres[:, -1:] - period, centres[:, :1] + period
    else:
        corner, face = nodes[:, [0, -1], :-1], np.diff(nodes[:, [0, -1]], axis=2)
        normal = _rotate(face, 1) / np.hypot(*face)
        edge = centres[:, [0, -1]]
        image = edge + 2 * ((corner - edge) * normal).sum(0) * normal
        ends = image[:, :1], image[:, 1:]
    return np.diff(np.concatenate([ends[0], centres, ends[1]], axis=1), axis=1)


def _metrics(normal: Vectors, line: Vectors, turned: Vectors) -> Float64[np.ndarray, "6 m n"]:
    area = np.hypot(*normal)
    jacobian = (normal * line).sum(0)
    return np.concatenate([normal / area, [area, area / jacobian], turned / jacobian])


def o_grid(around: int, radial: int, *, wall: float | None = None, far: float = 35.0) -> Grid:
    """Rings about the unit-diameter cylinder (rows) out to r = `far`, cut by rays (columns).

    Rays lie denser in the wake, 1 + 2.5 exp(−(θ/0.5)²), and mirror each other about y = 0. Rings start `wall` thick
    and grow by 11/radial of their distance to the wall; those left over go to the wake, r < 11. All spacings scale as
    1/radial or 1/around, so the grids are one family under refinement.
    """
    growth, wall = 11 / radial, 0.34 / radial if wall is None else wall
    r = np.linspace(0.0, 1.0, 20001) ** 3 * (far - 0.5)  # distance to the wall, fine near it
    base = 1 / (wall + growth * r)
    wake = 1 / (1 + (r / 11) ** 6)
    spare = radial - np.trapezoid(base, r)
    if spare < 0.1 * radial:
        few = f"{radial} rings are too few for a first ring of {wall:g} and r = {far:g}"
        raise ValueError(f"cells: {few}; use more rings or a thicker first one.")
    radii = 0.5 + _spread(r, base + wake * spare / np.trapezoid(wake, r), radial)
    half = np.linspace(0.0, np.pi, 4001)
    rays = _spread(half, 1 + 2.5 * np.exp(-((half / 0.5) ** 2)), around // 2)
    angles = np.concatenate([rays, 2 * np.pi - rays[-2::-1]])
    x, y = radii[:, None] * np.cos(angles), radii[:, None] * np.sin(angles)
    x[:, -1], y[:, -1] = x[:, 0], y[:, 0]  # close the rings to the last bit
    return Grid.from_nodes(np.stack([x, y]), (False, True))


def _spread(s: Float64[np.ndarray, " n"], density: Float64[np.ndarray, " n"], cells: int) -> Float64[np.ndarray, " m"]:
    """Edges of `cells` cells on [s₀, s₁] whose sizes go as 1/density."""
    count = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(s))])
    return np.asarray(np.interp(np.linspace(0.0, count[-1], cells + 1), count, s))
