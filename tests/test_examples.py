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
