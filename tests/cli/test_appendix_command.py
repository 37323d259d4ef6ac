"""`biasbound diagnose` with the paper's appendices, another network beside it, and other bounds."""

import json
from dataclasses import replace

import pytest
from calling import called, refused
from emulators import UNITS, model
from toys import advected

from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("appendix")
    save(Trajectories.from_array(advected(3, frames=5).numpy(), dt=1.0, channels=["u"]), folder / "waves.h5")
    for kind in ("eps", "x0 ddim"):
        Emulator(model(kind), replace(UNITS, mean=(0.0,)), ("u",), 1.0).save(folder / kind)
    return folder


def diagnosed(place, kind, *more):
    small = ["--tau", "1e6", "--levels", "3", "--sigma-min", "0.1", "--pairs", "4", "--draws", "1"]
    return ["diagnose", place / kind, "--data", place / "waves.h5", *small, *more]


def test_both_appendices_are_printed_kept_and_drawn(place, tmp_path, capsys):
    out = tmp_path / "found"
    argv = diagnosed(place, "eps", "--appendix", "--against", place / "x0 ddim", "--out", out)
    code, said, _ = called(argv, capsys)
    assert code == 0
    told = json.loads((out / "diagnosis.json").read_text())["appendices"]
    assert len(told["chain"]) == len(told["bound"]) + 1 == 4
    assert len(told["predicted"]) == len(told["against"]) == 3
    assert told["than"] == str(place / "x0 ddim")
    for row in told["bound"]:
        assert f"{row['jacobian']:.4g}" in said
        assert f"{row['bound']:.4g}" in said
    for row in told["predicted"] + told["against"]:
        assert f"{row['ratio']:.4g}" in said
    less = sum(a["ratio"] <= b["ratio"] for a, b in zip(told["predicted"], told["against"], strict=True))
    assert f"at {less} of 3 levels" in said
    assert (out / "appendix.png").stat().st_size > 1000


def test_a_chain_that_keeps_its_noise_has_no_bound(place, capsys, tmp_path):
    code, said, _ = called(diagnosed(place, "x0 ddim", "--appendix", "--out", tmp_path / "out"), capsys)
    assert code == 0
    assert "about the renoise transition, not ddim" in said
    assert "Appendix C" in said
    assert (tmp_path / "out/appendix.png").exists()


def test_what_tau_bounds_is_said(place, tmp_path, capsys):
    for more, sentence in (
        (["--power", "2"], "τ = 1000000.0 of squared norms"),
        (["--statistic", "q95"], "τ = 1000000.0 on the 95th percentile"),
    ):
        code, said, _ = called(diagnosed(place, "eps", *more, "--out", tmp_path / more[1]), capsys)
        assert code == 0
        assert sentence in said
    told = [json.loads((tmp_path / name / "diagnosis.json").read_text()) for name in ("2", "q95")]
    assert [(one["power"], one["statistic"]) for one in told] == [(2, "mean"), (1, "q95")]
    assert all(a["own"] > b["own"] for a, b in zip(told[0]["levels"], told[1]["levels"], strict=True) if b["own"] > 1)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--against", "x"], "give --appendix too"),
        (["--against", "nosuch", "--appendix"], "neither an emulator's folder nor package.module:factory"),
        (["--power", "3"], "invalid choice"),
        (["--statistic", "median"], "invalid choice"),
    ],
)
def test_bad_input_is_refused(place, more, complaint, capsys):
    refused(diagnosed(place, "eps", *more), capsys, complaint)
