"""The diagnosis of a denoiser that is there already."""

import json
from dataclasses import replace

import pytest
from toys import seeded

from biasbound.core.diagnose import diagnose, require_stable
from biasbound.core.ladder import grid
from biasbound.core.options import SearchOptions
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.schedule import log_uniform
from biasbound.core.search import NothingSolved

OPTIONS = SearchOptions(levels=8, draws=2)


def test_a_diagnosis_of_an_exact_network_finds_its_closed_form():
    oracle = AffineOracle(error=lambda s: 0.3 * s, sensitivity=lambda s: 0.02)
    pairs = oracle.pairs((32, 1, 32), seeded())
    found = diagnose(oracle, *pairs, replace(OPTIONS, levels=16))
    assert tuple(found.levels) == found.stable == grid(replace(OPTIONS, levels=16)).sigma
    assert require_stable(found) is found.ladder
    assert found.ladder.sigma[0] == min(found.levels)
    assert all(row.reb.mean < 1.1 for row in found.along_ladder)
    for sigma, level in found.levels.items():
        assert level.clean.mean >= 0.29 * sigma
    assert (found.schedule, found.along_schedule) == (None, ())
    told = json.loads(json.dumps(found.as_dict()))
    assert tuple(told["ladder"]) == found.ladder.sigma
    assert len(told["levels"]) == 16


def test_a_network_without_a_stable_level_is_told_what_to_change():
    oracle = AffineOracle(0.1, 0.5)
    found = diagnose(oracle, *oracle.pairs((8, 1, 16), seeded()), OPTIONS)
    assert (found.stable, found.ladder, found.table, found.along_ladder) == ((), None, None, ())
    assert json.loads(json.dumps(found.as_dict()))["ladder"] is None
    with pytest.raises(NothingSolved, match=r"no level of the grid is stable.*above τ = 1\.05; train"):
        require_stable(found)


def test_the_schedule_in_use_is_measured_with_its_own_transition():
    """One level knows no chain, so the stability of levels is the same; the chain's rows are not."""
    oracle, schedule = GaussianOracle(0.3), log_uniform(3, 0.1, 0.9)
    x, y = oracle.pairs((8, 1, 16), seeded())
    found = [diagnose(oracle, x, y, OPTIONS, schedule, transition=t) for t in ("renoise", "ddim")]
    assert found[0].levels == found[1].levels
    for a, b in zip(*(f.along_schedule[:-1] for f in found), strict=True):
        assert a.reb.mean != b.reb.mean
    assert tuple(row.sigma for row in found[0].along_schedule) == schedule.sigma
