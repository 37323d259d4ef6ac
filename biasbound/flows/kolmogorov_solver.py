"""Kolmogorov flow: two-dimensional turbulence driven by a shear force, by a spectral method.

    u_t + u·∇u = −∇p + ν ∇²u − α u + χ sin(κ y) x̂,     ∇·u = 0,     (x, y) ∈ [0, 2π)² periodic

The state is the vorticity ω = ∂_x v − ∂_y u in Fourier space; pressure never appears. In two
dimensions its advection needs the products uv and v² − u² alone, four transforms in all
(Basdevant 1983):

    ω_t = (∂_y² − ∂_x²)(uv) − ∂_x ∂_y (v² − u²) − χ κ cos(κ y) + (ν ∇² − α) ω

Modes with |k| ≤ (N − 1)/3 along each axis are kept, so no product of two aliases onto them. Time
steps are ETDRK4.

Mean velocity. ω does not determine the mean ū of u, which obeys ū_t = −α ū (the force has mean
zero). The unused number ω̂(0) holds ū_x + i ū_y: its linear operator is −α, and the mean flow
carries the vortices as it must.

Points. Fields are given at cell centres, x_i = (i + ½) 2π/N, axis −2 is x and axis −1 is y. The
mean of r × r neighbouring centres is then the r-point estimate of the mean over the coarse cell
around its own centre, with the force in phase on every grid. The paper's source takes the same
block mean of its face values, so each of its components is off centre by half a fine cell along
its own axis; here none is.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, pi

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from biasbound.flows.etdrk import ETDRK4


class KolmogorovSolver:
    """The equation on N × N points: velocity ↔ modes, time steps, the terms of its energy balance.

    Modes have shape (B, K+1, N), K = (N − 1)//3: k_y = 0 … K, then k_x in FFT order (zero beyond
    ±K), so that the complex transforms run along memory. They are Fourier coefficients, free of N.
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
            raise ValueError(
                f"KolmogorovFlow: {points} points do not resolve the force's wavenumber "
                f"{wavenumber}: use at least {3 * wavenumber + 1} points."
            )
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

    def _nonlinear(self, w: Complex[Tensor, "B M N"]) -> Complex[Tensor, "B M N"]:
        """Modes of (∂_y² − ∂_x²)(uv) − ∂_x ∂_y (v² − u²) − χ κ cos(κ y)."""
        n, half = self.points, self.modes_kept + 1
        mixed = torch.fft.ifft(w[:, None] * self._biot_savart, norm="forward")
        padded = mixed.new_zeros(*mixed.shape[:2], n, n // 2 + 1)
        padded[..., :half] = mixed.mT
        velocity = torch.fft.irfft(padded, n=n, norm="forward")
        u, v = velocity.unbind(1)
        product = torch.empty_like(velocity)
        torch.mul(u, v, out=product[:, 0])
        torch.addcmul(v * v, u, u, value=-1, out=product[:, 1])
        mixed = torch.fft.rfft(product, norm="forward")[..., :half].mT.contiguous()
        uv, vv_uu = torch.view_as_real(torch.fft.fft(mixed, norm="forward")).unbind(1)
        out = torch.view_as_complex((self._uv * uv).addcmul_(self._vv_uu, vv_uu))
        out[:, self.wavenumber, 0] -= self.force * self.wavenumber / 2
        return out

    def step(self, w: Complex[Tensor, "B M N"], dt: float) -> Complex[Tensor, "B M N"]:
        """Modes one step of size `dt` later."""
        if dt not in self._steps:
            linear = -self.nu * self._k2 - self.drag
            self._steps[dt] = ETDRK4(linear, dt, self._nonlinear, self.dtype)
        return self._steps[dt](w)

    def modes(self, velocity: Float[Tensor, "B 2 N N"]) -> Complex[Tensor, "B M N"]:
        """ω̂ = i k_x v̂ − i k_y û and the mean flow, of a velocity at the N × N cell centres."""
        if velocity.shape[1:] != (2, self.points, self.points):
            raise ValueError(
                f"KolmogorovFlow: velocity must have shape (B, 2, {self.points}, {self.points}), "
                f"got {tuple(velocity.shape)}."
            )
        spectrum = torch.fft.rfft2(velocity.to(self.dtype), norm="forward")
        u_k, v_k = spectrum[..., : self.modes_kept + 1].mT.unbind(1)
        mean = u_k[:, 0, 0] + 1j * v_k[:, 0, 0]
        kept = self._kx.abs() <= self.modes_kept
        curl = 1j * (self._kx * v_k - self._ky * u_k) * kept * self._centre(self.points).conj()
        curl[:, 0, 0] = mean
        w: Tensor = curl.to(self.dtype.to_complex())
        return w

    def velocity(self, w: Complex[Tensor, "B M N"], grid: int | None = None) -> Float[Tensor, "B 2 n n"]:
        """(u, v) on `grid` × `grid` cells (default N): means over blocks of point values.

        The point values stand at the centres of the coarsest grid that has at least N points and
        that `grid` divides. So a divisor of N averages the solver's own points, and grid ≥ N
        interpolates without averaging.
        """
        n = self.points if grid is None else grid
        block = ceil(self.points / n)
        fine, kept = n * block, self.modes_kept
        velocity_k = w[:, None] * self._biot_savart * self._centre(fine)
        if fine != self.points:
            gap = velocity_k.new_zeros(*velocity_k.shape[:-1], fine - 2 * kept - 1)
            parts = [velocity_k[..., : kept + 1], gap, velocity_k[..., -kept:]]
            velocity_k = torch.cat(parts, -1)
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

    def budget(self, w: Complex[Tensor, "B M N"]) -> dict[str, Float[Tensor, " B"]]:
        """E = ½⟨|u|²⟩, enstrophy ½⟨ω²⟩ and E_t = injection − friction − dissipation."""
        w = w.to(torch.complex128)
        mean = w[:, 0, 0].abs() ** 2
        power = torch.where(self._ky > 0, 2, 1) * w.abs() ** 2
        power[:, 0, 0] = 0
        energy = (mean + (power / self._k2.clamp(min=1)).sum((-2, -1))) / 2
        enstrophy = power.sum((-2, -1)) / 2
        # ⟨u sin κy⟩: û = i/κ ω̂ at (0, κ), and sin κy has the coefficient −i/2 there.
        injection = -self.force / self.wavenumber * w[:, self.wavenumber, 0].real
        return {
            "energy": energy,
            "enstrophy": enstrophy,
            "injection": injection,
            "friction": 2 * self.drag * energy,
            "dissipation": 2 * self.nu * enstrophy,
        }

    def substeps(self, dt: float, cfl: float = 1.0, max_speed: float = 7.0) -> int:
        """The fewest equal steps h over `dt` with Courant number h max(|u| + |v|)/Δx ≤ `cfl`."""
        return ceil(dt * max_speed * self.points / (2 * pi * cfl))

    def frames(
        self, w: Complex[Tensor, "B M N"], dt: float, *, cfl: float = 1.0, max_speed: float = 7.0
    ) -> Iterator[Complex[Tensor, "B M N"]]:
        """Modes at the times 0, dt, 2 dt, … without end, in `substeps` of `max_speed`.

        A trajectory found to be faster at either end of a frame takes it again with twice the
        steps, alone. The kept modes are stable up to a Courant number of about 1.35 (2.8 on the
        imaginary axis over 2π/3).
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
            raise ValueError(
                f"KolmogorovFlow: the Courant number stays above {cfl} with {substeps // 2} steps "
                f"per frame of {dt}: the flow is not resolved; raise points (now {self.points}) "
                f"or nu (now {self.nu})."
            )
        new = w
        for _ in range(substeps):
            new = self.step(new, dt / substeps)
        new_speed = self.speed(new)
        allowed = cfl * 2 * pi / self.points * substeps / dt
        fast = ~((new_speed <= allowed) & (speed <= allowed))  # true for NaN
        if fast.any():
            again = self._frame(w[fast], speed[fast], dt, 2 * substeps, cfl, tries - 1)
            new[fast], new_speed[fast] = again
        return new, new_speed


def initial_modes(rng: np.random.Generator, solver: KolmogorovSolver) -> Complex[Tensor, "M N"]:
    """White noise through the filter p(k)/k, free of divergence, with the largest speed 3.

    p is the lognormal density with mode 4 and variance ¼ of log k. On vorticity the filter is p
    itself. Noise is drawn in growing squares of modes, so that every resolution starts from the
    same flow.
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
