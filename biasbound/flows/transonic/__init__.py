"""Transonic flow past a cylinder: a finite-volume solver and the data set made with it."""

try:
    from biasbound.flows.transonic.source import TransonicCylinder
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("numba", "scipy"):
        raise
    raise ImportError("The transonic solver needs numba and SciPy: pip install 'biasbound[transonic]'") from error

__all__ = ["TransonicCylinder"]
