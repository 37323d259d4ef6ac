import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.long
def test_the_oracle_example_shows_the_whole_method(tmp_path):
    script = EXAMPLES / "01_oracle.py"
    assert len(script.read_text().splitlines()) < 60
    figure = tmp_path / "figure.png"
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script), str(figure)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "levels are stable" in run.stdout
    picture = imread(figure)
    assert picture.std() > 0.05  # not blank


@pytest.mark.long
@pytest.mark.parametrize(("name", "updates"), [("03_diffusers", 30), ("04_azula", 60)])
def test_a_model_of_a_neighbour_gets_its_ladder(name, updates, capsys):
    """After few updates: its chain runs in the neighbour's own loop, with no more calls than its error allows."""
    script = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(updates)
    said = capsys.readouterr().out
    found = re.findall(r"(\d+) calls with .*: error ([\d.e+-]+)", said)
    assert len(found) == 2, said
    (many, _), (few, error) = found
    assert int(few) < int(many)
    assert float(error) < 2
