"""Commands called in a test, and a small run for them."""

from biasbound.cli import main

TINY = ["--preset", "ks-smoke", "--jobs", "1", "--train.updates", "6", "--train.evaluations", "1"]


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
