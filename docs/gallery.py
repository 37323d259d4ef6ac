"""Pages of kept records, as `biasbound report` writes them, for the site's gallery."""

import sys
from pathlib import Path

from biasbound.report.page import write_page
from biasbound.report.study import read_study

RESULTS = Path(__file__).parent.parent / "results"
PAGES = {"ks": "grown/ks-5000", "kolmogorov": "grown/kolmogorov", "transonic": "mini/transonic"}  # name: its record


def write(folder: Path) -> list[Path]:
    """Write NAME.html of every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_page(read_study(RESULTS / record), folder / f"{name}.html") for name, record in PAGES.items()]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(map(str, write(Path(sys.argv[1])))))
