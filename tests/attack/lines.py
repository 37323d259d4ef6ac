"""Bad option lines, made from what the parsers say about themselves: every option once it is there, new ones included."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from arena import Case

from biasbound.cli import main, study
from biasbound.cli.kinds import folder
from biasbound.cli.parser import command_parser
from biasbound.cli.wish import STUDY_COMMANDS, _parser
from biasbound.study.parsing import presets

WORDS = (
    "x",
    "",
    "1.5.2",
    "--",
    "\x1b[2J",
    "[[[[",
    "{a: [}",
    "nan nan",
    "99999999999999999999999999x",
    "\u202e7",
    "0x",
    "½",
)
NUMBERS = ("-1", "nan", "inf", "-inf", "1e999", "-9223372036854775809")
START = ["--preset", "ks-smoke", "--dry-run", "--jobs", "1"]


@dataclass(frozen=True)
class Option:
    """One option of one command: the words before it, its name, and what it is."""

    before: tuple[str, ...]
    name: str
    numeric: bool
    choices: tuple[str, ...] = ()
    flag: bool = False


def options() -> list[Option]:
    """Every option of every command, from the parsers themselves."""
    found: list[Option] = []
    for words in (["status"], ["data", "info"]):
        _walk(command_parser(words), (), found)
    base = presets()["ks-smoke"]
    for verb in STUDY_COMMANDS:
        for action in _parser(verb, base)._actions:
            if action.option_strings and action.dest not in ("help", "config", "print_config", "preset"):
                kind = str(getattr(action, "_typehint", None) or action.type or "")
                numeric = (
                    any(word in kind for word in ("int", "float", "count"))
                    and "str" not in kind
                    and "dict" not in kind
                )
                flag = action.nargs == 0
                found.append(Option((verb, "RUN", *START), action.option_strings[0], numeric, flag=flag))
    return found


def _walk(parser: Any, before: tuple[str, ...], found: list[Option]) -> None:
    needed = tuple(word for action in parser._actions for word in _filled(action))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                if name not in STUDY_COMMANDS:
                    _walk(inner, (*before, name), found)
        elif action.option_strings and action.dest not in ("help", "version"):
            numeric = action.type not in (None, Path, folder)
            choices = tuple(map(str, action.choices or ()))
            found.append(Option((*before, *needed), action.option_strings[-1], numeric, choices, action.nargs == 0))


def _filled(action: Any) -> list[str]:
    """What a command needs beside the option that is tried."""
    if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
        return ["levels"] if action.dest == "method" else ["nowhere.h5"]
    return [action.option_strings[-1], "nowhere.h5"] if action.required and action.option_strings else []


def bad_lines(count: int, seed: int = 0) -> Iterator[tuple[list[str], str]]:
    """(line, option that is wrong in it)"""
    rng, every = random.Random(seed), options()
    rng.shuffle(every)
    made = 0
    while made < count:
        for option in every:
            if made == count:
                return
            line, name = _bad(option, rng)
            if line:
                made += 1
                yield line, name


def _bad(option: Option, rng: random.Random) -> tuple[list[str], str]:
    typo = option.name + rng.choice("xqz")
    if rng.random() < 0.15 or option.flag:
        return [*option.before, f"{typo}=3"], typo
    if option.choices:
        return [*option.before, f"{option.name}={rng.choice(WORDS)}"], option.name
    if option.numeric:
        return [*option.before, f"{option.name}={rng.choice((*WORDS, *NUMBERS))}"], option.name
    return [], ""


NONSENSE = {  # values that parsers take and nobody can mean
    "run RUN": [
        "train.clip=0", "train.clip=-1", "train.lr=0", "train.lr=-1", "train.lr=inf", "train.lr=nan", "train.batch=0",
        "train.batch=-3", "train.updates=0", "train.updates=-1", "train.ema=1", "train.ema=-0.1", "train.ema=2",
        "train.explode=0", "train.explode=1", "train.explode=-5", "train.warmup=-1", "train.weight_decay=-1",
        "train.log_every=0", "train.checkpoint_every=0", "train.evaluations=0", "train.pairs=0", "train.budget=0",
        "train.lr_final=-1", "train.lr_final=inf", "train.optimiser=nothing", "search.tau=0.9", "search.tau=-1",
        "search.tau=nan", "search.levels=1", "search.levels=0", "search.levels=100000000", "search.sigma_min=0",
        "search.sigma_min=2", "search.sigma_max=1", "search.sigma_max=0", "search.rounds=0", "search.draws=0",
        "search.patience=0", "search.ahead=0", "search.calls=0", "search.pairs=0", "search.warm=-1", "search.warm=2",
        "search.share=2", "search.lowest=0", "search.lowest=1", "search.top=-1", "search.top=1", "search.seed=-1",
        "search.updates=0", "search.band=-1", "search.band=2", "baselines.cap=2", "baselines.cap=0", "baselines.cap=1",
        "baselines.cap=-1", "baselines.levels=0", "baselines.levels=1000000000", "baselines.refinements=0",
        "baselines.sigma_min=0", "baselines.sigma_min=1", "rollout.steps=0", "rollout.steps=100000",
        "rollout.trajectories=0", "rollout.trajectories=100000", "rollout.members=0", "rollout.batch=0",
        "rollout.seed=-1", "evaluate.steps=0", "evaluate.steps=-1", "evaluate.pairs=0", "evaluate.draws=0",
        "evaluate.curve=-1", "evaluate.gradients=-1", "finetune.updates=0", "finetune.unroll=0", "finetune.share=0",
        "finetune.share=1", "finetune.lr=0", "finetune.lr=-1", "finetune.proxy_steps=-1", "finetune.lr_final=-1",
        "finetune.warmup=1", "data.stride_time=0", "data.stride_space=0", "data.seed=-1", "data.size=giant", "data.dataset=nothing",
        "data.stride_time=100000", "data.stride_space=7", "task.history=0", "task.history=100000", "task.name=nothing",
        "network.width=0", "network.width=-3", "network.blocks=-1", "network.multipliers=[]", "network.multipliers=[0]",
        "network.name=nothing", "seeds=-1", "seeds=0,0", "seeds=", "methods=", "methods=direct,direct", "method=",
        "method=nothing", "device=cpu:5", "device=nothing", "device=cuda:99", "executor=nothing", "jobs=0", "threads=0",
        "methods=direct-nothing", "methods=linear-v-x0", "methods=../../x", "methods=direct-ut99999", "methods=edm-0",
        "methods=edm-99999999999", "methods=[{model: nothing}]", "methods=[{model: 3}]", "figure=nothing",
        "methods=[{model: direct, unroll: 100000}]", "network.others={nothing: {}}", "baselines.options={nothing: {}}",
        "data.settings={seed: 3}", "data.settings={frames: x}", "data.settings={device: meta}", "data.train=nowhere",
        "train.symmetries=[q]", "train.accumulate=0", "finetune.unroll=1000", "network.embedding=7",
    ],
    "fit nowhere.h5": ["minutes=0", "minutes=-1", "minutes=inf", "updates=0", "history=0", "seed=-1", "jobs=0"],
    "data ks --out a.h5": ["trajectories=0", "seed=-1", "jobs=0", "set=frames=0", "set=frames=-1", "size=giant", "set=x", "set=seed=3", "set=device=nothing", "set=points=-64"],
    "schedule make linear --out a.json": ["T=0", "T=-1", "T=100000000", "sigma-max=2", "sigma-min=0.1", "over=sigma"],
    "schedule front e --data x.h5": ["levels=100000", "draws=100000", "calls=0", "calls=100000", "score=x"],
    "diagnose e --data x.h5": ["levels=100000", "draws=0", "tau=0", "power=3", "sigma-min=1", "statistic=x"],
    "predict e --data x.h5 --out p.nc": ["steps=0", "members=0", "trajectories=0", "seed=-1", "stride-time=0", "dt=-1"],
}  # fmt: skip


def nonsense() -> list[tuple[list[str], str]]:
    """(line, option) of every value that must be refused."""
    found = []
    for command, values in NONSENSE.items():
        words = command.split()
        words += START if words[0] == "run" else []
        for value in values:
            name = value.split("=")[value.startswith("set=")]  # of a setting, its own
            sign = "-" if value.startswith("T=") else "--"
            found.append(([*words, *([f"{sign}{value}"] if sign == "--" else ["-T", value[2:]])], name))
    return found


class Accepted(Exception):
    """A line that should have been refused, or a complaint that names neither the option nor its value."""


def _refused(line: list[str], name: str, folder: Path) -> None:
    """The line ends with exit code 2 and one sentence that names what is wrong; no stage begins."""
    import contextlib
    import io
    import os
    from unittest import mock

    os.chdir(folder)
    said, code = io.StringIO(), 0
    unspoken = mock.patch.object(study, "dry_run", return_value=None)  # every check has been made by then
    with unspoken, contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main([str(folder / word) if word == "RUN" else word for word in line])
        except SystemExit as stop:
            code = int(stop.code or 0)
    text = said.getvalue()
    if code != 2:
        raise Accepted(f"exit code {code}: {line}: {text[-300:]}")
    plain = name.lstrip("-")
    if (
        not any(word in text for word in (plain, plain.replace("-", "_")))
        or "Traceback" in text
        or len(text.strip().splitlines()) != 1
        or "\x1b" in text
    ):
        raise Accepted(f"{line}: {text[-300:]}")
    raise ValueError(text.strip())  # as it should be


def line_cases(lines: list[tuple[list[str], str]]) -> list[Case]:
    return [(" ".join(line), partial(_refused, line, name)) for line, name in lines]
