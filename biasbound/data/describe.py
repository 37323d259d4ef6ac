"""What a set of trajectories holds, in lines of text."""

from __future__ import annotations

import json

import numpy as np

from biasbound.data.trajectories import Trajectories

__all__ = ["describe"]


def _numbers(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} … {high:g}"


def describe(trajectories: Trajectories) -> str:
    """Shape, time, space, statistics, parameters and provenance.

    Every value is read, even if the file holds statistics, to find what is not finite.
    """
    layout, statistics = trajectories.layout, trajectories.measure()
    grid = " × ".join(map(str, layout.grid))
    size = int(np.prod(layout.shape)) * trajectories.dtype.itemsize
    lines = [
        f"{trajectories.name}",
        f"  flow        {layout.name}",
        f"  shape       {layout.trajectories} trajectories, {layout.frames} frames, "
        + f"{len(layout.channels)} channel{'s' * (len(layout.channels) > 1)}, {grid} points ({trajectories.dtype}, {size / 1e6:.4g} MB)",
        f"  time        dt {layout.dt:g}, {layout.dt * (layout.frames - 1):g} from first to last frame",
    ]
    for axis, (low, high), edge in zip("xyz", layout.domain, layout.boundary, strict=False):
        lines.append(f"  axis {axis}      {low:g} … {high:g}, {edge}")
    lines.append("  channel               mean          std   std of increment")
    for c, name in enumerate(layout.channels):
        row = (statistics.mean[c], statistics.std[c], statistics.increment_std[c])
        lines.append(f"    {name:14}" + "".join(f"{v:13.6g}" for v in row[:2]) + f"{row[2]:19.6g}")
    for kind, held in (("parameter", trajectories.parameters), ("series", trajectories.series)):
        lines += [f"  {kind:11} {name}: {_numbers(values)}" for name, values in held.items()]
    lines += [f"  {'static':11} {name}: {_numbers(v)}" for name, v in trajectories.static.items()]
    for name, value in trajectories.provenance.items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"  provenance  {name}: {text}")
    return "\n".join(lines)
