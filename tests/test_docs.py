"""What the README and the site say must run, and every page of the site can be reached."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import biasbound
from biasbound.cli import main
from biasbound.core import schedule
from biasbound.data import formats
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.models import model
from biasbound.report import figures
from biasbound.report.study import read_study
from biasbound.study.config import SECTIONS
from biasbound.study.parsing import read_config

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import gallery
import reference

TESTS = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.long
def test_the_program_on_callables_and_tensors_runs(tmp_path):
    program = next(p for p in programs("docs/own-network.md") if "greedy_schedule" in p)
    program += "assert next_state.shape == y.shape and len(ladder) < len(levels)\n"
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "REB" in run.stdout
    assert (tmp_path / "ladder.json").exists()


PAGES = (
    "README.md",
    "docs/start.md",
    "docs/studies.md",
    "docs/report.md",
    "docs/data.md",
    "docs/metrics.md",
    "docs/own-network.md",
    "docs/fit.md",
    "docs/scale.md",
    "docs/interop.md",
)
MADE = {"commands.md", "config.md", "api.md", *(f"api-{package}.md" for package in reference.API)}  # in docs/reference
SITE = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "reference")
NOTEBOOKS = [page for page in SITE if page.startswith("docs/notebooks/")]
PROSE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *SITE)
# Commands of the pages, at the size of a test: what a page says → what is run.
SMALLER = {
    "--preset ks-demo": "--preset ks-smoke --methods direct-residual,adaptive-scaled-residual,"
    "adaptive-scaled-residual-proxy --search.mode grow --search.levels 4 --search.pairs 8 --train.budget 256 "
    "--rollout.members 1 --evaluate.gradients 0 --evaluate.pairs 4",
    "--search.updates 1000": "--search.updates 4 --search.levels 6 --train.budget 512",
    "--train.budget 48000": "--train.budget 256",
    "--tau 1.5": "--tau 1.5 --levels 6 --sigma-min 0.05 --pairs 16",
    "--search.tau 1.05": "--search.tau 1.5",
    "--size small": "--size smoke",
    "--size paper": "--size smoke",
    "--minutes 3": "--updates 4",
    "RUN": "runs/ks-demo",
}
STUDY = ("run", "search", "train", "finetune", "rollout", "evaluate")


def blocks(page):
    """The lines of a page's shell blocks, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        yield from (line.partition("#")[0].strip() for line in block.replace("\\\n", " ").splitlines())


def programs(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def smaller(command):
    for said, meant in SMALLER.items():
        command = command.replace(said, meant)
    words = shlex.split(command)[1:]
    if words[0] in STUDY or (words[:1] == ["data"] and words[1] in FLOWS):
        words += ["--jobs", "1"]  # processes take longer to start than this takes
        if words[1] == "--preset":  # the folder that the page's own preset would give
            words.insert(1, "runs/" + command_preset(words))
    return words


def command_preset(words):
    return words[words.index("--preset") + 1].replace("-smoke", "-demo")


@pytest.mark.long
@pytest.mark.usefixtures("own_names")
def test_every_command_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # others: test_report
    x = 2 * np.pi * np.arange(64) / 64
    phase = np.linspace(0, 6, 20)[:, None, None]
    fields = np.sin(x + phase - 0.3 * np.arange(12)[:, None])[:, :, None].astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.8, channels=["u"], name="waves"), Path("waves.h5"))
    ran = 0
    monkeypatch.syspath_prepend(str(tmp_path))
    for page in PAGES:
        for module in (p for p in programs(page) if re.match(r"# \w+\.py\n", p)):
            Path(module.split()[1]).write_text(module)
        for line in filter(None, blocks(page)):
            program, *rest = shlex.split(line)
            if program == "make":
                assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            elif program == "python":
                assert (ROOT / rest[0]).exists(), line
            else:
                assert program == "biasbound", line
                assert main(smaller(line)) == 0, (line, capsys.readouterr().err)
                ran += 1
    assert ran > 25

    (program,) = (p for p in programs("docs/own-network.md") if p.startswith("import biasbound\n"))
    known = {"x0": torch.from_numpy(fields[:2, 0])}
    exec(program.replace("steps=100", "steps=2"), known)  # noqa: S102 - our own page
    assert known["rollout"].states.shape == (8, 2, 2, 1, 64)

    (program,) = (p for p in programs("docs/interop.md") if p.startswith("import onnxruntime"))
    levels = len(biasbound.load("runs/ks-demo/03-train/adaptive-scaled-residual/seed-0/emulator").schedule)
    exec(program.replace("calls = 3", f"calls = {levels}"), known := {"x0": known["x0"]})  # noqa: S102
    direct = biasbound.load("runs/ks-demo/03-train/direct-residual/seed-0/emulator")
    assert np.allclose(known["next_state"], direct.step(known["x0"]), rtol=1e-5, atol=1e-5)

    (program,) = (p for p in programs("docs/fit.md") if p.startswith("import biasbound as bb"))
    exec(program.replace("minutes=5", "updates=2, quiet=True"), found := {})  # noqa: S102
    assert found["rollout"].states.shape == (8, 20, 2, 1, 64)
    for page in ("README.md", "docs/start.md", "docs/index.md"):
        (program,) = programs(page)
        program = program.replace("bb.fit(data, minutes=5)", "fitted")  # the fit above
        exec(program, known := {"fitted": found["fitted"]})  # noqa: S102
        assert known["rollout"].states.shape == (8, 20, 25, 1, 64)

    (program,) = programs("docs/report.md")
    exec(program.replace("RUN", "runs/ks-demo").replace(', "spectra"', ""), {})  # noqa: S102 - FIGURES has one here
    assert Path("runs/ks-demo/07-report/figures/ladder.pdf").exists()


