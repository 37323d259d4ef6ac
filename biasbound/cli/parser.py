"""Every command but those of a study, with its options. `run` names the function that does it, imported when it is called."""

import argparse
import ast
import inspect
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from biasbound import __version__
from biasbound.cli.kinds import count, few, folder, positive, seed, share
from biasbound.cli.reading import add_reading
from biasbound.cli.wish import STUDY_COMMANDS
from biasbound.data.formats import FORMATS
from biasbound.flows import FLOWS
from biasbound.registry import known

FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
FOLDER: dict[str, Any] = {"type": folder, "metavar": "FOLDER"}
EXPORTS = ("txt", "csv", "json", "betas", "diffusers", "edm", "k-diffusion", "azula")
EMULATOR = "runs/ks-demo/03-train/adaptive-scaled-residual/seed-0/emulator"


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (\S+): (must .*)", r"\1 \2", message, flags=re.DOTALL)
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; `{self.prog} --help` shows how to call it\n")


def command_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Commands in the order of the data flow; `words` are the command line."""
    parser = _Parser(
        prog="biasbound", description="Diffusion emulators for PDEs with bias-constrained noise schedules."
    )
    parser.add_argument("--version", action="version", version=f"biasbound {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _fit(commands)
    data = commands.add_parser("data", help="make, look at and convert trajectories")
    if list(words[:1]) == ["data"]:
        _data(data.add_subparsers(metavar="COMMAND", required=True), words[1:2])
    for verb, (_, what, _) in STUDY_COMMANDS.items():
        commands.add_parser(verb, help=what, add_help=False)  # `main` hands them over before
    status = _command(commands, "show:status", "where a run stands", "status runs/ks-demo")
    status.add_argument("folder", metavar="RUN", type=Path, help="the folder of a run")
    what = "several runs in one table, common figures and one page"
    several = _command(commands, "study:compare", what, "compare runs/a runs/b --out comparison")
    several.add_argument("folders", metavar="RUN", type=Path, nargs="+", help="folders of runs")
    several.add_argument("--out", required=True, help="where table, figures and page go", **FOLDER)
    _diagnose(commands)
    _predict(commands)
    _export(commands)
    _score(commands)
    _schedule(commands)
    return parser


def _command(commands: Any, run: str, what: str, example: str = "") -> argparse.ArgumentParser:
    """A command, called as the function of `biasbound.cli` that does it."""
    epilog = f"example: biasbound {example}" if example else None
    made: argparse.ArgumentParser = commands.add_parser(run.partition(":")[2].rstrip("_"), help=what, epilog=epilog)
    made.set_defaults(run=f"biasbound.cli.{run}")
    return made


def _fit(commands: Any) -> None:
    what = "an emulator of your own trajectories, compared and scored, in the time that you allow"
    add = (parser := _command(commands, "fit:fit", what, "fit KS.mat --variable uu --minutes 3")).add_argument
    add("file", metavar="FILE", help="trajectories in any format that `biasbound data info` reads")
    add("--minutes", type=positive, metavar="M", help="time allowed, from reading to the page (default: 10)")
    add("--updates", type=count, metavar="N", help="updates of each training, instead of a time")
    add("--out", help="where to keep everything (default: runs/fit-NAME)", **FOLDER)
    better = (
        "what the better model is better at: the error of one step, the error after ten, or the CRPS of an ensemble"
    )
    add("--prefer", choices=("accuracy", "rollout", "ensemble"), default="accuracy", help=better)
    add("--network", default="unet", metavar="NAME", help="a registered network, or package.module:name of your own")
    add("--history", type=count, default=1, metavar="H", help="frames that are given")
    add("--valid", metavar="FILE", help="validation data; without them FILE is divided")
    add("--test", metavar="FILE", help="test data, beside --valid")
    add("--conditions", default="", metavar="NAMES", help="parameters or static fields to be given, with commas")
    add("--seed", type=seed, default=0, metavar="S", help="of weights, batches and noise")
    add("--jobs", type=count, default=1, metavar="N", help="trainings side by side")
    add("--device", default="cpu", help="where to train (default: cpu)")
    add("--dry-run", action="store_true", help="read and check the data, say what would be done, and stop")
    add("--quiet", action="store_true", help="show the result alone")
    add("--json", action="store_true", help="print the result as one JSON object, for scripts")
    _stride(parser)


def _data(parts: Any, typed: Sequence[str]) -> None:
    """`biasbound data …`; a flow may be typed as package.module:name."""
    for name in dict.fromkeys((*known(FLOWS), *(word for word in typed if ":" in word))):
        _flow(parts.add_parser(name, help=_title(name)), name)
    info = _command(parts, "data:info", "shape, time step, channels, statistics, provenance")
    info.add_argument("file", help="any readable file or folder, or a pattern in quotes", **FILE)
    _momentum(info)
    info.add_argument("--plot", type=Path, metavar="PNG", help="draw a trajectory into this file")
    info.add_argument("--trajectory", type=seed, default=0, metavar="I", help="which to draw")
    info.add_argument("--force", action="store_true", help="replace an existing picture")
    convert = _command(parts, "data:convert", "read A in any format, write it as B")
    convert.add_argument("source", type=Path, metavar="A", help="file or folder to read")
    convert.add_argument("target", type=Path, metavar="B", help="file to write; its ending says the format")
    formats = f"of B: {', '.join(known(FORMATS))} (default: by its ending: .h5, .npy, .nc, .zarr)"
    convert.add_argument("--format", metavar="NAME", help=formats)
    _momentum(convert)
    convert.add_argument("--force", action="store_true", help="replace an existing file B")


def _title(name: str) -> str:
    """The first line on a flow, read from the text of its module where that is not imported yet."""
    entry = FLOWS.get(name, "")
    if not isinstance(entry, str):
        return (inspect.getdoc(entry) or "").partition("\n")[0]
    spec = find_spec(entry.partition(":")[0]) if entry else None
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def _flow(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--out", required=True, help="file to write", **FILE)
    parser.add_argument("--size", default="small", help="a named size (default: small)")
    parser.add_argument(
        "--split",
        choices=("train", "valid", "test"),
        default="train",
        help="which part of the data set, each with seeds of its own (default train)",
    )
    parser.add_argument("--trajectories", type=count, metavar="N", help="instead of the size's")
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="of the random numbers")
    other = "any other setting of the flow; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=other)
    parser.add_argument("--jobs", type=count, metavar="N", help="processes (default: all cores)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="of the numbers in the file (default float32)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE, or an unfinished one of other settings")
    parser.set_defaults(run="biasbound.cli.data:make", flow=name)


def _momentum(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument("--momentum", action="store_true", default=None, help="ACDM: momentum, not velocity")


def _stride(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stride-time", type=count, default=1, metavar="N", help="use every N-th frame of the data")
    parser.add_argument("--stride-space", type=count, default=1, metavar="N", help="use every N-th grid point")
    add_reading(parser)


def _network(parser: argparse.ArgumentParser) -> None:
    what = "package.module:name of the network, for an emulator with one of its author's own"
    parser.add_argument("--network", metavar="NAME", help=what)


def _diagnose(commands: Any) -> None:
    what = "bias curves and a recommended ladder for a saved emulator, or for your own denoiser"
    example = "diagnose my_package.model:make_denoiser --data test.h5 --out diagnosis"
    parser = _command(commands, "diagnose:diagnose", what, example)
    add = parser.add_argument
    add("what", metavar="WHAT", help="an emulator's folder, or package.module:factory of your own denoiser")
    add("--data", required=True, help="trajectories to measure on", **FILE)
    add("--schedule", help="the schedule in use (an emulator has its own)", **FILE)
    add("--tau", type=positive, default=1.05, help="bound on the biases (default 1.05)")
    add("--power", type=int, choices=(1, 2), default=1, help="τ bounds ratios of norms (1) or of squared norms (2)")
    bounded = "τ bounds the mean over pairs (paper), the ratio of root mean squares, or the 95th percentile"
    add("--statistic", choices=("mean", "pooled", "q95"), default="mean", help=bounded)
    add("--levels", type=few, default=24, help="of the grid (default 24)")
    add("--sigma-min", type=share, default=1e-3, help="its lowest level (default 0.001)")
    add("--pairs", type=count, default=128, help="pairs to measure on (default 128)")
    add("--draws", type=few, default=2, help="noise draws per bias (default 2)")
    add("--raw", action="store_true", help="your denoiser takes data as they are, not normalised")
    both = "also the bound of the paper's Appendix B and the prediction of Appendix C; takes several times as long"
    add("--appendix", action="store_true", help=both)
    other = "another emulator or denoiser: which of the two does Appendix C call more stable?"
    add("--against", metavar="WHAT", help=other)
    add("--out", help="write diagnosis.json, ladder.json and pictures", **FOLDER)
    _network(parser)
    _stride(parser)


def _predict(commands: Any) -> None:
    what = "roll a saved emulator out from the first frames of a file"
    parser = _command(commands, "tools:predict", what, f"predict {EMULATOR} --data test.h5 --out p.nc")
    add = parser.add_argument
    add("emulator", type=Path, metavar="EMULATOR", help="an emulator's folder")
    add("--data", required=True, help="trajectories whose first frames are the start", **FILE)
    add("--out", required=True, help="a .nc, .zarr, .h5 or .npy file, written frame by frame", **FILE)
    add("--steps", type=count, help="frames to predict (default: as many as the file has)")
    add("--trajectories", type=count, help="how many (default: all)")
    add("--members", type=count, default=1, help="per initial state (default 1)")
    add("--seed", type=seed, default=0, help="of the noise (default 0)")
    add("--constrain", metavar="NAME", help="project every estimate onto states that are zero-mean or divergence-free")
    add("--compile", action="store_true", help="compile the network first (torch.compile): pays for long rollouts")
    add("--force", action="store_true", help="replace an existing file")
    _network(parser)
    _stride(parser)


def _export(commands: Any) -> None:
    what = "write one step of a saved emulator as a program for other software, its noise as an input"
    parser = _command(commands, "tools:export", what, f"export {EMULATOR} --format onnx --out step.onnx")
    add = parser.add_argument
    add("emulator", type=Path, metavar="EMULATOR", help="an emulator's folder")
    add("--format", choices=("torch", "onnx"), default="torch", help="torch.export's .pt2 (default), or ONNX")
    add("--out", required=True, help="file to write", **FILE)
    add("--grid", metavar="N,N,…", help="points of the fields (default: as the network was built)")
    _network(parser)


def _score(commands: Any) -> None:
    example = "score prediction.npy --truth test.h5 --name my-model --out rows.jsonl"
    parser = _command(commands, "tools:score", "score a rollout that any code wrote as .npy", example)
    add = parser.add_argument
    add("prediction", type=Path, metavar="NPY", help="(S, K, C, *N) or (M, S, K, C, *N)")
    add("--truth", required=True, help="trajectories with frame 0", **FILE)
    add("--train", help="training data, for normalised errors", **FILE)
    add("--name", default="model", help="the method's name in the rows")
    add("--initial", action="store_true", help="the prediction holds frame 0 as well")
    add("--out", type=Path, metavar="JSONL", help="write the rows here")
    _stride(parser)


def _schedule(commands: Any) -> None:
    what = "make, look at, draw, exchange and choose noise schedules"
    verbs = commands.add_parser("schedule", help=what).add_subparsers(
        title="commands", required=True, metavar="COMMAND"
    )
    show = _command(verbs, "schedules:show", "print a schedule file", "schedule show ladder.json")
    show.add_argument("file", metavar="FILE", help="a schedule file")
    what = "write a standard schedule, or one from your own levels"
    example = "schedule make log-uniform -T 16 --sigma-min 0.01 --over sigma --out levels.json"
    add = _command(verbs, "schedules:make", what, example).add_argument
    add("method", metavar="NAME", help="linear, cosine, sigmoid, log-uniform, another registered, or levels")
    add("-T", type=count, metavar="LEVELS", help="number of levels (default 20)")
    add("--sigma-min", type=share, metavar="S", help="of log-uniform: lowest level (default 0.001)")
    add("--sigma-max", type=share, metavar="S", help="highest level, below 1")
    over = "of log-uniform: spaced in log(σ/√ᾱ) (default), or in log σ (paper)"
    add("--over", choices=("ratio", "sigma"), help=over)
    add("--sigma", metavar="S,S,…", help="of `levels`: the noise levels, increasing")
    add("--out", required=True, metavar="FILE", help="JSON file to write")
    what, example = "draw schedules beside each other", "schedule plot cosine.json ladder.json --out schedules.png"
    add = _command(verbs, "schedules:plot", what, example).add_argument
    add("files", nargs="+", metavar="FILE", help="schedule files")
    add("--out", type=Path, required=True, metavar="PNG", help="picture to write")
    what = "write a schedule for other programs"
    add = _command(
        verbs, "schedules:export", what, "schedule export ladder.json --format csv --out ladder.csv"
    ).add_argument
    add("file", metavar="FILE", help="a schedule file")
    add("--format", choices=EXPORTS, default="txt", help="the file that they read (docs/interop.md)")
    add("--out", required=True, help="file to write", **FILE)
    what = "read a schedule of another program, in any format of `export`"
    add = _command(verbs, "schedules:import_", what, "schedule import sigmas.json --out ladder.json").add_argument
    add("file", help="their file", **FILE)
    add("--out", required=True, metavar="FILE", help="JSON file to write")
    _front(verbs)


def _front(verbs: Any) -> None:
    what = "the best ladder of an emulator for every number of calls, by its measured error"
    parser = _command(verbs, "schedules:front", what, f"schedule front {EMULATOR} --data valid.h5")
    add = parser.add_argument
    add("emulator", metavar="EMULATOR", help="an emulator's folder")
    add("--data", required=True, help="trajectories to measure on", **FILE)
    levels = parser.add_mutually_exclusive_group()
    grid = "a grid of N levels between the emulator's lowest and highest, beside its own (default: its own levels)"
    levels.add_argument("--levels", type=few, metavar="N", help=grid)
    levels.add_argument("--schedule", help="choose among the levels of this schedule file", **FILE)
    add("--calls", type=few, default=6, help="longest ladder (default 6)")
    add("--pairs", type=count, default=128, help="pairs to measure on (default 128)")
    add("--draws", type=few, default=2, help="noise draws per pair (default 2)")
    add("--seed", type=seed, default=0, help="of the noise (default 0)")
    add(
        "--score",
        choices=("error", "crps"),
        default="error",
        help="compared by: error, or CRPS of the draws (default error)",
    )
    add("--out", type=Path, metavar="JSON", help="write the front here")
    add("--take", metavar="K", help="write the ladder with K calls, or the `best`, to --ladder")
    add("--ladder", help="schedule file to write", **FILE)
    _network(parser)
    _stride(parser)
