"""Build the wheel, install it without extras in an environment of its own, and fit a .npy file from another folder.

python benchmarks/wheel.py [--keep FOLDER]       prints each command and its result; takes minutes
make dist PYTHONS="python3.11 python3.13"        with an sdist, checked, and with several Pythons

What the wheel must hold beside its modules is checked first. Versions are those of constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
LOADS = """
import sys, biasbound as bb
emulator = bb.load("fitted/emulator")
made = emulator.rollout(bb.open("x.npy", dt=0.1).first(), steps=3)
assert made.states.shape == (1, 1, 3, 1, 32) and made.states.isfinite().all()
assert not {"xarray", "zarr", "scipy", "diffusers"} & {*sys.modules}
print(bb.__file__, "loads the emulator and rolls it out:", tuple(made.states.shape))
"""


def run(folder: Path, *words: object) -> str:
    """Run a command in a folder, show it and what it said, and stop where it failed."""
    shown = " ".join("'…'" if "\n" in str(word) else str(word) for word in words)
    print(f"$ {shown}", flush=True)
    here = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    begun = time.monotonic()
    done = subprocess.run([*map(str, words)], cwd=folder, env=here, capture_output=True, text=True, check=False)
    print(f"{done.stdout[-3000:].rstrip()}\n".lstrip(), end="")
    if done.returncode:
        raise SystemExit(f"{done.stderr[-3000:]}\nfailed with code {done.returncode}: {shown}")
    print(f"[{time.monotonic() - begun:.0f} s]", flush=True)
    return done.stdout


def wanted() -> set[str]:
    """Every file of the package that must reach a user: modules, presets, the page's files, py.typed."""
    kinds = {".py", ".yaml", ".css", ".html", ".js", ".typed"}
    every = [p for p in PROJECT.glob("biasbound/**/*") if p.is_file() and "__pycache__" not in p.parts]
    return {str(p.relative_to(PROJECT)) for p in every if p.suffix in kinds}


def copied(folder: Path) -> Path:
    """What a wheel is built from: an earlier build in the project's folder would leave its modules in it."""
    shutil.copytree(PROJECT / "biasbound", folder / "biasbound", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder)
    return folder


def checked(wheel: Path) -> None:
    """Compare the wheel's files with the package's."""
    held = set(zipfile.ZipFile(wheel).namelist())
    if missing := sorted(wanted() - held):
        raise SystemExit(f"{wheel.name} lacks {len(missing)} files: {', '.join(missing)}")
    other = sum(1 for name in wanted() if not name.endswith(".py"))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e3:.0f} kB, {len(wanted())} files of the package, {other} not .py")


def built(work: Path, source: Path) -> Path:
    """The wheel of a source folder."""
    run(source, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", work, ".")
    (wheel,) = work.glob("*.whl")
    return wheel


def released(folder: Path, source: Path) -> Path:
    """The sdist, and the wheel made from it, in an empty folder; both as an index wants them. Needs build and twine."""
    shutil.rmtree(folder, ignore_errors=True)
    run(source, sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    files = sorted(folder.iterdir())
    run(folder, sys.executable, "-m", "twine", "check", "--strict", *files)
    (wheel,) = (path for path in files if path.suffix == ".whl")
    return wheel


def tried(wheel: Path, python: str, work: Path) -> None:
    """Install a wheel in a fresh environment of a Python, and use it from another folder."""
    print(f"== {wheel.name} with {python}", flush=True)
    elsewhere = work / "elsewhere"
    elsewhere.mkdir(parents=True)
    run(work, python, "-m", "venv", "fresh")
    programs = work / "fresh" / "bin"
    run(work, programs / "python", "-m", "pip", "install", "--quiet", "-c", PROJECT / "constraints.txt", wheel)
    wave = np.sin(2 * np.pi * (np.arange(32) / 32 - 0.02 * np.arange(60)[:, None]))
    np.save(elsewhere / "x.npy", wave.astype(np.float32))
    told = ("fit", "x.npy", "--dt", "0.1", "--updates", "4", "--out", "fitted", "--quiet")
    run(elsewhere, programs / "biasbound", *told)
    run(elsewhere, programs / "python", "-c", LOADS)
    told = ("predict", "fitted/emulator", "--data", "x.npy", "--dt", "0.1", "--steps", "3", "--out", "p.nc")
    run(elsewhere, programs / "biasbound", *told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="an empty folder to work in, which stays")
    parser.add_argument("--release", type=Path, help="build wheel and sdist into this folder, and check both")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="interpreters to try the wheel with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.keep or Path(temporary)).resolve()
        source = copied(work / "source")
        wheel = built(work, source) if given.release is None else released(given.release.resolve(), source)
        checked(wheel)
        for number, python in enumerate(given.pythons):
            tried(wheel, python, work / f"python-{number}")
            if given.keep is None:
                shutil.rmtree(work / f"python-{number}")
    print(f"the wheel fits, and its emulator loads, with {', '.join(given.pythons)}")


if __name__ == "__main__":
    main()
