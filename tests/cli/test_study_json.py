"""What scripts read of a study: one JSON object, and nothing else on stdout."""

import json
from pathlib import Path

from calling import TINY, called


def test_json_is_all_that_a_script_reads_and_a_quiet_study_shows_its_table_alone(tmp_path, capsys):
    run = tmp_path / "run"
    words = [*TINY, "--methods", "direct-residual", "--rollout.steps", "4"]
    code, out, err = called(["evaluate", run, *words, "--json"], capsys)
    told = json.loads(out)
    assert (code, told["failed"], told["page"]) == (0, {}, None)
    assert "03-train/direct-residual/seed-0" in told["made"]
    assert Path(told["results"]).exists()
    assert "begins" not in err
    code, out, err = called(["evaluate", run, "--quiet"], capsys)
    assert code == 0
    assert out.startswith("Results")
    assert "next:" not in out
    assert "begins" not in err
    again = json.loads(called(["evaluate", run, "--json"], capsys)[1])
    assert (again["made"], sorted(again["there"])) == ([], sorted(told["made"]))
