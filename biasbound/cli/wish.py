"""What one call of a study command asks for: from its words to a config, in two steps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biasbound._io import cores
from biasbound.cli.kinds import count
from biasbound.study.config import UNET, Config
from biasbound.study.parsing import ConfigParser, config_parser, made, presets, read_config, require_config

# verb: (last stage, what it does, next command)
STUDY_COMMANDS = {
    "run": ("report", "a whole study: data, search, trainings, rollouts, scores, report", "open"),
    "search": ("search", "find the noise schedule: explore the thresholds, then the greedy ladder", "train"),
    "train": ("train", "train methods at the study's budget", "evaluate"),
    "finetune": ("finetune", "Proxy Unrolled Training of trained methods", "evaluate"),
    "rollout": ("rollout", "roll emulators out over the test split", "evaluate"),
    "evaluate": ("evaluate", "score emulators on the test split, and print the table", "report"),
    "report": ("report", "tables, figures and the page of a run", "open"),
}
IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
EXAMPLES = {
    "run": "biasbound run --preset ks-demo",
    "search": "biasbound search runs/mine --preset ks-demo --method adaptive-v --search.mode separate --search.updates 1000",
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
    methods: tuple[str, ...]  # labels
    manner: dict[str, Any]
    redo: bool
    dry: bool
    shown: bool  # print the config, do nothing
    figures: tuple[str, ...]
    source: str  # where the settings come from
    warning: str = ""  # one sentence on settings that are hardly meant
    quiet: bool = False  # the result alone
    json: bool = False  # the result as JSON on stdout, nothing else there


def _is_run(word: str) -> bool:
    """Whether a word of the command line is a run folder; a list of methods may be too long for a name of a file."""
    try:
        return (Path(word) / "run.json").exists()
    except OSError:
        return False


def wish_of(verb: str, argv: list[str]) -> Wish:
    """Parse in two steps: the folder or the preset decides on the defaults of everything else."""
    argv = _named(argv)
    first = next((a for a in argv[:1] if not a.startswith("-")), None)
    folder = next((a for a in argv if _is_run(a)), first)
    preset = _value(argv, "--preset")
    if preset is not None and preset not in presets():
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(presets())}")
    base = presets()[preset] if preset is not None else None
    if base is None and folder is not None and (Path(folder) / "config.yaml").exists():
        base = Path(folder) / "config.yaml"
    if base is None and not {"--config", "-h", "--help"} & {a.partition("=")[0] for a in argv}:
        found = "no run folder is given" if folder is None else f"{folder} is not a run folder"
        raise ValueError(f"{found}: name one, or start from --preset ({', '.join(presets())}) or --config FILE")
    for path in (*_configs(argv), *([base] if base else [])):
        require_config(path)
    _allow(argv)
    parser = _parser(verb, base)
    shown = "--print_config" in argv
    given = parser.parse_args([*_other_network(argv), *(a for a in _lists(argv) if a != "--print_config")])
    config = made(parser, given)
    chosen = _chosen(verb, tuple(given.method), config)
    out = Path(given.run or f"runs/{preset or config.data.dataset}")
    config, methods = _joined(config, chosen, out)
    manner = {"jobs": given.jobs, "threads": given.threads, "device": given.device, "executor": given.executor}
    flags = given.redo, given.dry_run, shown
    source = f"preset {preset}" if preset else str(given.config[0] if given.config else base)
    warning = "" if preset is None else _borrowed(argv, config, preset)
    told = {"quiet": given.quiet or given.json, "json": given.json}
    return Wish(verb, out, config, methods, manner, *flags, tuple(given.figure), source, warning, **told)


def _borrowed(argv: Sequence[str], config: Config, preset: str) -> str:
    """A warning where the strides of a preset, made for its own flow, would thin the user's data."""
    if config.data.train is None:
        return ""
    words = " ".join(_typed(argv))
    strides = {name: getattr(config.data, name) for name in ("stride_time", "stride_space")}
    strides = {name: n for name, n in strides.items() if n > 1 and name not in words}
    kept = " and ".join(
        f"one {what} in {strides[name]}"
        for name, what in (("stride_time", "frame"), ("stride_space", "grid point"))
        if name in strides
    )
    cure = " ".join(f"--data.{name} 1" for name in strides)
    return f"preset {preset} uses {kept} of {config.data.train}; give {cure} to use all" if strides else ""


def _typed(argv: Sequence[str]) -> list[str]:
    """All that the user wrote: here, or in a config of their own."""
    return [*argv, *(path.read_text(encoding="utf-8") for path in _configs(argv))]


def _configs(argv: Sequence[str]) -> list[Path]:
    """The files that --config names."""
    named = [Path(argv[i + 1]) for i, a in enumerate(argv[:-1]) if a == "--config"]
    return named + [Path(a.partition("=")[2]) for a in argv if a.startswith("--config=")]


