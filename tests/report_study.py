"""A small run folder with analytic content: oracles for the search, travelling waves for data."""

import json
from pathlib import Path

import numpy as np
import torch

from biasbound.core.bias import Measure, TwoStepTable, bias_curve, own_bias
from biasbound.core.front import best_schedule, optimal_schedules
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import Schedule, linear, log_uniform
from biasbound.core.search import greedy_schedule
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories

TAU = 1.05
METHODS = {"unet": 0.9, "linear": 2.0, "adaptive": 0.5, "adaptive-v": 0.4, "adaptive-scaled": 0.3}  # error at the end
NFE = {"unet": 1, "linear": 12, "adaptive": 5, "adaptive-v": 4, "adaptive-scaled": 3}
GROWN = ("adaptive-scaled",)  # its ladder grew inside its training
EVIL = "</script><script>alert(1)</script>"  # a name that must stay text


def oracle(scale):
    """Sensitive below σ ≈ scale, with an error that falls with σ."""
    return AffineOracle(lambda s: 0.3 * s**2, lambda s: scale**2 / (scale**2 + s**2))


def waves(rank=1, trajectories=3, frames=41, points=32, seed=0):
    """(S, K, C, *N): one channel of travelling waves, or two velocities of drifting vortices, weaker along a third axis."""
    rng, turn = np.random.default_rng(seed), 2 * np.pi
    grid = np.arange(points) / points * turn
    size = rng.uniform(0.5, 1.5, size=(trajectories, 6)) / np.arange(1, 7)
    phase = turn * rng.random((trajectories, 6))
    t = 0.25 * np.arange(frames)
    if rank == 1:
        k = np.arange(1, 7)
        angle = k * grid[:, None] - (k**1.4 * t[:, None])[:, None] + phase[:, None, None]
        return (size[:, None, None] * np.sin(angle)).sum(-1)[:, :, None].astype(np.float32)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    u, v = np.zeros((2, trajectories, frames, points, points))
    modes = ((1, 0), (1, 2), (2, 1), (3, 2), (2, 4), (4, 3))  # of the stream function
    for m, (a, b) in enumerate(modes):
        angle = a * x + b * y - (0.3 * (m + 1) * t)[:, None, None] + phase[:, m, None, None, None]
        wave = size[:, m, None, None, None] * np.cos(angle)
        u, v = u + b * wave, v - a * wave
    plane = np.stack([u, v], 2).astype(np.float32)
    return plane if rank == 2 else plane[..., None] * (1.5 + np.cos(grid[: points // 2])).astype(np.float32)


def put(path: Path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def stage(folder: Path, name, unit, seed, seconds, updates=0):
    told = {"stage": name, "unit": unit, "seed": seed, "version": "0.1.0", "commit": "0" * 40}
    told |= {"started": "2026-01-01T00:00:00Z", "wall_seconds": seconds, "cpu_seconds": seconds}
    put(folder / "stage.json", told | {"updates": updates, "python": "3.11", "torch": "2.6"})


def search(folder: Path, label, scale, seed=0):
    """Exploration with ever less sensitive oracles, then the ladder of the last."""
    rng = torch.Generator().manual_seed(seed)
    x, y = oracle(0).pairs((8, 1, 32), rng)
    grid = log_uniform(24, sigma_min=3e-3).sigma
    points, solved = [], {}
    for round_ in range(1, 5):
        denoiser = oracle(scale * 0.7**round_)
        for s in [s for s in grid if s not in solved]:
            own = own_bias(denoiser, x, y, s, Measure(2, generator=rng))
            row = {"round": round_, "update": 200 * round_, "sigma": s, "own": own.mean}
            clean = 0.3 * s**2 * (1 + 0.5**round_)
            points.append(row | {"own_stderr": own.stderr, "clean": clean, "clean_stderr": 1e-4})
            if own.mean <= 1.03:
                solved[s] = [round_, own.mean, round_]
    found = {"levels": grid, "tau": 1.03, "points": points}
    found["solved"] = {repr(s): v for s, v in solved.items()}
    put(folder / "exploration.json", found)
    table = TwoStepTable(dict.fromkeys([*solved, grid[-1]], denoiser), x, y, Measure(2, generator=rng))
    ladder = greedy_schedule(table.levels, table, TAU)
    ladder.save(folder / "schedule.json")
    landscape(folder, table, ladder)
    put(folder / "log.jsonl", log(1200, 0.02))
    stage(folder, "search", label, seed, 61.0, 1200)
    return ladder, denoiser


def landscape(folder: Path, table, ladder):
    """Every two-step bias between the levels of a table."""

    def told(found):
        return {"mean": found.mean, "stderr": found.stderr}

    levels, biases = table.levels, table.matrix()
    found = {"tau": TAU, "start": "sigma", "start_sigma": ladder.sigma[0], "levels": levels}
    found["clean"] = [{"sigma": s, **told(table.clean_error(s))} for s in levels]
    found["biases"] = [{"to": to, "from": start, **told(bias)} for to, start, bias in biases]
    put(folder / "landscape.json", found)


def bias_of(name, value):
    """A bias with its statistics, of which the 95th percentile is larger than the others."""
    return {name: value, f"{name}_stderr": 1e-3, f"{name}_pooled": value, f"{name}_q95": 1 + 1.5 * (value - 1)}


def grow(folder: Path, label, seed=0):
    """A ladder that grows while the oracle's sensitivity falls, by its own closed forms."""
    grid = log_uniform(16, sigma_min=0.02).sigma[::-1]
    ladder, rounds = [grid[0]], [{"update": 500, "ladder": [grid[0]], "levels": [], "top_error": 0.3}]
    for now in range(1, 6):
        kappa = oracle(0.1 * 0.5 ** (now // 2)).sensitivity  # which falls in every other round
        frontier, levels = ladder[-1], []
        for s in [frontier, *[s for s in grid if s < frontier][:6]]:
            row = {"sigma": s, **bias_of("own", 1 + kappa(s)), "clean": 0.3 * s**2, "clean_stderr": 1e-3 * s}
            two = bias_of("two_step", 1 + kappa(s) * (frontier / s) ** 2) if s < frontier else {}
            levels.append(row | two)
        within = [r for r in levels[1:] if r["own"] <= TAU and r["two_step"] <= TAU]
        best = min(within, key=lambda r: r["clean"] * r["two_step"], default=None)
        ladder += [best["sigma"]] if best else []
        rounds.append({"update": 500 + 250 * now, "ladder": [*ladder], "levels": levels})
    put(folder / "growth.json", {"tau": TAU, "c": 0.1, "rounds": rounds})
    denoiser, rng = oracle(0.02), torch.Generator().manual_seed(seed)
    x, y = denoiser.pairs((8, 1, 32), rng)
    table = TwoStepTable(dict.fromkeys(ladder, denoiser), x, y, Measure(2, generator=rng))
    front = optimal_schedules(denoiser, x, y, ladder, generator=rng)
    greedy = greedy_schedule(table.levels, table, 1.2)
    chosen = Schedule(best_schedule(front).sigma, {"method": "grown", "greedy": greedy.sigma})
    landscape(folder, table, chosen)
    points = [{"calls": k, "sigma": s.sigma, "mean": e.mean, "stderr": e.stderr} for k, (s, e) in front.items()]
    put(folder / "front.json", {"chosen": len(chosen), "front": points})
    chosen.save(folder / "schedule.json")
    return chosen, denoiser


def log(updates, floor):
    at = range(50, updates + 1, 50)
    return lines({"update": u, "loss": floor + 1 / u, "lr": 1e-3, "valid_mse": floor / 5 + 2 / u} for u in at)


def biases(denoiser, schedule, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x, y = denoiser.pairs((8, 1, 32), rng)
    return [row.as_dict() for row in bias_curve(denoiser, x, y, schedule, Measure(2, generator=rng))]


def evaluate(folder: Path, label, dataset, seed, steps, end):
    """Rows and gradients in closed form."""
    rows = []

    def add(metric, step, value, low=None, high=None):
        row = {"dataset": dataset, "method": label, "seed": seed, "metric": metric, "step": step}
        row |= {"value": value, "low": low, "high": high, "nfe": NFE[label], "updates": 3000}
        searched = 1200 * (label.startswith("adaptive") and label not in GROWN)
        rows.append(row | {"seconds": 0.01 * NFE[label], "ledger": 16 * (3000 + searched)})

    for k in range(1, steps + 1):
        error = (end * 10 ** (2 * (k / steps - 1))) ** 2
        add("mse", k, error, 0.8 * error, 1.3 * error)
        add("fsd", k, 3 * error)
        for part, share in (("own", 0.2), ("drift", 0.7), ("ratio", 1 + k / steps)):
            add(f"split_{part}", k, share if part == "ratio" else share * error)
    add("one_step_mse", None, 1.1 * (end / 100) ** 2)
    add("correlation_time", None, 8.0 / end, 7.5 / end, 8.5 / end)
    add("correlation_time_worst", None, 6.0 / end)
    add("correlation_time_best", None, 9.0 / end)
    add("broken", None, 0.0)
    put(folder / "rows.jsonl", lines(rows))
    if label != "unet":
        made = [
            {"n": n, "nfe": n + 1, "to_full": 1 - 0.2 * end * 0.5**n, "to_full_stderr": 0.02,
             "to_teacher": 0.9, "to_teacher_stderr": 0.01, "batches": 4} for n in range(NFE[label])
        ]  # fmt: skip
        put(folder / "gradients.json", [*made, made[-1] | {"n": "full"}, made[0] | {"n": "teacher"}])
    stage(folder, "evaluate", label, seed, 5.0)
    return rows


def train(folder: Path, label, place, end):
    """Search, training and biases of one method."""
    unit = f"{label}/seed-0"
    schedule, denoiser = linear(12).capped(), oracle(0.1)
    trained = folder / "03-train" / unit
    if label in GROWN:
        schedule, denoiser = grow(trained, label)
    elif label.startswith("adaptive"):
        schedule, denoiser = search(folder / "02-search" / unit, label, 0.1 / (1 + place % 2))
    put(trained / "log.jsonl", log(3000, 0.01 * end))
    stage(trained, "train", label, 0, 100.0 + 30 * place, 3000)
    if label != "unet":
        times = [{"update": 1000 * u, "rows": biases(oracle(0.1 * 0.8**u), schedule)} for u in (1, 2, 3)]
        put(trained / "chain.jsonl", lines(times))
        put(folder / "06-evaluate" / unit / "bias.json", biases(denoiser, schedule, 1))


def roll(place: Path, label, truth, error, members):
    """Members that differ by the size of their errors."""
    guess = np.stack([truth[:, 1:] + (1 + 0.2 * m) * error for m in range(members)])
    place.mkdir(parents=True)
    np.save(place / "prediction.npy", guess.astype(np.float32))
    steps = truth.shape[1] - 1
    told = {"dt": 0.25, "members": members, "trajectories": len(truth), "steps": steps}
    put(place / "rollout.json", told | {"broken": [[0] * len(truth)] * members})
    stage(place, "rollout", label, 0, 2.0 * NFE[label])


def fabricate(folder: Path, *, rank=1, dataset="ks", points=32, frames=41, methods=METHODS):
    """A whole run. The methods differ by the size of their errors, which grow over the rollout."""
    truth = waves(rank, points=points, frames=frames)
    data = Trajectories.from_array(
        truth,
        dt=0.25,
        name=dataset,
        channels=["u"] if rank == 1 else ["velocity_x", "velocity_y"],
        domain=[(0.0, 2 * np.pi)] * rank,
    )
    for name in ("01-data", *[f"02-search/{m}/seed-0" for m in methods if m.startswith("ad") and m not in GROWN]):
        (folder / name).mkdir(parents=True)
    save(data, folder / "01-data" / "test.h5")
    stage(folder / "01-data", "data", "", 0, 12.0)
    told = {"format": 1, "version": "0.1.0", "dataset": dataset, "title": f"{dataset}, analytic"}
    put(folder / "run.json", told)
    put(folder / "config.yaml", f"data:\n  name: {json.dumps(dataset)}\nseed: 0\n")
    noise = waves(rank, points=points, frames=frames, seed=7)[:, 1:]
    ramp = 10 ** (2 * np.arange(1, frames) / (frames - 1) - 2)
    rows = []
    for place, label in enumerate(methods):
        end, unit = METHODS[label], f"{label}/seed-0"
        train(folder, label, place, end)
        error = end * ramp.reshape(-1, *[1] * (rank + 1)) * noise
        roll(folder / "05-rollout" / unit, label, truth, error, 2)
        rows += evaluate(folder / "06-evaluate" / unit, label, dataset, 0, frames - 1, end)
    put(folder / "results.jsonl", lines(rows))
    return folder
