"""Keep the record of one run, or of several as one: python benchmarks/keep_run.py RUN [RUN ...] results/NAME [options]

Copies the rows, the config, the searched schedules, the schedule files of methods, and the provenance of every unit
(commit, machine, seed, times); with --curves also what was measured during search, training and evaluation, from which
figures are drawn; with --emulators the emulators too, which `biasbound evaluate` scores again, both of all seeds or of
those given. What `step_speed.py` measured of records comes along.

Several runs, or records that were kept before, become one record with all their methods and seeds. Their configs may
differ in methods, seeds, title and in fields that change no result; a method and seed may be in one of them only, unless
`--replace` says that the first one's stand. What `--merge FIELD` names, such as evaluate.members, is taken from the last.
Figures are kept with seven digits, intervals rounded outwards, so that what held before still holds, in lines without spaces;
metrics that follow from others, or that no page shows, are left out. `--rescored` takes the rows of emulators from a folder
that `biasbound evaluate` filled when it scored a record again, where runs were scored in other ways.
"""

import argparse
import decimal
import functools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from record import circumstances

from biasbound.metrics.rows import Row, read_rows, write_rows
from biasbound.models.method import GUESSES, order_of
from biasbound.report.figures_search import SHOWN_TIMES
from biasbound.report.pictures import evenly
from biasbound.study.graph import methods_of
from biasbound.study.parsing import read_config

ROOT = Path(__file__).resolve().parents[1]
DIGITS = 7  # what single precision has
FREE = ("title", "methods", "seeds", "train.compile", "train.evaluations", "rollout.compile", "execute")
CURVES = (
    "0[23]-*/*/seed-*/landscape.json",
    "03-train/*/seed-*/growth.json",
    "03-train/*/seed-*/front.json",
    "02-search/*/seed-*/exploration.json",
    "0[234]-*/*/seed-*/log.jsonl",
    "0[34]-*/*/seed-*/chain.jsonl",
    "06-*/*/seed-*/bias.json",
    "06-*/*/seed-*/gradients.json",
)
DRAWN = ("chain.jsonl", "log.jsonl")
UNREAD = ("split_total", "split_cross", "split_floor", "fsd_legacy", "vrmse")


def homed(out: Path) -> None:
    """Schedule files of methods come into the record, and all that names them names them there: from the root of the
    repository where the record stands in it, wherever that is on this machine."""
    home = out.resolve().relative_to(ROOT) if out.resolve().is_relative_to(ROOT) else out
    for method in methods_of(read_config(out / "config.yaml").methods).values():
        if method.file is None:
            continue
        new = out / method.file.name
        if not new.exists():
            shutil.copy(method.file, new)
        for path in [p for p in out.rglob("*") if p.suffix in (".json", ".yaml")]:
            path.write_text(path.read_text().replace(f"{method.file}", (home / new.name).as_posix()))


def joined(configs: Sequence[dict[str, Any]], merged: Sequence[str] = ()) -> dict[str, Any]:
    """One config with the methods and seeds of all; a field that must not differ, and does, is named."""
    flat = [{k: v for k, v in _flat(c).items() if not k.startswith((*FREE, *merged))} for c in configs]
    for other in flat[1:]:
        for name in sorted({*flat[0], *other}):  # a field that an older config lacks had its default then
            if name in flat[0] and name in other and flat[0][name] != other[name]:
                raise SystemExit(f"the runs differ in {name}: {flat[0][name]!r} and {other[name]!r}")
    methods = {json.dumps(m): m for c in configs for m in c["methods"]}.values()
    listed = sorted(methods, key=lambda m: order_of(next(iter(methods_of([m])))))
    told = {"title": configs[0]["title"], "methods": listed, "seeds": sorted({s for c in configs for s in c["seeds"]})}
    return {**functools.reduce(_over, configs), **told}