@pytest.mark.usefixtures("own_names")
def test_the_programs_about_data_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    flow, own_format, use, writing = programs("docs/data.md")
    Path("mine.py").write_text(flow)
    assert (
        main(["data", "mine:Waves", "--size", "smoke", "--trajectories", "2", "--out", "waves.h5", "--jobs", "1"]) == 0
    )
    assert biasbound.open("waves.h5").shape == (2, 20, 1, 16)

    monkeypatch.setitem(formats.FORMATS, "table", None)  # which is gone after the test
    exec(own_format, {})  # noqa: S102 - our own page
    np.savetxt("table.txt", np.arange(12.0).reshape(4, 3))
    assert biasbound.open("table.txt").shape == (1, 4, 1, 3)

    fields = np.random.default_rng(0).standard_normal((8, 17, 1, 64)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.2, channels=["u"], name="ks"), Path("ks_train.h5"))
    exec(f"{use}    break\n".replace("size=64", "size=8"), known := {})  # noqa: S102 - the page's loop is endless
    assert known["batch"].x.shape == (8, 1, 16)

    layout = biasbound.open("waves.h5").layout
    exec(writing, {"layout": layout, "steps": np.zeros((20, 8, 2, 1, 16), np.float32)})  # noqa: S102
    assert Path("rollout.nc").exists()


# Who runs the programs of a page; what its shell blocks say is run by the test above, or looked up where it takes hours.
RUN_BY = {
    "README.md": "test_every_command_of_the_documentation_runs",
    "docs/add.md": "test_what_a_page_adds_is_known",
    "docs/assimilation.md": "test_the_program_of_the_page_runs",
    "docs/data.md": "test_the_programs_about_data_run",
    "docs/fit.md": "test_every_command_of_the_documentation_runs",
    "docs/index.md": "test_every_command_of_the_documentation_runs",
    "docs/interop.md": "test_the_programs_of_the_page_run",
    "docs/metrics.md": "test_the_programs_of_the_metrics_page_run",
    "docs/own-network.md": "test_the_program_on_callables_and_tensors_runs",
    "docs/report.md": "test_every_command_of_the_documentation_runs",
    "docs/start.md": "test_every_command_of_the_documentation_runs",
}
LONG = ("docs/assimilation.md", "docs/log.md", "docs/results.md", "CONTRIBUTING.md")


def test_every_page_with_a_program_or_a_command_has_a_test():
    assert {page for page in PROSE if programs(page)} == {*RUN_BY}
    known = {
        "docs/interop.md": 5,
        "docs/own-network.md": 3,
    }  # whose tests pick theirs: here, by hub and in the long test
    assert {page: len(programs(page)) for page in known} == known, "a new program needs a test that runs it"
    assert all(f"def {name}(" in TESTS for name in RUN_BY.values())
    assert {page for page in PROSE if any(blocks(page))} == {*PAGES, *LONG}


