"""Kolmogorov flow: two-dimensional turbulence driven by a shear force, by a spectral method.

    u_t + u·∇u = −∇p + ν ∇²u − α u + χ sin(κ y) x̂,     ∇·u = 0,     (x, y) ∈ [0, 2π)² periodic

The state is the vorticity ω = ∂_x v − ∂_y u in Fourier space; pressure never appears. In two dimensions its advection
needs the products uv and v² − u² alone, four transforms in all (Basdevant 1983):

    ω_t = (∂_y² − ∂_x²)(uv) − ∂_x ∂_y (v² − u²) − χ κ cos(κ y) + (ν ∇² − α) ω

Modes with |k| ≤ (N − 1)/3 along each axis are kept, so no product of two aliases onto them. Time steps are ETDRK4.

Mean velocity. ω does not determine the mean ū of u, which obeys ū_t = −α ū (the force has mean zero). The unused
number ω̂(0) holds ū_x + i ū_y: its linear operator is −α, and the mean flow carries the vortices as it must.

Points. Fields are given at cell centres, x_i = (i + ½) 2π/N, axis −2 is x and axis −1 is y. The mean of r × r
neighbouring centres is then the r-point estimate of the mean over the coarse cell around its own centre, with the
force in phase on every grid. The paper's source takes the same block mean of its face values, so each of its
components is off centre by half a fine cell along its own axis; here none is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from math import ceil, pi
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from biasbound.data.layout import Block, Layout, Split, demand, stream
from biasbound.flows.etdrk import ETDRK4
from biasbound.flows.flow import Size


class KolmogorovSolver:
    """The equation on N × N points: velocity ↔ modes, and time steps.

    Modes have shape (B, K+1, N), K = (N − 1)//3: k_y = 0 … K, then k_x in FFT order (zero beyond ±K), so that the
    complex transforms run along memory. They are Fourier coefficients, free of N.
    """

    def __init__(
        self,
        points: int,
        *,
        nu: float = 1e-3,
        drag: float = 0.1,
        force: float = 1.0,
        wavenumber: int = 4,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> None:
        if not 1 <= wavenumber <= (points - 1) // 3:
            few = f"{points} points do not resolve the force's wavenumber {wavenumber}"
            raise ValueError(f"KolmogorovFlow: {few}: use at least {3 * wavenumber + 1} points.")
        self.points, self.modes_kept = points, (points - 1) // 3
        self.nu, self.drag, self.force, self.wavenumber = nu, drag, force, wavenumber
        self.dtype, self.device = dtype, device
        self._kx = torch.fft.fftfreq(points, 1 / points, dtype=torch.float64, device=device)
        self._ky = torch.arange(self.modes_kept + 1, dtype=torch.float64, device=device)[:, None]
        kept = (self._kx.abs() <= self.modes_kept).double()
        self._k2 = self._kx**2 + self._ky**2
        inverse = kept / self._k2.clamp(min=1)
        # u = i k_y/k² ω, v = −i k_x/k² ω, and the mean flow: real and imaginary part of ω̂(0).
        biot_savart = torch.stack([1j * self._ky * inverse, -1j * self._kx * inverse])
        biot_savart[:, 0, 0] = torch.tensor([1, -1j])
        self._biot_savart = biot_savart.to(dtype.to_complex())
        both = [(self._kx**2 - self._ky**2) * kept, self._kx * self._ky * kept]
        self._uv, self._vv_uu = (c.to(dtype)[..., None].repeat_interleave(2, -1) for c in both)
        self._steps: dict[float, ETDRK4] = {}
        self._kept: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def _nonlinear(self, w: Complex[Tensor, "B M N"], out: Complex[Tensor, "B M N"]) -> None:
        """Modes of (∂_y² − ∂_x²)(uv) − ∂_x ∂_y (v² − u²) − χ κ cos(κ y)."""
        n, half = self.points, self.modes_kept + 1
        turned, padded, product = self._arrays(len(w))
        torch.mul(w[:, None], self._biot_savart, out=turned)
        padded[..., :half] = torch.fft.ifft(turned, norm="forward").mT
        u, v = torch.fft.irfft(padded, n=n, norm="forward").unbind(1)
        torch.mul(u, v, out=product[:, 0])
        torch.mul(v, v, out=product[:, 1]).addcmul_(u, u, value=-1)
        turned.copy_(torch.fft.rfft(product, norm="forward")[..., :half].mT)
        uv, vv_uu = torch.view_as_real(torch.fft.fft(turned, norm="forward")).unbind(1)
        torch.mul(self._uv, uv, out=torch.view_as_real(out)).addcmul_(self._vv_uu, vv_uu)
        out[:, self.wavenumber, 0] -= self.force * self.wavenumber / 2

    def _arrays(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Where `_nonlinear` works: modes, modes with all k_y (zero above K, and kept so), points."""
        if batch not in self._kept:
            n, m, kind = self.points, self.modes_kept + 1, self.dtype.to_complex()
            shapes = ((m, n), kind), ((n, n // 2 + 1), kind), ((n, n), self.dtype)
            with torch.inference_mode(False):  # so that they serve inside and outside of it
                turned, padded, product = (torch.zeros(batch, 2, *s, dtype=d, device=self.device) for s, d in shapes)
            self._kept = {batch: (turned, padded, product)}
        return self._kept[batch]

    def step(self, w: Complex[Tensor, "B M N"], dt: float) -> Complex[Tensor, "B M N"]:
        """Modes one step of size `dt` later."""
        return self._scheme(dt)(w)

    def _scheme(self, dt: float) -> ETDRK4:
        if dt not in self._steps:
            linear = -self.nu * self._k2 - self.drag
            self._steps[dt] = ETDRK4(linear, dt, self._nonlinear, self.dtype)
        return self._steps[dt]

    def modes(self, velocity: Float[Tensor, "B 2 N N"]) -> Complex[Tensor, "B M N"]:
        """ω̂ = i k_x v̂ − i k_y û and the mean flow, of a velocity at the N × N cell centres."""
        if velocity.shape[1:] != (2, self.points, self.points):
            wanted = f"(B, 2, {self.points}, {self.points})"
            raise ValueError(f"KolmogorovFlow: velocity must have shape {wanted}, got {tuple(velocity.shape)}.")
        spectrum = torch.fft.rfft2(velocity.to(self.dtype), norm="forward")
        u_k, v_k = spectrum[..., : self.modes_kept + 1].mT.unbind(1)
        kept = self._kx.abs() <= self.modes_kept
        curl = 1j * (self._kx * v_k - self._ky * u_k) * kept * self._centre(self.points).conj()
        curl[:, 0, 0] = u_k[:, 0, 0] + 1j * v_k[:, 0, 0]
        w: Tensor = curl.to(self.dtype.to_complex())
        return w

    def velocity(self, w: Complex[Tensor, "B M N"], grid: int | None = None) -> Float[Tensor, "B 2 n n"]:
        """(u, v) on `grid` × `grid` cells (default N): means over blocks of point values.

        The point values stand at the centres of the coarsest grid that has at least N points and that `grid` divides.
        So a divisor of N averages the solver's own points, and grid ≥ N interpolates without averaging.
        """
        n = self.points if grid is None else grid
        block = ceil(self.points / n)
        fine, kept = n * block, self.modes_kept
        velocity_k = w[:, None] * self._biot_savart * self._centre(fine)
        if fine != self.points:
            gap = velocity_k.new_zeros(*velocity_k.shape[:-1], fine - 2 * kept - 1)
            velocity_k = torch.cat([velocity_k[..., : kept + 1], gap, velocity_k[..., -kept:]], -1)
        mixed = torch.fft.ifft(velocity_k, norm="forward").mT.contiguous()
        cells = torch.fft.irfft(mixed, n=fine, norm="forward").unflatten(-2, (n, block))
        means: Tensor = cells.unflatten(-1, (n, block)).mean((-3, -1))
        return means

    def _centre(self, points: int) -> Complex[Tensor, "M N"]:
        """e^{i k·x} at the first cell centre: the shift from the corner to the centre of cells."""
        return torch.exp(1j * pi / points * (self._kx + self._ky)).to(self.dtype.to_complex())

    def speed(self, w: Complex[Tensor, "B M N"]) -> Float[Tensor, " B"]:
        """max |u| + |v|: with the step and the spacing it makes the Courant number."""
        return self.velocity(w).abs().sum(1).amax((-2, -1))

    def substeps(self, dt: float, cfl: float = 1.0, max_speed: float = 7.0) -> int:
        """The fewest equal steps h over `dt` with Courant number h max(|u| + |v|)/Δx ≤ `cfl`."""
        return ceil(dt * max_speed * self.points / (2 * pi * cfl))

    def frames(
        self, w: Complex[Tensor, "B M N"], dt: float, *, cfl: float = 1.0, max_speed: float = 7.0
    ) -> Iterator[Complex[Tensor, "B M N"]]:
        """Modes at the times 0, dt, 2 dt, … without end, in `substeps` of `max_speed`.

        A trajectory found to be faster at either end of a frame takes it again with twice the steps, alone. The kept
        modes are stable up to a Courant number of about 1.35 (2.8 on the imaginary axis over 2π/3).
        """
        substeps, speed = self.substeps(dt, cfl, max_speed), self.speed(w)
        while True:
            yield w
            with torch.inference_mode():
                w, speed = self._frame(w, speed, dt, substeps, cfl)
            w = w.clone()  # an ordinary tensor again

    def _frame(
        self, w: Tensor, speed: Tensor, dt: float, substeps: int, cfl: float, tries: int = 5
    ) -> tuple[Tensor, Tensor]:
        """Modes and speed one frame later, with as many more substeps as each trajectory needs."""
        if tries == 0:
            above = f"the Courant number stays above {cfl} with {substeps // 2} steps per frame of {dt}"
            cure = f"raise points (now {self.points}) or nu (now {self.nu})"
            raise ValueError(f"KolmogorovFlow: {above}: the flow is not resolved; {cure}.")
        new, scheme = w.clone(), self._scheme(dt / substeps)
        for _ in range(substeps):
            scheme.advance_(new)
        new_speed = self.speed(new)
        allowed = cfl * 2 * pi / self.points * substeps / dt
        fast = ~((new_speed <= allowed) & (speed <= allowed))  # true for NaN
        if fast.any():
            again = self._frame(w[fast], speed[fast], dt, 2 * substeps, cfl, tries - 1)
            new[fast], new_speed[fast] = again
        return new, new_speed


def initial_modes(rng: np.random.Generator, solver: KolmogorovSolver) -> Complex[Tensor, "M N"]:
    """White noise through the filter p(k)/k, free of divergence, with the largest speed 3.

    p is the lognormal density with mode 4 and variance ¼ of log k. On vorticity the filter is p itself. Noise is drawn
    in growing squares of modes, so that every resolution starts from the same flow.
    """
    kept = solver.modes_kept
    kx, ky = np.meshgrid(np.arange(-kept, kept + 1), np.arange(kept + 1))
    order = np.lexsort((kx.ravel(), ky.ravel(), np.maximum(abs(kx), ky).ravel()))
    noise = np.empty(kx.size, complex)
    noise[order] = rng.standard_normal((kx.size, 2)) @ [1, 1j]
    k = np.hypot(kx, ky).clip(min=1e-9)
    w = noise.reshape(kx.shape) * np.exp(-2 * (np.log(k / 4) - 0.25) ** 2) / k
    w[0, :kept] = w[0, :kept:-1].conj()  # ω is real: along k_y = 0 one half mirrors the other
    w[0, kept] = 0
    modes = torch.from_numpy(w).to(solver.device, solver.dtype.to_complex())
    out = modes.new_zeros(kept + 1, solver.points)
    out[:, : kept + 1], out[:, -kept:] = modes[:, kept:], modes[:, :kept]
    # The largest speed is sought on at least 256² points, so that it hardly depends on N.
    speed = solver.velocity(out[None], max(solver.points, 256)).square().sum(1).sqrt().amax()
    return out * (3 / speed)


@dataclass(frozen=True)
class KolmogorovFlow:
    """Kolmogorov flow in two dimensions, Re = 1/ν = 1000.

    It is computed on `points`² grid points; frames are block means on a grid of `grid`². `max_speed` and the Courant
    number `cfl` set the usual number of steps per frame; faster flow takes more.
    """

    split: Split = "train"
    seed: int = 0
    trajectories: int = 800
    frames: int = 64
    warmup: int = 64
    points: int = 256
    grid: int = 64
    nu: float = 1e-3
    drag: float = 0.1
    force: float = 1.0
    wavenumber: int = 4
    dt: float = 0.2
    cfl: float = 1.0
    max_speed: float = 7.0
    precision: Literal["float64", "float32"] = "float64"
    batch: int = 2
    device: str = "cpu"
    sizes: ClassVar[Mapping[str, Size]] = {
        "smoke": Size(
            {"frames": 8, "warmup": 8, "points": 32, "grid": 16, "nu": 1e-2}, {"trajectories": 4}, {"trajectories": 2}
        ),
        "small": Size({"points": 128, "precision": "float32", "batch": 4}, {"trajectories": 48}, {"trajectories": 8}),
        "paper": Size({}, {"trajectories": 800}, {"trajectories": 100}),
    }

    def __post_init__(self) -> None:
        demand(self, "1 or more", lambda v: v >= 1, "trajectories", "frames", "grid", "batch")
        demand(self, "0 or more", lambda v: v >= 0, "warmup", "seed", "drag")
        demand(self, "positive", lambda v: v > 0, "nu", "dt", "cfl", "max_speed")
        demand(self, "float64 or float32", lambda v: v in ("float64", "float32"), "precision")

    @property
    def layout(self) -> Layout:
        shape = self.trajectories, self.frames, ("velocity_x", "velocity_y"), (self.grid, self.grid)
        domain = ((0.0, 2 * pi), (0.0, 2 * pi))
        return Layout("kolmogorov", *shape, self.dt, domain, ("periodic", "periodic"), self.batch, points="centre")

    def provenance(self) -> dict[str, Any]:
        return {
            "equation": "u_t + u.grad u = -grad p + nu lap u - drag u + force sin(wavenumber y) x",
            "scheme": "Fourier pseudo-spectral vorticity, 2/3 dealiasing, ETDRK4, block mean",
            "initial": "noise filtered by lognormal(k; mode 4, variance 0.25)/k, largest speed 3",
            **asdict(self),
        }

    @torch.no_grad()
    def block(self, start: int, stop: int) -> Block:
        equation = {name: getattr(self, name) for name in ("nu", "drag", "force", "wavenumber")}
        solver = KolmogorovSolver(self.points, dtype=getattr(torch, self.precision), device=self.device, **equation)
        streams = [stream(self.seed, self.split, i) for i in range(start, stop)]
        w = torch.stack([initial_modes(rng, solver) for rng in streams])
        states = solver.frames(w, self.dt, cfl=self.cfl, max_speed=self.max_speed)
        kept = islice(states, self.warmup, self.warmup + self.frames)
        return Block(torch.stack([solver.velocity(w, self.grid) for w in kept], 1).cpu().numpy())
