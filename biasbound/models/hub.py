"""Emulators on the Hugging Face hub (the extra `hub`): the same folder, with the card as its page.

The network is used by `push` and `fetched` alone, which are called when somebody asks for them. What is fetched is read
like any other folder: its weights must have the digest that its config names, and nothing in it is run.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from biasbound.registry import extra

__all__ = ["fetched", "hub_name", "push"]

FILES = ("config.json", "model.safetensors", "schedule.json", "README.md")
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def hub_name(folder: str | os.PathLike[str]) -> str | None:
    """`user/name`, where a text is one and nothing here goes by it. A path, and whatever is below a folder, is local."""
    if not isinstance(folder, str) or not NAME.fullmatch(folder) or folder.startswith("."):
        return None
    return None if Path(folder).exists() or Path(folder).parent.exists() else folder


def push(emulator: Any, name: str, *, private: bool = False, token: str | None = None) -> str:
    """Write an emulator to the hub as `user/name`; returns the address of the commit."""
    if not NAME.fullmatch(name):
        raise ValueError(f"an emulator on the hub has a name like user/name, not {name!r}")
    library = extra("huggingface_hub", "an emulator on the hub", "hub")
    with tempfile.TemporaryDirectory(prefix="biasbound-hub-") as temporary:
        folder = Path(temporary) / "emulator"
        emulator.save(folder, name)
        api = library.HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=name, folder_path=folder, commit_message="Emulator written by biasbound")
    return str(done)


def fetched(name: str, revision: str | None = None) -> Path:
    """The folder of `user/name` in the hub's cache on this machine, fetched where it is not there yet."""
    library = extra("huggingface_hub", f"{name} is no folder here, and to look for it on the hub", "hub")
    try:
        return Path(library.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:  # its errors are kinds of these
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} is no folder here, and it cannot be fetched from the hub: {said}") from error
