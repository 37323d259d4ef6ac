"""A stranger's record: emulators with their rows and a config, as `evaluate RECORD` reads it."""

import json
from pathlib import Path

from emulators import emulator

from biasbound.study.parsing import presets

ROW = {"dataset": "ks", "seed": 0, "metric": "mse", "step": 1, "value": 1.0, "low": None, "high": None}
ROW |= {"nfe": 1, "updates": 1, "seconds": 0.0}


def record(folder: Path, method: str = "direct", place: str | None = None) -> Path:
    """One emulator at 03-train/`place`, and one row that says that `method` made it."""
    (folder / "03-train").mkdir(parents=True)
    target = folder / "03-train" / (method if place is None else place) / "seed-0"
    target.mkdir(parents=True)
    emulator("direct").save(target / "emulator")
    (folder / "config.yaml").write_text(presets()["ks-smoke"].read_text())
    (folder / "results.jsonl").write_text(json.dumps(ROW | {"method": method}) + "\n")
    return folder


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of files."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}
