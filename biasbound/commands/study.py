"""The commands that work on a study: each brings a run folder up to its stage and says what to do next.

    biasbound run | search | train | finetune | rollout | evaluate | report  [RUN] [--preset P] [--section.field V]

What is done and unchanged is skipped. Changed settings that would throw finished work away are refused until --redo.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import Config, ConfigParser, config_parser, made, presets, read_config, to_yaml
from .show import dry_run, rescored

__all__ = ["STUDY_COMMANDS", "compare", "study"]

# verb: (last stage, what it does, next command)
STUDY_COMMANDS = {
    "run": ("report", "a whole study: data, search, trainings, rollouts, scores, report", "open"),
    "search": (
        "search",
        "find the noise schedule: explore the thresholds, then the greedy ladder",
        "train",
    ),
    "train": ("train", "train methods at the study's budget", "evaluate"),
    "finetune": ("finetune", "Proxy Unrolled Training of trained methods", "evaluate"),
    "rollout": ("rollout", "roll emulators out over the test split", "evaluate"),
    "evaluate": ("evaluate", "score emulators on the test split, and print the table", "report"),
    "report": ("report", "tables, figures and the page of a run", "open"),
}
EXAMPLES = {
    "run": "biasbound run --preset ks-demo",
    "search": "biasbound search runs/mine --preset ks-demo --method adaptive-v --search.tau 1.03",
    "train": "biasbound train runs/mine --preset ks-demo --method linear",
    "finetune": "biasbound finetune runs/mine --method adaptive-v",
    "rollout": "biasbound rollout runs/mine --method adaptive-v --rollout.members 8",
    "evaluate": "biasbound evaluate runs/mine",
    "report": "biasbound report runs/mine --figure ladder",
}


@dataclass(frozen=True)
class Wish:
    """What one call of a study command asks for."""

    verb: str
    run: Path
    config: Config
    methods: tuple[str, ...]
    manner: dict[str, Any]
    redo: bool
    dry: bool
    shown: bool  # print the config, do nothing
    figures: tuple[str, ...]
    source: str  # where the settings come from


def study(verb: str, argv: Sequence[str]) -> int:
    """Run one of `STUDY_COMMANDS`; returns the exit code."""
    if verb == "evaluate" and argv and _is_record(Path(argv[0])):
        return rescored(Path(argv[0]))
    wish = _wish(verb, list(argv))
    if wish.shown:
        print(to_yaml(wish.config), end="")
        return 0
    from ..rundir import open_run, save_config

    units = _units(wish)
    if wish.dry:
        dry_run(wish.run, wish.config, units)
        return 0
    if (
        int(os.environ.get("RANK", "0")) > 0
    ):  # under torchrun the first process alone keeps the folder
        return _help(wish, units)
    known = (wish.run / "run.json").exists()
    run = open_run(wish.run, wish.config)
    code = 0
    with run.writing():
        if verb == "report":
            _report(run, wish)
        else:
            if known:
                _settle(run, wish)
                save_config(run)
            code = _bring(run, wish, units)
            if verb == "run" and code == 0:
                _report(run, wish)
    _next(wish, code)
    return code


def _is_record(folder: Path) -> bool:
    """Whether a folder holds kept emulators with their rows, and is no run."""
    kept = all((folder / name).exists() for name in ("config.yaml", "results.jsonl"))
    return kept and not (folder / "run.json").exists()


def _help(wish: Wish, units: Sequence[Any]) -> int:
    """Take part in the trainings of another process."""
    from ..pipeline.execute import Manner, bring_about
    from ..rundir import RunDir

    run = RunDir(wish.run, wish.config)
    outcome = bring_about(run, units, Manner(**wish.manner), lambda event: None)
    return 2 if outcome.failed else 0


def _wish(verb: str, argv: list[str]) -> Wish:
    """Parse in two steps: the folder or the preset decides on the defaults of everything else."""
    first = next((a for a in argv[:1] if not a.startswith("-")), None)
    folder = next((a for a in argv if (Path(a) / "run.json").exists()), first)
    preset = _value(argv, "--preset")
    if preset is not None and preset not in presets():
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(presets())}")
    base = presets()[preset] if preset is not None else None
    if base is None and folder is not None and (Path(folder) / "config.yaml").exists():
        base = Path(folder) / "config.yaml"
    if base is None and not {"--config", "-h", "--help"} & {a.partition("=")[0] for a in argv}:
        found = "no run folder is given" if folder is None else f"{folder} is not a run folder"
        raise ValueError(
            f"{found}: name one, or start from --preset ({', '.join(presets())}) or --config FILE"
        )
    parser = _parser(verb, base)
    shown = "--print_config" in argv
    given = parser.parse_args([a for a in _lists(argv) if a != "--print_config"])
    config = made(parser, given)
    methods = tuple(given.method) or config.methods
    if verb == "finetune":
        methods = tuple(m if m.endswith("-proxy") else f"{m}-proxy" for m in methods)
    out = Path(given.run or f"runs/{preset or config.data.dataset}")
    config = _joined(config, methods, out)
    manner = {"jobs": given.jobs, "threads": given.threads, "device": given.device}
    flags = given.redo, given.dry_run, shown
    source = f"preset {preset}" if preset else str(given.config[0] if given.config else base)
    return Wish(verb, out, config, methods, manner, *flags, tuple(given.figure), source)


def _joined(config: Config, methods: Sequence[str], out: Path) -> Config:
    """The config with all methods and seeds that the run has had, so that none drops out of its results."""
    saved = read_config(out / "config.yaml") if (out / "run.json").exists() else config
    return replace(
        config,
        methods=tuple(dict.fromkeys((*saved.methods, *config.methods, *methods))),
        seeds=tuple(dict.fromkeys((*saved.seeds, *config.seeds))),
    )


def _value(argv: Sequence[str], option: str) -> str | None:
    for i, here in enumerate(argv):
        if here == option and i + 1 < len(argv):
            return argv[i + 1]
        if here.startswith(f"{option}="):
            return here.partition("=")[2]
    return None


def _lists(argv: list[str]) -> list[str]:
    """`--methods a,b` and `--seeds 0,1` without the brackets of YAML; `--tau` is that of the search."""
    told = [f"--search{a[1:].replace('-', '.', 1)}" if a.startswith("--tau") else a for a in argv]
    lists = ("--methods", "--seeds", "--evaluate.steps", "--method", "--figure")
    for i, argument in enumerate(told[:-1]):
        if argument in lists and not told[i + 1].startswith("["):
            told[i + 1] = f"[{told[i + 1]}]"
    return told


def _parser(verb: str, base: Path | None) -> ConfigParser:
    _, what, _ = STUDY_COMMANDS[verb]
    parser = config_parser(
        f"biasbound {verb}", f"{what[0].upper()}{what[1:]}.", f"example: {EXAMPLES[verb]}", base
    )
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the run's folder (default runs/PRESET)"
    )
    parser.add_argument("--preset", help=f"a study to start from: {', '.join(presets())}")
    parser.add_argument(
        "--method",
        type=list[str],
        default=[],
        metavar="LABELS",
        help="only these, instead of all of `methods`",
    )
    parser.add_argument(
        "--jobs", type=int, default=_cores(), help="trainings side by side (default: cores)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each training (default 1)")
    parser.add_argument(
        "--device", default="cpu", help="where networks compute (cpu, cuda, cuda:1)"
    )
    parser.add_argument(
        "--redo", action="store_true", help="make again what changed settings made stale"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and its cost"
    )
    parser.add_argument(
        "--figure",
        type=list[str],
        default=[],
        metavar="NAMES",
        help="of the report, only these figures",
    )
    return parser


def _cores() -> int:
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def _units(wish: Wish) -> list[Any]:
    from ..pipeline.graph import study_units

    stage = STUDY_COMMANDS[wish.verb][0]
    return study_units(wish.config, wish.methods, "evaluate" if stage == "report" else stage)


def _settle(run: Any, wish: Wish) -> None:
    """Refuse settings that make finished work stale, or throw it away when told to."""
    from ..pipeline.graph import study_units

    every = study_units(wish.config)
    stale = [unit for unit in every if run.state(unit) == "stale"]
    if stale and not wish.redo:
        names = ", ".join(unit.name for unit in stale)
        raise ValueError(
            f"these settings make {len(stale)} finished units of {run.path} stale ({names}): give --redo to make "
            "them again, or another folder"
        )
    run.discard(stale)


def _bring(run: Any, wish: Wish, units: Sequence[Any]) -> int:
    from ..pipeline.execute import Manner, bring_about, collect
    from ..pipeline.graph import study_units
    from ..pipeline.view import watching

    print(
        f"{run.path}: {len(units)} units of {wish.source}, methods {', '.join(wish.methods)}",
        flush=True,
    )
    with watching() as tell:
        outcome = bring_about(run, units, Manner(**wish.manner), tell)
    print(f"{run.path}: {len(outcome.made)} units made, {len(outcome.there)} were there already")
    if any(unit.stage == "evaluate" for unit in units):
        path = collect(run, study_units(run.config))
        if path is not None:
            print(f"{path}: written")
            _table(path)
    for name, problem in outcome.failed.items():
        print(f"biasbound: {name} failed: {problem}", file=sys.stderr)
    return 2 if outcome.failed else 0


def _table(path: Path) -> None:
    from ..report.tables import demo_table
    from ..rows import read_rows

    print(demo_table(read_rows(path)).text())


def _report(run: Any, wish: Wish) -> None:
    """Tables, figures and the page of what is there; `run` makes them once, `report` whenever asked."""
    import time

    from ..pipeline.execute import collect
    from ..pipeline.graph import study_units
    from ..report.tables import table1
    from ..report.write import write_report
    from ..rows import read_rows
    from ..rundir import Unit

    units = study_units(run.config)
    done = tuple(u for u in units if u.stage == "evaluate" and run.state(u) == "done")
    unit = Unit("report", inputs=done)
    if wish.verb == "run" and run.state(unit) == "done":
        print(f"{run.folder(unit) / 'index.html'}: is there already")
        return
    results = collect(run, units)
    started = time.process_time()
    written = write_report(
        run.path, run.folder(unit), figures=wish.figures or None, page=not wish.figures
    )
    for path in written:
        if path.suffix in (".html", ".md", ".tex") or wish.figures:
            print(f"{path}: written")
    if results is not None and wish.verb == "report" and not wish.figures:
        print(table1(read_rows(results)).text())
    if not wish.figures:
        run.finish(unit, {"cpu_seconds": round(time.process_time() - started, 3)})


def _next(wish: Wish, code: int) -> None:
    after = STUDY_COMMANDS[wish.verb][2]
    if code:
        print(
            f"next: mend what failed, then give the same command again; it goes on in {wish.run}"
        )
    elif after == "open":
        print(f"next: open {wish.run / '07-report' / 'index.html'}")
    else:
        print(f"next: biasbound {after} {wish.run}")


def compare(paths: Sequence[Path], out: Path) -> None:
    """One table and one page of several runs."""
    from ..report.compare import write_comparison

    for path in write_comparison(list(paths), out):
        print(f"{path}: written")
    print(f"next: open {out / 'index.html'}")
