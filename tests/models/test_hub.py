"""Emulators on the hub: its file layout stands here as a folder, and huggingface_hub is kept off the network."""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from emulators import emulator
from huggingface_hub import constants
from toys import advected, seeded

import biasbound
from biasbound.metrics.rows import About, Row, write_rows


class Hub:
    """`HfApi` for one folder: blobs by their digest, snapshots of links to them, and refs by name, as the hub's cache."""

    root = Path()

    def __init__(self, token=None):
        self.token = token

    def create_repo(self, name, private, exist_ok):
        assert exist_ok
        (self.root / f"models--{name.replace('/', '--')}").mkdir(exist_ok=True)

    def upload_folder(self, repo_id, folder_path, commit_message):
        repo = self.root / f"models--{repo_id.replace('/', '--')}"
        commit = hashlib.sha1(str(len(list(repo.glob("snapshots/*")))).encode()).hexdigest()
        for part in ("blobs", "refs", f"snapshots/{commit}"):
            (repo / part).mkdir(parents=True, exist_ok=True)
        for file in sorted(folder_path.iterdir()):
            blob = repo / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, blob)
            os.symlink(f"../../blobs/{blob.name}", repo / "snapshots" / commit / file.name)
        (repo / "refs" / "main").write_text(commit)
        return f"https://hub/{repo_id}/commit/{commit}"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub, and a current folder beside it."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(Hub, "root", tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "hub"


@pytest.mark.parametrize("name", ["eps", "direct"])
def test_what_was_pushed_is_loaded_by_its_name(name, hub):
    made = emulator(name)
    assert made.push_to_hub("someone/waves").startswith("https://hub/someone/waves/commit/")
    back, x = biasbound.load("someone/waves"), advected(3)[:, 0]
    assert torch.equal(back.step(x, generator=seeded()), made.step(x, generator=seeded()))
    (page,) = hub.glob("models--someone--waves/snapshots/*/README.md")
    assert 'biasbound.load("someone/waves")' in page.read_text()


@pytest.mark.usefixtures("hub")
def test_the_program_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs/interop.md").read_text()
    (program,) = (p for p in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "push_to_hub" in p)
    label, cost = "adaptive-scaled-residual", {"nfe": 2, "updates": 10, "seconds": 1.0}
    made, folder = emulator("eps"), Path(f"runs/ks-demo/03-train/{label}/seed-0")
    folder.mkdir(parents=True)
    made.save(folder / "emulator")
    write_rows("runs/ks-demo/results.jsonl", [Row("ks", label, 3, "mse", 1, 0.5, None, None, **cost)])
    exec(program, known := {})  # noqa: S102 - our own page
    assert known["emulator"].nfe == made.nfe


def test_a_revision_is_loaded_where_it_is_asked_for(hub):
    old, new = emulator("eps"), emulator("direct")
    commit = old.push_to_hub("someone/waves").rpartition("/")[2]
    new.push_to_hub("someone/waves")
    assert biasbound.load("someone/waves").nfe == new.nfe
    assert biasbound.load("someone/waves", revision=commit).nfe == old.nfe


def test_what_is_local_never_asks_the_hub(hub, monkeypatch):
    def never(*args, **how):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", never)
    Path("runs").mkdir()
    emulator("direct").save("runs/waves")
    assert biasbound.load("runs/waves").nfe == 1
    for place in ("runs/typo", Path("someone/waves"), "./waves", "/no/waves", "waves", "a/b/c"):
        with pytest.raises(ValueError, match="is not an emulator: it has no config"):
            biasbound.load(place)


def test_what_the_hub_does_not_have_is_one_sentence(hub, monkeypatch):
    with pytest.raises(ValueError, match="someone/nothing is no folder here, and it cannot be fetched from the hub"):
        biasbound.load("someone/nothing")
    with pytest.raises(ValueError, match="a name like user/name, not 'waves'"):
        emulator("direct").push_to_hub("waves")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'biasbound\[hub\]'"):
        emulator("direct").push_to_hub("someone/waves")


def test_the_card_is_made_from_the_rows(tmp_path):
    made = emulator("eps")  # of seed 3
    about = About("waves", "cosine", seed=3, nfe=4, updates=120, seconds=7.5, ledger=4800)
    values = {1: 0.001, 2: 0.002, 10: 0.03, 25: 0.4}
    rows = [about.row("mse", value, step) for step, value in values.items()] + [about.row("broken", 2)]
    other = About("waves", "cosine", seed=4).row("mse", 0.777, 1)
    made.scored([*rows, other]).save(tmp_path / "e")
    back = biasbound.load(tmp_path / "e")
    back.save(tmp_path / "again")
    for folder in ("e", "again"):  # the rows are kept with it
        card = (tmp_path / folder / "README.md").read_text()
        assert "| mse | 1 | 0.001 |" in card
        assert "| mse | 25 | 0.4 |" in card
        assert "| mse | 2 |" not in card
        assert "0.777" not in card
        assert "- training samples passed through the network: 4,800" in card
        assert "scored up to step 25" in card
        assert "became non-finite when it was scored: 2" in card
    with pytest.raises(ValueError, match="none of the 1 rows is about this emulator"):
        made.scored([other])
    made.save(tmp_path / "bare")
    assert "Not scored" in (tmp_path / "bare" / "README.md").read_text()
