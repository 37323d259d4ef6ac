"""How Sphinx builds the site: `make docs`. It needs no network, and a warning is an error."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PROJECT = DOCS.parent
sys.path[:0] = [str(PROJECT), str(DOCS)]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # kernels of the notebooks inherit these
os.environ.setdefault("MPLBACKEND", "agg")

import gallery
import reference

import biasbound

project = "biasbound"
author = "the authors of biasbound"
copyright = "the authors of biasbound, MIT licence"
version = release = biasbound.__version__

extensions = ["myst_nb"]
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["_build"]
root_doc = "index"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
highlight_language = "text"

nb_execution_mode = "force"  # every build shows what this code does
nb_execution_in_temp = True
nb_execution_timeout = 900  # seconds per cell, on a busy machine too
nb_execution_raise_on_error = True
nb_execution_show_tb = True

html_theme = "furo"
html_title = f"biasbound {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 90


def setup(app):
    """Pages that are made from the code and from kept records."""
    app.connect("builder-inited", lambda app: reference.write(DOCS / "reference"))
    app.connect("build-finished", lambda app, error: error or gallery.write(Path(app.outdir) / "gallery"))
