r"""From the O-grid to the window x ∈ [−1.5, 10.5], y ∈ [−3, 3], by the path of the original data.

Fields are interpolated to 256×128 points that include the ends of the window, and then brought to the wanted size by
`scipy.ndimage.zoom` of order 3 in grid mode (the mask of order 0). With h = 12/255 the zoomed points are the centres
of equal cells on [−1.5 − h/2, 10.5 + h/2], likewise in y: at 128×64 they are the mid-points of pairs.

Interpolation is bilinear in (r, θ) between cell centres. Inside the cylinder, where there is no gas, velocity is 0,
and ρ and p run smoothly from their wall values to the mean of these at the centre.
"""

import warnings

import numpy as np
from jaxtyping import Bool, Float, Float64
from scipy import ndimage, sparse

from biasbound.flows.transonic.grid import Grid

Points = Float64[np.ndarray, " n"]
_POINTS = (256, 128)
_ENDS = ((-1.5, 10.5), (-3.0, 3.0))
# Zoomed points are the centres of equal cells on this rectangle, whatever their number.
DOMAIN = tuple(
    (low - 0.5 * (high - low) / (n - 1), high + 0.5 * (high - low) / (n - 1))
    for (low, high), n in zip(_ENDS, _POINTS, strict=True)
)


class Window:
    """Linear maps from the cells of an O-grid, with two ghosts per side, to `size` points, x first."""

    def __init__(self, grid: Grid, size: tuple[int, int]) -> None:
        if not all(4 <= n <= most for n, most in zip(size, _POINTS, strict=True)):
            raise ValueError(f"resolution {size}: use 4×4 to {_POINTS[0]}×{_POINTS[1]} points.")
        self.grid, self.size = grid, size
        x, y = np.meshgrid(*(np.linspace(*e, n) for e, n in zip(_ENDS, _POINTS, strict=True)), indexing="ij")
        radius, angle = np.hypot(x, y).ravel(), np.arctan2(y, x).ravel() % (2 * np.pi)
        fluid = radius > 0.5
        self._velocity, self._scalar = _weights(grid, radius, angle, fluid)
        self.mask = self._zoom(fluid.astype(np.float64).reshape(_POINTS), order=0)

    def __call__(self, w: Float[np.ndarray, "4 R4 C4"]) -> Float64[np.ndarray, "4 X Y"]:
        """(u, v, ρ, p) at the points of the window from the ρ, u, v, p of a flow."""
        cells = w.reshape(4, -1).T.astype(np.float64)
        planes = np.concatenate([self._velocity @ cells[:, 1:3], self._scalar @ cells[:, ::3]], axis=1)
        return np.stack([self._zoom(plane.reshape(_POINTS)) for plane in planes.T])

    def _zoom(self, plane: Float64[np.ndarray, "a b"], order: int = 3) -> Float64[np.ndarray, "X Y"]:
        factors = [n / m for n, m in zip(self.size, _POINTS, strict=True)]
        with warnings.catch_warnings():
            # SciPy would prefer another edge mode; the original took this one.
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(ndimage.zoom(plane, factors, order=order, grid_mode=True))


def _weights(
    grid: Grid, radius: Points, angle: Points, fluid: Bool[np.ndarray, " n"]
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Interpolation matrices (points × cells with ghosts) for velocity and for ρ, p."""
    rings = np.hypot(grid.nodes[0, :, 0], grid.nodes[1, :, 0])
    rays = np.unwrap(np.arctan2(grid.nodes[1, 0], grid.nodes[0, 0]))
    ring, ray = 0.5 * (rings[1:] + rings[:-1]), 0.5 * (rays[1:] + rays[:-1])
    ring = np.concatenate([[1 - ring[0]], ring])  # one ghost, mirrored in the wall
    ray = np.concatenate([[ray[-1] - 2 * np.pi], ray, [ray[0] + 2 * np.pi]])
    row = np.interp(radius, ring, np.arange(1.0, ring.size + 1))
    column = np.interp(angle, ray, np.arange(1.0, ray.size + 1))
    rows, columns = (n + 4 for n in grid.shape)
    velocity = _bilinear(row, column, fluid.astype(float), (rows, columns))
    # Inside: (2r)² parts of the wall value at the same angle, the rest of the mean over the wall.
    inside = np.where(fluid, 0.0, 4 * radius**2)
    wall = _bilinear(np.full_like(row, 2.0), column, inside, (rows, columns))
    mean = np.zeros((rows, columns))
    mean[2, 2:-2] = grid.across[2, 0] / grid.across[2, 0].sum()
    rest = np.where(fluid, 0.0, 1 - inside).reshape(-1, 1)
    centre = sparse.csr_array(rest) @ sparse.csr_array(mean.reshape(1, -1))
    return velocity, sparse.csr_array(velocity + wall + centre)


def _bilinear(row: Points, column: Points, scale: Points, shape: tuple[int, int]) -> sparse.csr_array:
    """scale × interpolation at fractional (row, column) of an array of that shape, flattened."""
    low, left = row.astype(int), column.astype(int)
    up, right = row - low, column - left
    cells = [(low + i) * shape[1] + left + j for i in (0, 1) for j in (0, 1)]
    weights = [a * b * scale for a in (1 - up, up) for b in (1 - right, right)]
    points = np.tile(np.arange(row.size), 4)
    entries = np.concatenate(weights), (points, np.concatenate(cells))
    return sparse.csr_array(entries, shape=(row.size, shape[0] * shape[1]))
