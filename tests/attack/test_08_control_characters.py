"""What a file calls itself never steers a terminal, and never becomes part of a file's name."""

import json
import unicodedata

import pytest
from calling import called
from hypothesis import given
from hypothesis import strategies as st

from biasbound._io import checked_name, shown

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x08\u202e"


@given(st.text())
def test_only_what_can_be_seen_is_shown(text):
    seen = shown(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in seen)
    assert shown(seen) == seen
    if text.isprintable() and text.isascii():
        assert seen == text


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_name_in_a_file_does_not_steer_the_terminal(tmp_path, capsys, stream):
    path = tmp_path / "ladder.json"
    told = {"format": "biasbound.schedule", "version": 1, "sigma": [0.1, 0.5], "meta": {"method": EVIL}}
    path.write_text(json.dumps(told if stream == "out" else told | {"version": EVIL}))
    _, out, err = called(["schedule", "show", path], capsys)
    said = {"out": out, "err": err}[stream]
    assert "owned" in said
    assert not set(EVIL) & set(said) - set("]0;owned[2J")


def test_neither_does_a_file_name(tmp_path, capsys):
    code, _, said = called(["schedule", "show", tmp_path / f"{EVIL}.json"], capsys)
    assert code == 2
    assert "\x1b" not in said
    with pytest.raises(ValueError, match="cannot be that of a folder"):
        checked_name(EVIL, "here")
