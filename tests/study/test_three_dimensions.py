"""Whole studies of volumes and of odd, masked grids: from a file to a page."""

import json

import numpy as np
import pytest

import biasbound
from biasbound.cli import main
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows, select
from biasbound.report import figures
from biasbound.report.study import read_study
from biasbound.study.stages.material import Material


@pytest.fixture(autouse=True)
def _few_figures(monkeypatch):
    """The page and the pictures of the flow: figures of numbers do not see the grid."""
    monkeypatch.setattr(figures, "FIGURES", {"rollouts": figures.FIGURES["rollouts"]})


VELOCITY, VISCOSITY, DT = np.array([1.0, 0.5, -0.7]), 0.05, 0.1
SHORT = {"evaluations": 1, "pairs": 8, "batch": 4, "log_every": 50}


def advected(count, frames=10, points=16):
    """u_t + a·∇u = ν∇²u on [0, 2π)³ (S, K, *N): û_k(t) = û_k(0) exp(−(i a·k + ν|k|²) t), for |k|² ≤ 6."""
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(points, 1 / points)] * 3, indexing="ij"))
    size = np.square(k).sum(0)
    rate = 1j * np.tensordot(VELOCITY, k, 1) + VISCOSITY * size
    start = np.random.default_rng(0).standard_normal((count, points, points, points))
    hat = np.fft.fftn(start, axes=(1, 2, 3)) * (size <= 6)
    fields = np.fft.ifftn(hat[:, None] * np.exp(-rate * DT * np.arange(frames).reshape(-1, 1, 1, 1)), axes=(2, 3, 4))
    return (fields.real / fields.real.std()).astype(np.float32)


def study(folder, fields, options, **sections):
    """A run of these fields (S, K, C, *N) from a file, with its page; rows of its results."""
    np.save(folder / "mine.npy", fields)
    data = {"dataset": "mine", "train": str(folder / "mine.npy"), "options": {"dt": DT, **options}}
    told = {"data": data, "evaluate": {"steps": [1], "curve": 2, "pairs": 9}, **sections}
    (folder / "mine.yaml").write_text(json.dumps(told))  # which is YAML
    assert main(["run", str(folder / "r"), "--config", str(folder / "mine.yaml"), "--jobs", "1"]) == 0
    assert (folder / "r/07-report/index.html").stat().st_size > 50_000
    return read_rows(folder / "r/results.jsonl")


def one_step(rows, method):
    (found,) = select(rows, metric="one_step_mse", method=method)
    return found.value**0.5


@pytest.mark.long
def test_advection_and_diffusion_of_a_volume_are_learnt(tmp_path):
    """By a small Fourier neural operator, to below a tenth of persistence's error."""
    rows = study(
        tmp_path,
        advected(12)[:, :, None],
        {"channels": ["u"], "domain": [[0, 2 * np.pi]] * 3},
        methods=["direct-residual"],
        network={"name": "fno", "options": {"width": 8, "modes": 3, "blocks": 2}},
        train={**SHORT, "updates": 150, "lr": 0.01, "optimiser": "soap", "ema": 0.9},
    )
    assert one_step(rows, "direct-residual") < 0.1 * one_step(rows, "persistence")
    made = read_study(tmp_path / "r")
    assert made.test.layout.grid == (16, 16, 16)
    assert made.energy(made.truth(1, 1)[0])[3:].max() < 1e-9  # shells: nothing above |k|² = 6


@pytest.mark.long
def test_a_masked_grid_of_odd_sizes_from_file_to_page(tmp_path):
    """A velocity with an island on 33 × 49 points, periodic along one axis; a searched ladder beside a direct model."""
    x, y = np.meshgrid(np.linspace(0, 2, 33), 3 * np.arange(49) / 49, indexing="ij")
    t = DT * np.arange(8).reshape(-1, 1, 1)
    phase = np.random.default_rng(0).uniform(0, 6, (10, 1, 1, 1))
    angle = 2 * np.pi * y / 3 - 2 * t + phase
    fields = np.stack([np.sin(np.pi * x / 2) * np.cos(angle), np.cos(np.pi * x / 2) * np.sin(angle)], 2)
    island = (x - 0.9) ** 2 + (y - 1.2) ** 2 < 0.1
    fields[..., island] = np.nan
    rows = study(
        tmp_path,
        fields.astype(np.float32),
        {"channels": ["velocity_x", "velocity_y"], "domain": [[0, 2], [0, 3]], "boundary": ["wall", "periodic"]},
        methods=["direct-residual", "adaptive-v-residual"],
        network={"width": 8, "multipliers": [1, 1], "embedding": 16},
        search={"tau": 1.5, "levels": 4, "sigma_min": 0.05, "rounds": 2, "pairs": 8},
        train={**SHORT, "updates": 40, "lr": 0.01, "optimiser": "soap", "ema": 0.9},
    )
    for label in ("direct-residual", "adaptive-v-residual"):
        assert one_step(rows, label) < one_step(rows, "persistence")
        emulator = biasbound.load(tmp_path / f"r/03-train/{label}/seed-0/emulator")
        assert np.array_equal(~emulator.mask.numpy(), island)
        states = np.load(tmp_path / f"r/05-rollout/{label}/seed-0/prediction.npy")
        assert np.array_equal(np.isnan(states), np.broadcast_to(island, states.shape))


def test_mirrored_windows_of_a_masked_volume_are_zero_under_the_mask_and_only_there():
    mask = np.ones((4, 5, 6), dtype=bool)
    mask[1:3, :2, 2:4] = False  # its own mirror image along x and z
    fields = np.random.default_rng(0).normal(size=(2, 3, 1, 4, 5, 6)).astype(np.float32)
    material = Material(lambda split: Trajectories.from_array(fields, dt=DT, dims=3, mask=mask, name=split))
    batch, items = material.batches(1, ["x", "z:-u0"])
    assert items == 4 * 4  # windows and images
    shown = batch(np.arange(items)).frames
    assert np.array_equal((shown == 0).numpy(), np.broadcast_to(~mask, shown.shape))
    with pytest.raises(ValueError, match=r"train\.symmetries: 'y' .* the mask"):
        material.batches(1, ["x", "y"])
