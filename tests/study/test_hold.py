"""A folder that several machines see has one writer at a time, whether or not its file system carries locks."""

import errno
import json
import os
import time
from contextlib import nullcontext

import pytest

from biasbound import _io
from biasbound._io import lock
from biasbound.study import hold
from biasbound.study.hold import held


@pytest.fixture
def apart(monkeypatch):
    """Machines whose locks do not meet; the function makes this process one of them."""
    monkeypatch.setattr(hold, "lock", nullcontext)
    return lambda host: monkeypatch.setattr(hold, "HOST", host)


def test_a_second_machine_is_refused_while_the_first_one_lives(tmp_path, apart):
    apart("a")
    with held(tmp_path / "w"):
        apart("b")
        with (
            pytest.raises(ValueError, match=rf"process {os.getpid()} of a is writing here.*wait"),
            held(tmp_path / "w"),
        ):
            pass
    with held(tmp_path / "w"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("host", "ago"), [("a", 61.0), ("b", 0.0)])
def test_a_machine_that_went_down_is_followed_after_a_minute_and_ones_own_at_once(tmp_path, apart, host, ago):
    sign = tmp_path / "w.by"
    sign.write_text(json.dumps({"host": host, "process": 4194305, "launch": None}))
    os.utime(sign, times=(time.time() - ago,) * 2)
    apart("b")
    with held(tmp_path / "w"):
        assert json.loads(sign.read_text())["process"] == os.getpid()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("launch", "follows"), [("job-7", True), ("job-8", False), ("none", False)])
def test_what_torchrun_starts_again_on_another_machine_follows_at_once(tmp_path, apart, monkeypatch, launch, follows):
    (tmp_path / "w.by").write_text(json.dumps({"host": "a", "process": 1, "launch": "job-7"}))
    apart("b")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", launch)
    with nullcontext() if follows else pytest.raises(ValueError, match="of a is writing"), held(tmp_path / "w"):
        pass


def test_a_holder_touches_its_sign(tmp_path, monkeypatch):
    monkeypatch.setattr(hold, "BEAT", 0.01)
    sign = tmp_path / "w.by"
    with held(tmp_path / "w"):
        os.utime(sign, times=(0, 0))
        until = time.monotonic() + 10
        while sign.stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert sign.stat().st_mtime > 0


def test_a_sign_that_was_being_written_counts_as_another_machines(tmp_path, apart):
    (tmp_path / "w.by").touch()
    with pytest.raises(ValueError, match="another machine"), held(tmp_path / "w"):
        pass


def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(_io.fcntl, "flock", refuse)
    again = pytest.raises(ValueError, match=f"process {os.getpid()} of ")
    with lock(tmp_path / "w"), held(tmp_path / "v"), again, held(tmp_path / "v"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_start_that_is_killed_leaves_no_half_a_sign(tmp_path, monkeypatch):
    """Half a sign names nobody, and would keep everyone out for a minute."""

    def killed(*told):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        patch.setattr(type(tmp_path), "unlink", lambda path, missing_ok=False: None)  # nothing is tidied up either
        with pytest.raises(KeyboardInterrupt), held(tmp_path / "w"):
            pass
    assert not (tmp_path / "w.by").exists()
    (tmp_path / f"w.by.{hold.HOST}.4194305").write_text("")  # of a process that is gone
    for path in tmp_path.glob("w.by.*"):
        path.rename(path.with_suffix(".4194305"))
    with held(tmp_path / "w"):
        assert json.loads((tmp_path / "w.by").read_text())["process"] == os.getpid()
    assert not list(tmp_path.glob("w.by*"))


def test_a_file_system_without_hard_links_has_signs_too(tmp_path, monkeypatch):
    def refused(*told):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    with held(tmp_path / "w"):
        assert json.loads((tmp_path / "w.by").read_text())["process"] == os.getpid()
    assert not list(tmp_path.glob("w.by*"))