def _allow(argv: Sequence[str]) -> None:
    """Names `package.module:name` may be imported where the user typed them."""
    from biasbound.registry import allow

    allow(name for text in _typed(argv) for name in IMPORTED.findall(text))


def _chosen(verb: str, given: Sequence[str], config: Config) -> tuple[Any, ...]:
    """The methods that are meant: those that are named, or all; for `finetune` the fine-tuned ones."""
    from biasbound.models.method import method
    from biasbound.study.graph import methods_of

    every = methods_of(config.methods)
    named = [every.get(label) or method(label) for label in given]
    if verb != "finetune":
        return tuple(named) or config.methods
    if named:
        return tuple(m if m.finetune else replace(m, finetune="proxy") for m in named)
    found = tuple(made for made in every.values() if made.finetune)
    if not found:
        raise ValueError(
            "no method of this study is fine-tuned: name one to fine-tune with --method, as in --method adaptive-v"
        )
    return found


def _joined(config: Config, chosen: Sequence[Any], out: Path) -> tuple[Config, tuple[str, ...]]:
    """The config with all methods and seeds that the run has had, so that none drops out; and the labels chosen."""
    from biasbound.study.graph import methods_of

    there = all((out / name).exists() for name in ("run.json", "config.yaml"))  # a killed start may lack the second
    saved = read_config(out / "config.yaml") if there else config
    every = methods_of((*saved.methods, *config.methods, *chosen))
    seeds = tuple(dict.fromkeys((*saved.seeds, *config.seeds)))
    joined = replace(config, methods=tuple(made.spelling for made in every.values()), seeds=seeds)
    return joined, tuple(methods_of(chosen))


def _value(argv: Sequence[str], option: str) -> str | None:
    for i, here in enumerate(argv):
        if here == option and i + 1 < len(argv):
            return argv[i + 1]
        if here.startswith(f"{option}="):
            return here.partition("=")[2]
    return None


def _lists(argv: list[str]) -> list[str]:
    """`--methods a,b` and `--seeds=0,1` without the brackets of YAML; `--tau` is that of the search."""
    told = [f"--search{a[1:].replace('-', '.', 1)}" if a.startswith("--tau") else a for a in argv]
    lists = ("--methods", "--seeds", "--evaluate.steps", "--method", "--figure")
    for i, argument in enumerate(told):
        option, sign, value = argument.partition("=")
        if option in lists and not (value if sign else "".join(told[i + 1 : i + 2])).strip("[] "):
            raise ValueError(f"{option} is empty: name at least one, or leave it out")
        if option in lists and sign and not value.startswith("["):
            told[i] = f"{option}=[{value}]"
        elif argument in lists and i + 1 < len(told) and not told[i + 1].startswith("["):
            told[i + 1] = f"[{told[i + 1]}]"
    return told


def _named(argv: Sequence[str]) -> list[str]:
    """`--network NAME` is `--network.name NAME`; a mapping in braces or a file is the whole section."""
    told = list(argv)
    for i, argument in enumerate(told):
        option, sign, value = argument.partition("=")
        meant = value if sign else "".join(told[i + 1 : i + 2])
        if option == "--network" and not (meant.startswith("{") or Path(meant).is_file()):
            told[i] = f"--network.name{sign}{value}"
    return told


def _other_network(argv: Sequence[str]) -> list[str]:
    """Unset what a preset says of the U-Net when another network is named."""
    if _value(argv, "--network.name") in (None, "unet"):
        return []
    return [f"--network.{name}=null" for name in UNET]


def _parser(verb: str, base: Path | None) -> ConfigParser:
    _, what, _ = STUDY_COMMANDS[verb]
    parser = config_parser(f"biasbound {verb}", f"{what[0].upper()}{what[1:]}.", f"example: {EXAMPLES[verb]}", base)
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run's folder (default runs/PRESET)")
    parser.add_argument("--preset", help=f"a study to start from: {', '.join(presets())}")
    parser.add_argument(
        "--method",
        type=list[str],
        default=[],
        metavar="LABELS",
        help="only these methods of the study, as in adaptive-v,direct (labels as in --methods)",
    )
    parser.add_argument("--jobs", type=count, default=cores(), help="trainings side by side (default: cores)")
    parser.add_argument("--threads", type=count, default=1, help="of each training (default 1)")
    parser.add_argument("--device", default="cpu", help="where networks compute (cpu, cuda, cuda:1)")
    parser.add_argument(
        "--executor", default="local", metavar="NAME", help="what computes the units: local, submitit (SLURM) or dask"
    )
    parser.add_argument("--quiet", action="store_true", help="show the result alone, no progress")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, for scripts")
    parser.add_argument("--redo", action="store_true", help="make again what changed settings made stale")
    parser.add_argument(
        "--dry-run", action="store_true", help="check your data, say what would be done, its cost and time"
    )
    parser.add_argument(
        "--figure", type=list[str], default=[], metavar="NAMES", help="of the report, only these figures"
    )
    return parser
