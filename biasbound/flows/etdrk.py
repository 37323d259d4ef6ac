"""Exponential time differencing, Runge–Kutta of order 4, for periodic flows in Fourier space.

    u_t = L u + N(u)        L real and diagonal (diffusion, drag), N everything else

The stiff part L is integrated exactly, so the step h is bound by N alone. Of the schemes with four stages this is
Krogstad's (2005, "ETDRK4-B"): it costs what Cox & Matthews' costs and keeps more of its order on the damped modes that
N drives. With z = Lh,

    a  = e^{z/2} u + ½h φ₁(z/2) N(u)
    b  = e^{z/2} u + ½h φ₁(z/2) N(u) + h φ₂(z/2) (N(a) − N(u))
    c  = e^z u + h φ₁(z) N(u) + 2h φ₂(z) (N(b) − N(u))
    u⁺ = e^z u + h (φ₁ − 3φ₂ + 4φ₃)(z) N(u) + h (2φ₂ − 4φ₃)(z) (N(a) + N(b)) + h (4φ₃ − φ₂)(z) N(c)

φ₁ = (e^z − 1)/z, φ₂ = (φ₁ − 1)/z, φ₃ = (φ₂ − ½)/z cancel badly near z = 0; their means over a circle around z do not
(Kassam & Trefethen 2005). Not promised: order 4 where |z| ≫ 1 and N is not small. The tests measure it.
"""

from collections.abc import Callable

import torch
from jaxtyping import Complex, Float
from torch import Tensor

_CIRCLE = 32  # points on the half circle; the mean converges geometrically and 32 reach rounding


def _phi(z: Float[Tensor, "*modes"]) -> tuple[Tensor, Tensor, Tensor]:
    """φ₁, φ₂, φ₃ of real z: means over the circle around it, whose halves are conjugate."""
    angle = torch.pi * (torch.arange(_CIRCLE, device=z.device).double() + 0.5) / _CIRCLE
    circle = z[..., None] + torch.polar(torch.ones_like(angle), angle)
    phi_1 = (torch.exp(circle) - 1) / circle
    phi_2 = (phi_1 - 1) / circle
    phi_3 = (phi_2 - 0.5) / circle
    return phi_1.mean(-1).real, phi_2.mean(-1).real, phi_3.mean(-1).real


class ETDRK4:
    """One step u(t) → u(t + h) of u_t = L u + N(u) in Fourier space.

    `linear` is L, one real number a mode, with a leading batch axis where it differs between trajectories; `dt` is h,
    a float or a tensor that broadcasts to `linear`. `nonlinear(u, out)` writes N(u) into `out`. `dtype` is the precision
    of the step; coefficients are always computed in float64. The step keeps its arrays from call to call, since fresh
    memory costs a tenth of the work on small grids.
    """

    def __init__(
        self,
        linear: Float[Tensor, "*modes"],
        dt: float | Float[Tensor, "*#modes"],
        nonlinear: Callable[[Tensor, Tensor], None],
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.nonlinear = nonlinear
        h = torch.as_tensor(dt, dtype=torch.float64, device=linear.device)
        z = linear.double() * h
        half_1, half_2, _ = _phi(z / 2)
        phi_1, phi_2, phi_3 = _phi(z)
        coefficients = (
            torch.exp(z / 2),
            torch.exp(z),
            h * half_1 / 2,
            h * (half_1 / 2 - half_2),
            h * half_2,
            h * (phi_1 - 2 * phi_2),
            h * 2 * phi_2,
            h * (phi_1 - 3 * phi_2 + 4 * phi_3),
            h * (2 * phi_2 - 4 * phi_3),
            h * (4 * phi_3 - phi_2),
        )
        # Twice, for the real and the imaginary part: real arithmetic is half the work of complex.
        self._coefficients = [c.to(dtype)[..., None].repeat_interleave(2, -1) for c in coefficients]
        self._kept: dict[tuple[torch.Size, int], tuple[list[Tensor], list[Tensor]]] = {}

    @torch.no_grad()
    def __call__(self, u: Complex[Tensor, "*batch"]) -> Complex[Tensor, "*batch"]:
        """u(t + h); `u` itself is left as it was."""
        new = u.clone()
        self.advance_(new)
        return new

    def advance_(self, u: Complex[Tensor, "*batch"]) -> None:
        """u ← u(t + h), in place; for states that no gradient follows."""
        half, full, a_u, b_u, b_a, c_u, c_b, f_u, f_ab, f_c = self._coefficients
        (stage, at_u, at_a, at_b, at_c), (stage_r, n_u, n_a, n_b, n_c, linear) = self._arrays(u)
        u_r = torch.view_as_real(u)
        self.nonlinear(u, at_u)
        torch.mul(half, u_r, out=linear)
        torch.addcmul(linear, a_u, n_u, out=stage_r)
        self.nonlinear(stage, at_a)
        torch.addcmul(linear, b_u, n_u, out=stage_r).addcmul_(b_a, n_a)
        self.nonlinear(stage, at_b)
        torch.mul(full, u_r, out=linear)
        torch.addcmul(linear, c_u, n_u, out=stage_r).addcmul_(c_b, n_b)
        self.nonlinear(stage, at_c)
        torch.addcmul(linear, f_u, n_u, out=u_r).addcmul_(f_ab, n_a.add_(n_b)).addcmul_(f_c, n_c)

    def _arrays(self, u: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """A stage and N at four states, then all of them and the linear part as real numbers; kept for one shape.

        The stage lies in memory as u does, and between its rows stand zeros where u has something else.
        """
        if (key := (u.shape, u.stride(0))) not in self._kept:
            with torch.inference_mode(False):  # so that they serve inside and outside of it
                rows = u.new_zeros(len(u) * u.stride(0)).as_strided(u.shape, u.stride())
                made = [rows, *(u.new_empty(u.shape) for _ in range(5))]
                self._kept = {key: (made[:5], [torch.view_as_real(one) for one in made])}
        return self._kept[key]