def _over(first: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The second config, with what the first alone says: options of a network that some runs have no method for."""
    known = {
        k: _over(first[k], v) if isinstance(v, dict) and isinstance(first.get(k), dict) else v for k, v in then.items()
    }
    return {**first, **known}


def _flat(told: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(told, dict):
        return {name: told}
    return {k: v for key, value in told.items() for k, v in _flat(value, f"{name}.{key}".lstrip(".")).items()}


def rows_of(runs: Sequence[Path], replace: bool = False) -> list[Row]:
    """All rows; first guesses, which each run has, once. A method and seed of two runs are the first's, or refused."""
    found: dict[tuple[str, int], tuple[Path, list[Row]]] = {}
    guessed: dict[str, int] = {}
    for run in runs:
        for row in read_rows(run / "results.jsonl"):
            if row.method in GUESSES and guessed.setdefault(row.method, row.seed) != row.seed:
                continue
            place, rows = found.setdefault((row.method, row.seed), (run, []))
            if place == run:
                rows.append(row)
            elif row.method not in GUESSES and not replace:
                raise SystemExit(f"{row.method}, seed {row.seed}, is both in {place} and in {run}")
    ordered = sorted(found, key=lambda unit: (order_of(unit[0]), unit[1]))
    return [row for unit in ordered for row in found[unit][1]]


def renewed(rows: Sequence[Row], rescored: Path | None) -> list[Row]:
    """Rows of units that were scored again are those of then."""
    if rescored is None:
        return list(rows)
    new: dict[tuple[str, int], list[Row]] = {}
    for row in read_rows(rescored / "results.jsonl"):
        new.setdefault((row.method, row.seed), []).append(row)
    units = dict.fromkeys((row.method, row.seed) for row in rows)
    if strange := sorted({*new} - {*units}):
        raise SystemExit(f"{rescored} has rows of {strange[0][0]}, seed {strange[0][1]}, which no run has")
    return [row for unit in units for row in new.get(unit, [r for r in rows if (r.method, r.seed) == unit])]


def digits(number: float | None, rounding: str = decimal.ROUND_HALF_EVEN) -> float | None:
    """A number with `DIGITS` of its digits."""
    if number is None:
        return None
    return float(decimal.Context(DIGITS, rounding).create_decimal(repr(number)))  # as printed: again changes nothing


def shortened(row: Row) -> Row:
    """The row with fewer digits; its interval holds whatever it held before."""
    low, high = digits(row.low, decimal.ROUND_FLOOR), digits(row.high, decimal.ROUND_CEILING)
    return replace(row, value=digits(row.value), low=low, high=high, seconds=round(row.seconds, 2))


def copied(path: Path, target: Path) -> None:
    """A file of a run; of the long lists that only figures are drawn from, what they show, with fewer digits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.name not in DRAWN:
        shutil.copy(path, target)
        return
    lines = [json.loads(line, parse_float=lambda told: digits(float(told))) for line in path.open()]
    if lines and path.name == "chain.jsonl":
        lines = [lines[i] for i in evenly(len(lines), SHOWN_TIMES)]
    packed(target, lines)


def packed(path: Path, lines: Iterable[Any]) -> None:
    """JSON lines without spaces: a tenth of a record was spaces."""
    path.write_text("".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines))


def units_of(run: Path) -> dict[str, Any]:
    """Where every unit of a run or of a record comes from."""
    kept = run / "provenance.json"
    if kept.exists():
        told: dict[str, Any] = json.loads(kept.read_text())
        return told
    units = {}
    for path in sorted(run.glob("0[1-6]-*/**/stage.json")):
        unit = json.loads(path.read_text())
        units[unit["unit"]] = {k: v for k, v in unit.items() if k not in ("config", "unit")}
    return units


def patterns(given: argparse.Namespace) -> list[str]:
    """Of the files that are kept beside rows, config and provenance."""
    wanted = ["0[23]-*/*/seed-*/schedule.json"]
    for seed in given.emulators or ["*"]:
        if given.curves or given.emulators is not None:
            wanted += [pattern.replace("seed-*", f"seed-{seed}") for pattern in CURVES]
        if given.emulators is not None:
            wanted += [f"0[34]-*/*/seed-{seed}/emulator/*", f"0[2-4]-*/*/seed-{seed}/stage.json"]
    return wanted


def kept(given: argparse.Namespace, out: Path) -> None:
    """Write the record of the runs into an empty folder."""
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in given.runs]
    (out / "config.yaml").write_text(yaml.safe_dump(joined(configs, given.merge), sort_keys=False, allow_unicode=True))
    rows = renewed(rows_of(given.runs, given.replace), given.rescored)
    write_rows(out / "results.jsonl", [shortened(row) for row in rows if row.metric not in UNREAD])
    packed(out / "results.jsonl", map(json.loads, (out / "results.jsonl").read_text().splitlines()))
    units = {name: unit for run in reversed(given.runs) for name, unit in units_of(run).items()}
    if given.rescored is not None:
        now = circumstances("torch")
        for name in {f"06-evaluate/{r.method}/seed-{r.seed}" for r in read_rows(given.rescored / "results.jsonl")}:
            units[name] = {**units[name], **now, "dirty": "+" in now["commit"], "rescored": True}
    (out / "provenance.json").write_text(json.dumps(dict(sorted(units.items())), indent=1) + "\n")
    if given.emulators:
        (out / "kept.json").write_text(json.dumps({"seeds": given.emulators}) + "\n")
    told = [json.loads(p.read_text()) for run in given.runs if (p := run / "speed.json").exists()]
    if told:
        speed = {label: ms for each in reversed(told) for label, ms in each["milliseconds"].items()}  # the first told
        (out / "speed.json").write_text(json.dumps({**told[0], "milliseconds": speed}, indent=1) + "\n")
    owner: dict[tuple[str, ...], Path] = {}
    for run in given.runs:
        for path in (path for pattern in patterns(given) for path in sorted(run.glob(pattern))):
            inside = path.relative_to(run)
            if owner.setdefault(inside.parts[:3], run) == run:  # all of a unit is of one run
                copied(path, out / inside)
        for path in run.glob("*.json"):  # schedule files of a record
            if not (out / path.name).exists() and path.name not in ("run.json", "kept.json"):
                shutil.copy(path, out / path.name)
    for place in out.glob("03-train/*/seed-*/emulator"):  # of which a fine-tuning made another
        if (out / re.sub("^03-train", "04-finetune", f"{place.relative_to(out)}")).is_dir():
            shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("out", type=Path)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--emulators", type=int, nargs="*", metavar="SEED", help="of these seeds, or of all")
    parser.add_argument("--merge", nargs="*", default=[], metavar="FIELD", help="may differ; the last run's is kept")
    parser.add_argument("--replace", action="store_true", help="of a method and seed in two runs, keep the first")
    parser.add_argument("--rescored", type=Path, metavar="FOLDER", help="rows of this folder instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # a record may be among the runs
        made = Path(folder) / given.out.name
        made.mkdir()
        kept(given, made)
        shutil.rmtree(given.out, ignore_errors=True)  # nothing of an earlier record stays
        shutil.copytree(made, given.out)
    homed(given.out)
    files = [p for p in given.out.rglob("*") if p.is_file()]
    print(f"{given.out}: {len(files)} files, {sum(p.stat().st_size for p in files) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
