"""The card of an emulator: what people read before they use it, made from its facts and from the rows of its scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from biasbound._io import plain

__all__ = ["card"]

HEAD = ["---", "library_name: biasbound", "tags: [pde, emulator, surrogate]", "---", ""]
SHOWN = (1, 10)  # steps of a score that has one for many; the last is shown as well


def card(kind: str, model: Any, facts: Any, network: str, name: str = "this folder") -> str:
    """Markdown; `facts.meta["rows"]` are the rows, and `name` is what `load` is given."""
    own = f", net={network.rpartition(':')[2]})  # {network}" if ":" in network else ")"
    meta = dict(facts.meta or {})
    rows: list[Mapping[str, Any]] = meta.pop("rows", [])
    told = {**plain(facts), "meta": meta}
    parts = [
        [*HEAD, f"# A {kind} emulator", "", *_what(model)],
        ["```python", "import biasbound", "", f'emulator = biasbound.load("{name}"{own}', *_use(model), "```"],
        ["## Scores", "", *_scores(rows)],
        ["## Ledger", "", *_ledger(meta, rows)],
        ["## Data", "", *_data(facts, meta)],
        ["## Limits", "", *_limits(facts, rows)],
        ["## Facts", "", "```json", json.dumps(told, indent=1), "```"],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts)


def _what(model: Any) -> list[str]:
    parameters = sum(p.numel() for p in model.parameters())
    schedule = getattr(model, "schedule", None)
    lines = [f"{parameters:,} parameters, {model.calls} network calls per step, made with biasbound."]
    return (
        lines if schedule is None else [*lines, "", f"Noise levels: {', '.join(f'{s:.4g}' for s in schedule.sigma)}."]
    )


def _use(model: Any) -> list[str]:
    past = model.frame.task.past
    shape = "(B, C, *N)" if past == 1 else f"(B, {past}, C, *N)"
    return [f"rollout = emulator.rollout(x0, steps=100)  # x0: {shape} in physical units"]


def _scores(rows: list[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["Not scored: `emulator.scored(rows)` adds the rows of a study or of `biasbound score`."]
    last = max((row["step"] or 0 for row in rows), default=0)
    lines = ["| score | at step | value | interval |", "| :-- | --: | --: | --: |"]
    for row in rows:
        if row["step"] in (None, *SHOWN, last):
            value = "not finite" if row["value"] is None else f"{row['value']:.4g}"
            ends = "" if row["low"] is None or row["high"] is None else f"{row['low']:.4g} … {row['high']:.4g}"
            lines.append(f"| {row['metric']} | {'' if row['step'] is None else row['step']} | {value} | {ends} |")
    return lines


def _ledger(meta: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> list[str]:
    first = rows[0] if rows else {}
    found = {
        "training samples passed through the network": first.get("ledger") or meta.get("ledger"),
        "updates": first.get("updates") or meta.get("updates"),
        "seconds": first.get("seconds"),
        "seed": first.get("seed", meta.get("seed")),
    }
    lines = [f"- {name}: {value:,}" for name, value in found.items() if isinstance(value, int | float)]
    return lines or ["Not recorded."]


def _data(facts: Any, meta: Mapping[str, Any]) -> list[str]:
    lines = [f"- dataset: {meta['dataset']}"] if "dataset" in meta else []
    lines += [f"- channels: {', '.join(facts.channels)}", f"- time step: {facts.dt:g}"]
    lines += [f"- conditions: {', '.join(facts.conditions)}"] if facts.conditions else []
    notes = meta.get("data")
    return [*lines, *(f"- {note}" for note in (notes if isinstance(notes, list) else []))]


def _limits(facts: Any, rows: list[Mapping[str, Any]]) -> list[str]:
    step = f"- One step is {facts.dt:g} in time."
    lines = [f"{step} Other time steps, equations and parameters than those of its data were not tried."]
    steps = [row["step"] for row in rows if row["metric"] == "mse" and row["step"] is not None]
    lines.append(f"- Rollouts were scored up to step {max(steps)}." if steps else "- No rollout was scored.")
    for row in rows:
        if row["metric"] == "broken":
            lines.append(f"- Trajectories that became non-finite when it was scored: {row['value']:g}.")
    return lines