@pytest.mark.parametrize("page", LONG)
def test_commands_that_take_hours_are_spelled_right(page, capsys):
    for line in filter(None, blocks(page)):
        program, verb, *rest = shlex.split(line)
        if program == "make":
            assert re.search(rf"^{verb}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif program == "python":
            assert (ROOT / verb).exists(), line
        elif "--preset" in rest:
            assert main([verb, *rest, "--print_config"]) == 0, (line, capsys.readouterr().err)
        else:
            assert program == "biasbound", line
            assert (ROOT / rest[0] / "results.jsonl").exists(), line


@pytest.mark.parametrize("page", NOTEBOOKS)
@pytest.mark.long
def test_cells_of_notebooks_run(page, tmp_path, monkeypatch):
    """At the size of a test; the build of the site runs them as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(cells) > 3
    program = "".join(cells).replace("updates=60", "updates=2").replace("range(400)", "range(20)")
    exec(program, {})  # noqa: S102


@pytest.mark.usefixtures("own_names")
def test_what_a_page_adds_is_known(monkeypatch):
    monkeypatch.setattr(schedule, "SCHEDULES", schedule.SCHEDULES.copy())
    monkeypatch.setattr(model, "MODELS", model.MODELS.copy())
    for program in programs("docs/add.md"):
        exec(program, {})  # noqa: S102
    assert len(schedule.SCHEDULES["even"](5)) == 5
    assert not model.MODELS["halved"].noisy


def test_lines_of_documents_are_short():
    """Rows of tables cannot be broken; everything else can."""
    for page in PROSE:
        for line in (ROOT / page).read_text().splitlines():
            assert len(line) <= 100 or line.startswith("|"), (page, line)


def test_scripts_that_pages_name_exist():
    for page in PROSE:
        for script in re.findall(r"python ((?:benchmarks|examples)/\w+\.py)", (ROOT / page).read_text()):
            assert (ROOT / script).exists(), (page, script)


def test_every_decision_names_tests_that_exist():
    text = (ROOT / "docs" / "decisions.md").read_text()
    for entry in text.split("\n## ")[1:]:
        named = re.findall(r"`(test_\w+)`", entry)
        assert named, f"no test pins the decision {entry.splitlines()[0]!r}"
        for name in named:
            assert f"def {name}(" in TESTS, name


def prose(path):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The names by which headings of a page are linked, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", head)).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PROSE)
def test_links_and_pictures_point_to_files(page):
    path = ROOT / page
    for target, _, place in re.findall(r"\]\((?!https?:)([^)#]*)(#?)([^)]*)\)", prose(path)):
        if target.rpartition("/")[0].endswith("reference"):
            assert target.rpartition("/")[2] in MADE, target
            continue
        found = path.parent / target if target else path
        assert found.exists(), target
        assert not place or place in anchors(found), (target, place)


def test_every_page_is_in_one_table_of_contents():
    listed = [
        f"docs/{entry.rpartition('<')[2].removesuffix('>')}.md"  # it may have a title of its own
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)
        for entry in tree.splitlines()
        if entry and not entry.startswith(":")
    ]
    made = [entry for entry in listed if entry.startswith("docs/reference/")]
    assert sorted({*listed} - {*made}) == sorted({*SITE} - {"docs/index.md"})
    assert {Path(entry).name for entry in made} <= MADE
    assert len(listed) == len({*listed})


def test_the_gallery_has_its_records():
    """A build of the site makes these pages at its very end: what is missing must be known before."""
    assert {*re.findall(r'href="gallery/(\w+)\.html"', (ROOT / "docs/gallery.md").read_text())} == {*gallery.PAGES}
    for page in gallery.PAGES.values():
        record = gallery.RESULTS / page.record
        assert {*page.methods} <= {row.method for row in read_study(record).rows}
        assert read_config(record / "config.yaml").title
        assert bool(page.frames) == bool(page.methods)
        for method in page.methods:
            assert [*record.glob(f"0[34]-*/{method}/seed-0/emulator")], method


def test_the_reference_names_every_command_and_field_with_its_meaning():
    commands, config = reference.commands(), reference.config()
    for words in ("fit", "data convert", "diagnose", "predict", "score", "schedule front"):
        assert f"\n## biasbound {words}\n" in commands
    assert all(f"`biasbound {verb}`" in commands for verb in STUDY)
    empty = [line for line in (commands + config).splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert empty == [], "an option or a field without help"
    assert {f"`{section}." in config for section in SECTIONS} == {True}


def test_the_reference_tells_what_docstrings_say():
    assert " at 0x" not in reference.api("report")  # two builds make the same pages
    text = reference.api("metrics")
    assert "::::{py:function} biasbound.metrics.scores.score(rollout:" in text
    assert "```pycon\n>>> from biasbound.data import Trajectories" in text
    assert text.count("::::{") * 2 == text.count("\n::::\n") + text.count("::::{")


def test_the_site_says_the_version_of_the_package():
    assert f"version: {biasbound.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(biasbound.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
