"""`biasbound diagnose`: where the chain of a denoiser leaves its training distribution, and the ladder that suits it."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from biasbound._io import write_json
from biasbound.cli.subject import Subject, subject_of
from biasbound.core.appendix import appendices, predictions
from biasbound.core.diagnose import diagnose as diagnosed
from biasbound.core.diagnose import require_stable
from biasbound.core.ladder import measure_of
from biasbound.core.options import SearchOptions
from biasbound.core.schedule import Schedule


def diagnose(given: argparse.Namespace) -> None:
    """Print the biases level by level and along both chains; unstable everywhere is an error."""
    if given.against is not None and not given.appendix:
        raise ValueError("--against compares by Appendix C: give --appendix too")
    bounds = {name: getattr(given, name) for name in ("tau", "power", "statistic", "levels", "sigma_min", "draws")}
    options, subject = SearchOptions(**bounds), subject_of(given.what, given)
    other = None if given.against is None else subject_of(given.against, given)
    if given.schedule is not None:
        subject = replace(subject, schedule=Schedule.load(given.schedule))
    how = {"transition": subject.transition, "start": subject.start}
    found = diagnosed(subject.denoiser, subject.x, subject.y, options, subject.schedule, **how)
    if given.appendix:
        found = replace(found, appendices=_appendices(found, subject, other))
    print(f"{given.what} on {len(subject.x)} pairs of {given.data}, τ = {given.tau}{_bounded(options)}")
    print(f"{'sigma':>10} {'clean error':>12} {'own bias':>18} {'pooled':>9} {'q95':>9}")
    for sigma, level in found.levels.items():
        mark = "stable" if sigma in found.stable else ""
        print(f"{sigma:10.4g} {level.clean.mean:12.4g} {_bias(level.own)}  {mark}")
    _along("the schedule in use", found.schedule, found.along_schedule, options)
    _along("the recommended ladder", found.ladder, found.along_ladder, options)
    if found.appendices is not None:
        _tell(found.appendices, given.what, subject.transition)
    if given.out is not None:
        _keep(given.out, found)
    require_stable(found)


def _bounded(options: Any) -> str:
    """What τ bounds, where it is not the paper's mean of ratios of norms."""
    said = {"mean": "", "pooled": " on the pooled ratio", "q95": " on the 95th percentile"}[options.statistic]
    return said + (" of squared norms" if options.power == 2 else "")


def _bias(found: Any) -> str:
    """Mean ± standard error, pooled ratio, 95th percentile."""
    return f"{found!s:>18} {found.value('pooled'):9.4g} {found.value('q95'):9.4g}"


def _along(name: str, schedule: Any, rows: Any, options: Any) -> None:
    if schedule is None:
        return
    forced = len(schedule.meta.get("forced", []))
    print(f"{name}: {len(schedule)} levels" + (f", {forced} of its steps forced beyond τ" if forced else ""))
    print(f"{'sigma':>10} {'two-step bias':>18} {'REB':>18} {'pooled':>9} {'q95':>9}")
    squared = "_squared" if options.power == 2 else ""
    for row in rows:
        two, reb = getattr(row, f"two_step{squared}"), getattr(row, f"reb{squared}")
        mark = "beyond τ" if reb.value(options.statistic) > options.tau else ""
        print(f"{row.sigma:10.4g} {'' if two is None else str(two):>18} {_bias(reb)}  {mark}")


def _appendices(found: Any, subject: Subject, other: Subject | None) -> Any:
    """Both appendices, along the schedule in use or else the recommended ladder."""
    chain = subject.schedule if subject.schedule is not None else found.ladder
    how = measure_of(found.options, subject.transition, batch_size=128)
    made = appendices(subject.denoiser, subject.x, subject.y, found.levels, chain, how)
    if other is None:
        return made
    fresh = measure_of(found.options, other.transition, batch_size=128)
    return replace(made, against=predictions(other.denoiser, other.x, other.y, found.levels, fresh), than=other.name)


def _tell(made: Any, name: str, transition: str) -> None:
    print("Appendix B: the bound on the REB, along the chain")
    if made.chain is None:
        about = f"it is about the renoise transition, not {transition}" if transition != "renoise" else "no chain"
        print(f"  not measured: {about}")
    else:
        print(f"{'sigma':>10} {'|J|':>10} {'lambda':>10} {'REB':>18} {'bound':>10} {'if aligned':>11}")
    for row in made.bound:
        numbers = f"{row.jacobian.mean:10.4g} {row.lam.mean:10.4g} {row.reb!s:>18}"
        print(f"{row.sigma:10.4g} {numbers} {row.bound.mean:10.4g} {row.aligned.mean:11.4g}")
    print("Appendix C: own bias (squared norms, one noise) from the error spectrum; R over the noise's power")
    print(
        f"{'sigma':>10} {'R':>10} {'predicted':>18} {'measured':>18}" + (f" {'other R':>10}" if made.against else "")
    )
    for sigma, level in made.predicted.items():
        other = f" {made.against[sigma].ratio:10.4g}" if made.against else ""
        print(f"{sigma:10.4g} {level.ratio:10.4g} {level.predicted!s:>18} {level.measured!s:>18}{other}")
    if made.against:
        _verdict(made, name)


def _verdict(made: Any, name: str) -> None:
    """At how many levels R is smaller, and at how many the measured own bias agrees."""
    pairs = [(mine, made.against[sigma]) for sigma, mine in made.predicted.items()]
    less = [mine.ratio <= other.ratio for mine, other in pairs]
    agree = [(mine.measured.mean <= other.measured.mean) == a for (mine, other), a in zip(pairs, less, strict=True)]
    print(
        f"R of {name} is at most that of {made.than} at {sum(less)} of {len(less)} levels; the measured own biases are "
        f"in the same order at {sum(agree)}"
    )


def _keep(folder: Path, found: Any) -> None:
    from biasbound.report.diagnosis import appendix_figure, diagnosis_figure
    from biasbound.report.figures import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "diagnosis.json", found.as_dict())
    written = [folder / "diagnosis.json"]
    if found.ladder is not None:
        found.ladder.save(folder / "ladder.json")
        written.append(folder / "ladder.json")
    written += save_figure(diagnosis_figure(found), folder / "diagnosis")
    if found.appendices is not None:
        written += save_figure(appendix_figure(found.appendices), folder / "appendix")
    print("wrote " + ", ".join(map(str, written)))
    if found.ladder is not None:
        print(f"next: biasbound schedule show {folder / 'ladder.json'}")
