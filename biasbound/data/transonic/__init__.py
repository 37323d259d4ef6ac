"""Compressible flow past a cylinder: a finite-volume solver and the data set made with it."""

from __future__ import annotations

from biasbound.data.transonic.source import PRESETS, TransonicCylinder

__all__ = ["PRESETS", "TransonicCylinder"]
