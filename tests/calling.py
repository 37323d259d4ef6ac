"""Commands called in a test, here or in a process of their own, and a small run for them."""

import os
import subprocess
import sys

from biasbound.cli import main

SMOKE = ["--preset", "ks-smoke", "--jobs", "1"]
TINY = [*SMOKE, "--train.updates", "6", "--train.evaluations", "1", "--evaluate.gradients", "0"]


def called(argv, capsys):
    """(exit code, stdout, stderr) of a command."""
    try:
        code = main([str(a) for a in argv])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(argv, capsys, *complaints):
    """The command ends with exit code 2 and one sentence that holds these words."""
    code, _, said = called(argv, capsys)
    assert code == 2, said
    sentences = [line for line in said.splitlines() if line.startswith("biasbound")]
    assert len(sentences) == 1, said
    assert "Traceback" not in said
    for complaint in complaints:
        assert complaint in sentences[0], sentences[0]


def program(*argv, start=("-m", "biasbound"), **how):
    """A command in a process of its own, where nothing checks types."""
    command = [sys.executable, *start, *map(str, argv)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **how)
