"""A study's folder: numbered stages, each made of units that are done once, whole, and with their provenance.

    RUN/run.json  config.yaml  results.jsonl
    RUN/01-data/                         RUN/02-search/<label>/seed-<s>/
    RUN/03-train/<label>/seed-<s>/       RUN/04-finetune/<label>/seed-<s>/
    RUN/05-rollout/<label>/seed-<s>/     RUN/06-evaluate/<label>/seed-<s>/     RUN/07-report/

A unit's *key* is a digest of all that its result depends on: its stage, its job (`jobs`) and the keys of the units that
it reads. `stage.json` is written last, with the key: a unit whose key is there is done and never made again, one
with another key is stale, one without has begun or not. Changed settings thus name exactly the units that they touch.
"""

import platform
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from biasbound import __version__
from biasbound._io import checked_name, cores, make_folder, no_links, read_json, remove, write_json, write_text
from biasbound.study.config import Config
from biasbound.study.hold import held
from biasbound.study.jobs import digest, identity
from biasbound.study.parsing import read_config, to_yaml

FORMAT = 2
STAGES = {
    "data": "01-data",
    "search": "02-search",
    "train": "03-train",
    "finetune": "04-finetune",
    "rollout": "05-rollout",
    "evaluate": "06-evaluate",
    "report": "07-report",
}
TRAININGS = ("search", "train", "finetune")
State = Literal["done", "stale", "begun", "to do"]


@dataclass(frozen=True)
class Begun:
    """begun.json: the key of what was begun."""

    key: str


@dataclass(frozen=True)
class Done(Begun):
    """stage.json: the key of what was made, and what it cost; its other fields are for people and reports."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    updates: int = 0
    ledger: int = 0
    nfe: int = 0


@dataclass(frozen=True)
class Unit:
    """One thing to make: a stage for a method and a seed. `inputs` are the units that it reads."""

    stage: str
    job: Any = None  # what it reads of the config
    label: str = ""  # of the method; data and report have none
    seed: int = 0
    inputs: tuple["Unit", ...] = ()

    def __post_init__(self) -> None:
        if self.label:  # a config may come from anyone, and the label becomes a folder
            checked_name(self.label, "method")

    @property
    def name(self) -> str:
        """As people and folders call it."""
        return f"{STAGES[self.stage]}/{self.label}/seed-{self.seed}" if self.label else STAGES[self.stage]

    @property
    def settings(self) -> Any:
        """JSON values of all that its result depends on, beside its inputs."""
        return identity(self.job)

    @property
    def key(self) -> str:
        inputs = [unit.key for unit in self.inputs]
        return digest({"format": FORMAT, "unit": self.name, "settings": self.settings, "inputs": inputs})


@dataclass(frozen=True)
class RunDir:
    """A study's folder and its config."""

    path: Path
    config: Config

    def folder(self, unit: Unit) -> Path:
        return self.path / unit.name

    def record(self, unit: Unit, name: str = "stage.json") -> dict[str, Any] | None:
        """What stage.json says of a finished unit, or begun.json of one that was begun."""
        path, cure = self.folder(unit) / name, f"remove the folder {self.folder(unit)} to make it again"
        kind: Any = Begun if name == "begun.json" else Done
        return vars(read_json(path, kind, cure)) if path.exists() else None

    def state(self, unit: Unit) -> State:
        done = self.record(unit)
        told = self.record(unit, "begun.json") if done is None else done
        if told is None:
            return "to do"
        return "stale" if told["key"] != unit.key else "begun" if done is None else "done"

    def begin(self, unit: Unit) -> Path:
        """The unit's folder, marked with its key; what a killed process left in it is kept for going on."""
        folder = self.folder(unit)
        if self.state(unit) == "stale":
            raise ValueError(f"{folder} was made with other settings; give --redo to make it again")
        make_folder(folder)
        if not (folder / "begun.json").exists():
            write_json(folder / "begun.json", {"key": unit.key}, None)
        return folder

    def finish(self, unit: Unit, facts: Mapping[str, Any]) -> None:
        """Write stage.json: from now on the unit is done."""
        told = {
            "stage": unit.stage,
            "unit": unit.name,
            "key": unit.key,
            "inputs": {other.name: other.key for other in unit.inputs},
            "config": unit.settings,
            **provenance(),
            "seed": unit.seed,
            **facts,
        }
        write_json(self.folder(unit) / "stage.json", told)
        (self.folder(unit) / "begun.json").unlink(missing_ok=True)

    def discard(self, units: Iterable[Unit]) -> None:
        """Remove what stale units hold."""
        for unit in units:
            if self.state(unit) == "stale":
                remove(self.folder(unit))

    def writing(self) -> AbstractContextManager[None]:
        """Hold the folder against a second writer, on any machine that sees it; one that would lead elsewhere is refused."""
        no_links(self.path, ".jobs")  # of which submitit makes its own
        return held(self.path / ".writing")


BEGUN = {
    ".run.json.writing",
    ".run.json.lock",
}  # all that a start leaves which is killed before the folder has its mark


def require_place(path: Path) -> None:
    """Refuse what stands where a run should be made and is none."""
    if (path / "run.json").exists() or not path.exists():
        return
    if not path.is_dir() or {p.name for p in path.iterdir()} - BEGUN:
        raise ValueError(f"{path} exists and is not a run folder; name another one")


def open_run(path: Path, config: Config | None = None) -> RunDir:
    """The run in this folder: a new one when `config` is given, else as it was saved.

    With a config the folder's is replaced; which units that makes stale is for the caller to find and say.
    """
    mark = path / "run.json"
    if mark.exists():
        told: Any = read_json(mark, cure="name another folder")
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            version = told.get("version", "unknown") if isinstance(told, dict) else "unknown"
            raise ValueError(
                f"{path} is a run folder of biasbound {version}, which this version ({__version__}) cannot continue; "
                "use another folder"
            )
        return RunDir(path, read_config(path / "config.yaml") if config is None else config)
    if config is None:
        raise ValueError(f"{path} is not a run folder (it has no run.json); `biasbound run` makes one")
    require_place(path)
    make_folder(path)
    run = RunDir(path, config)
    save_config(run)
    return run


def save_config(run: RunDir) -> None:
    """Write run.json, which marks the folder as ours from then on, and config.yaml."""
    told = {"dataset": run.config.data.dataset, "title": run.config.title}
    write_json(run.path / "run.json", {"format": FORMAT, "version": __version__, **told})
    write_text(run.path / "config.yaml", to_yaml(run.config))


def provenance() -> dict[str, Any]:
    """Which code on which machine."""
    from importlib.metadata import version

    here = Path(__file__).parents[1]  # the package
    ours = _git(here, "rev-parse", "--show-toplevel") == str(here.resolve().parent)
    commit = _git(here, "rev-parse", "HEAD") if ours else None  # an installed copy has none of its own
    return {
        "version": __version__,
        "commit": commit,
        "dirty": None if commit is None else bool(_git(here, "status", "--porcelain", "--", str(here))),
        "python": platform.python_version(),
        "torch": version("torch"),
        "machine": _processor(),
        "cores": cores(),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        found = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    return f"{platform.machine()}, {model}" if model else platform.machine()
