"""What a set of trajectories holds, in lines of text."""

from __future__ import annotations

import json

import numpy as np

from biasbound.data.trajectories import Trajectories


def _numbers(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} … {high:g}"


def describe(trajectories: Trajectories) -> str:
    """Shape, time, space, statistics, parameters and provenance; every value is read, to find what is not finite."""
    layout, statistics = trajectories.layout, trajectories.measure()
    grid, several = " × ".join(map(str, layout.grid)), len(layout.channels) > 1
    channels = f"{len(layout.channels)} channel{'s' if several else ''}"
    rows = "1 trajectory" if len(trajectories) == 1 else f"{len(trajectories)} trajectories"
    stored = f"({trajectories.dtype}, {int(np.prod(layout.shape)) * trajectories.dtype.itemsize / 1e6:.4g} MB)"
    lines = [
        f"{trajectories.name}",
        f"  flow        {layout.name}",
        f"  shape       {rows}, {layout.frames} frames, {channels}, {grid} points {stored}",
        f"  time        dt {layout.dt:g}, {layout.dt * (layout.frames - 1):g} from first to last frame"
        + (f" ({trajectories.labels.units['time']})" if "time" in trajectories.labels.units else ""),
    ]
    units, names = trajectories.labels.units, trajectories.labels.named(len(layout.grid))
    for axis, (low, high), edge in zip(names, layout.domain, layout.boundary, strict=True):
        lines.append(f"  {'axis ' + axis:11} {low:g} … {high:g}{' ' * (axis in units)}{units.get(axis, '')}, {edge}")
    if trajectories.mask is not None:
        lines.append(f"  mask        {int(trajectories.mask.sum())} of {trajectories.mask.size} points are valid")
    lines += ["  channel               mean          std   std of increment"]
    columns = layout.channels, statistics.mean, statistics.std, statistics.increment_std
    for name, a, b, c in zip(*columns, strict=True):
        lines.append(f"    {name:14}{a:13.6g}{b:13.6g}{c:19.6g}{' ' * (name in units)}{units.get(name, '')}")
    facts = {"parameter": trajectories.parameters, "series": trajectories.series, "static": trajectories.static}
    for kind, held in facts.items():
        lines += [f"  {kind:11} {name}: {_numbers(values)}" for name, values in held.items()]
    for name, value in trajectories.provenance.items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"  provenance  {name}: {text}")
    lines += [f"  note        {note}" for note in trajectories.notes]
    return "\n".join(lines)
