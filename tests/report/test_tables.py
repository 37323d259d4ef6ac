"""Tables show what the rows say, in the paper's layout, and hide nothing."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound.metrics.rows import Row
from biasbound.models.method import title_of
from biasbound.report.layout import Cell, Line, Table
from biasbound.report.tables import demo_table, table1


def row(dataset, method, metric, value, step=None, seed=0, nfe=4, updates=2000, seconds=90.0, ledger=0):
    return Row(dataset, method, seed, metric, step, value, None, None, nfe, updates, seconds, ledger)


def unit(dataset="ks", method="unet", seed=0, size=1.0, broken=0.0, **cost):
    """What an evaluation leaves of one run; `size` scales its errors."""

    def make(metric, value, step=None):
        return row(dataset, method, metric, value, step, seed, **cost)

    return [
        make("mse", size * 1e-7, 1),
        make("mse", size * 1e-5, 10),
        make("mse", size * 1e-3, 59),
        make("mse_norm", size * 2e-7, 1),
        make("mse_norm", size * 2e-5, 10),
        make("mse_norm", size * 2e-3, 59),
        make("correlation_time", 70 / size),
        make("correlation_time_worst", 50 / size),
        make("correlation_time_best", 80 / size),
        make("fsd", size * 30, 59),
        make("broken", broken),
    ]  # fmt: skip


def grid(table):
    """The Markdown body as lists of cells."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def cells(table, name):
    head, _, *body = grid(table)
    return [line[head.index(name)] for line in body]


LONG = "High-correlation time"


def test_columns_are_the_papers_and_the_cost():
    head = grid(table1(unit()))[0]
    assert head == [
        "Dataset", "Method", "1-step MSE", "10-step MSE", LONG, "Last-step FSD", "NFE", "Updates", "Seconds", "Broken",
    ]  # fmt: skip
    (line,) = grid(table1(unit()))[2:]
    assert line == ["KS", "Direct TF", "1.00e-7", "1.00e-5", "70.0 (50.0, 80.0)", "3.0e1", "4", "2,000", "90", "0"]  # fmt: skip


@pytest.mark.parametrize(("table", "before"), [(table1, "Updates"), (demo_table, "NFE")])
def test_the_ledger_stands_beside_the_cost_where_it_was_counted(table, before):
    old = [*unit(method="linear"), *unit(method="unet")]
    assert "edger" not in table(old).text()
    made = table([*unit(method="linear"), *unit(method="unet", ledger=960_000)])
    head = grid(made)[0]
    assert head.index("Ledger") == head.index(before) + 1
    assert cells(made, "Ledger") == ["960,000", "–"]
    assert "samples passed through the network" in made.text()
    seeds = table([*unit(ledger=1000), *unit(seed=1, ledger=1200)])
    assert cells(seeds, "Ledger") == ["1,000–1,200"]


@given(st.integers(100, 10**9), st.floats(0, 2))
def test_unequal_ledgers_are_named(ledger, gap):
    """A note as soon as two ledgers of one dataset are more than 1 % apart; datasets are not compared."""
    other = round(ledger * (1 + gap))
    rows = [*unit(ledger=ledger), *unit(method="linear", ledger=other), *unit("kolmogorov", ledger=7)]
    note = [n for n in table1(rows).notes if "differ" in n]
    assert len(note) == (other / ledger > 1.01)
    assert all("KS" in n and "Kolmo" not in n for n in note)


def test_transonic_is_in_normalised_units_with_its_last_error():
    table = table1(unit("transonic"))
    assert [cells(table, n)[0] for n in ("1-step MSE", "10-step MSE", "Final MSE")] == [
        "2.00e-7",
        "2.00e-5",
        "2.00e-3",
    ]
    assert "normalised units: Tra" in table.text()
    assert "normalised units" not in table1(unit("ks")).text()


@settings(max_examples=3)
@given(st.randoms(use_true_random=False))
def test_the_order_is_the_papers_then_the_alphabets(random):
    methods = ["unet", "unet-ut1", "unet-ut7", "unet-ut10", "linear", "cosine", "sigmoid", "refiner", "adaptive", "adaptive-proxy", "aardvark", "zebra"]  # fmt: skip
    datasets = ["kolmogorov", "transonic", "ks", "waves"]
    rows = [r for d, m in itertools.product(datasets, methods) for r in unit(d, m)]
    expected = table1(rows)
    random.shuffle(rows)
    table = table1(rows)
    assert table == expected
    assert [c for c in cells(table, "Dataset") if c] == ["Kolmo", "Tra", "KS", "waves"]
    assert cells(table, "Method")[: len(methods)] == [title_of(m) for m in methods]


@pytest.mark.parametrize(
    ("label", "title"),
    [
        ("unet", "Direct TF"),
        ("unet-ut1", "Direct UT, U=2"),
        ("unet-pf2-residual", "Direct PF, U=3, residual target"),
        ("linear", "Linear TF"),
        ("log-uniform", "Log-uniform TF"),
        ("refiner", "PDE-Refiner"),
        ("adaptive", "Adaptive"),
        ("adaptive-proxy", "Adaptive + Proxy UT"),
        ("adaptive-v-residual", "Adaptive, v-prediction, residual target"),
        ("adaptive-v-residual-proxy", "Adaptive + Proxy UT, v-prediction, residual target"),
        ("adaptive-strange", "adaptive-strange"),
        ("linear-ut1", "linear-ut1"),
        ("fno", "fno"),
    ],
)
def test_titles_are_the_papers_words(label, title):
    assert title_of(label) == title


def test_the_best_of_each_dataset_is_bold():
    rows = [*unit(method="unet", size=2.0), *unit(method="linear"), *unit("kolmogorov", "unet", size=9.0)]
    table = table1(rows)
    for name in ("1-step MSE", "10-step MSE", LONG, "Last-step FSD"):
        alone, unet, linear = cells(table, name)
        assert "**" not in alone, "one method is the best of nothing"
        assert "**" not in unet
        assert linear.startswith("**")
    assert cells(table, LONG)[2] == "**70.0** (50.0, 80.0)"
    assert not any("**" in c for n in ("NFE", "Updates", "Seconds") for c in cells(table, n))
    tied = table1([*unit(method="unet"), *unit(method="linear")])
    assert cells(tied, "1-step MSE") == ["**1.00e-7**"] * 2


def test_seeds_give_mean_and_spread():
    rows = [*unit(seed=0, size=1.0, nfe=3), *unit(seed=1, size=3.0, nfe=5, seconds=110.0)]
    table = table1(rows)
    assert cells(table, "1-step MSE") == ["2.00e-7 ± 1.4e-7"]
    assert cells(table, LONG)[0].startswith("46.7 ± 33.0 (")
    assert cells(table, "Seeds") == ["2"]
    assert cells(table, "NFE") == ["3–5"]
    assert cells(table, "Seconds") == ["100"]
    assert "standard deviation over seeds" in table.text()
    assert "standard deviation" not in table1(unit()).text()
    with pytest.raises(ValueError, match=r"one for each seed"):
        table1([*unit(), *unit()])


def test_what_broke_is_shown_and_never_averaged_away():
    lost = [
        replace(r, value=None) if r.metric in ("mse", "fsd") and r.step != 1 else r
        for r in unit(seed=1, size=0.1, broken=3.0)
    ]
    table = table1([*unit(seed=0), *lost, *unit(method="linear", size=5.0)])
    assert cells(table, "10-step MSE") == ["∞ (1 of 2 seeds)", "5.00e-5"]
    assert cells(table, "Broken") == ["3 (1 of 2 seeds)", "0"]
    assert "∞: a trajectory became non-finite" in table.text()
    alone = table1([r for r in lost if r.seed == 1])
    assert cells(alone, "10-step MSE") == ["∞"]
    assert cells(alone, "Broken") == ["3"]
    assert "$\\infty$" in alone.latex()


def test_what_was_not_measured_is_a_dash():
    table = table1([row("ks", "unet", "mse", 0.0, 1)])
    assert cells(table, "1-step MSE") == ["0"]
    assert {cells(table, n)[0] for n in ("10-step MSE", LONG, "Last-step FSD", "Broken")} == {"–"}
    with pytest.raises(ValueError, match=r"no rows"):
        table1([])


@given(st.text(alphabet="ab|_$%&#{}~^\\<>*`[]\n ", min_size=1, max_size=12))
def test_no_label_is_markup(label):
    """Between unescaped marks, every form has as many cells as columns."""
    if not label.strip():
        return
    table = table1([*unit(method=label), *unit(method="linear", size=2.0)])
    count = len(table.columns)
    for line in table.markdown().splitlines()[2:6]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == count + 1
    body = table.latex().split("\\midrule\n")[1].split("\n\\bottomrule")[0]
    for line in body.splitlines():
        if line.startswith("\\cmidrule"):
            continue
        assert len(re.findall(r"(?<!\\)&", line)) == count - 1
        bare = line.removesuffix(r" \\")
        for known in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", "$<$", "$>$", r"\&"):
            bare = bare.replace(known, "")
        bare = re.sub(r"\\textbf\{([^{}]*)\}", r"\1", bare)
        assert not re.search(r"(?<!\\)[%$#_{}~^]", bare), line
    assert table.text().count("\n") == 5 + 2 + len(table.notes) - 1


def test_latex_is_booktabs_with_a_rule_before_the_searched_schedules():
    text = table1([*unit(method="linear"), *unit(method="adaptive", size=0.5)]).latex()
    for mark in (r"\toprule", r"\midrule", r"\bottomrule", r"\cmidrule(l){2-10}"):
        assert text.count(mark) == 1
    assert text.index("Linear") < text.index(r"\cmidrule") < text.index("Adaptive &")
    assert r"\textbf{5.00e-8}" in text
    assert r"10 \%" in text
    depth = itertools.accumulate({"{": 1, "}": -1}.get(c, 0) for c in re.sub(r"\\[{}]", "", text))
    depths = list(depth)
    assert min(depths) >= 0
    assert depths[-1] == 0


@pytest.mark.parametrize(
    ("datasets", "heading"),
    [
        (("ks",), "High-correlation time"),
        (("transonic",), "Final MSE"),
        (("ks", "transonic"), "High-correlation time / final MSE"),
    ],
)
def test_a_column_is_named_by_what_it_holds(datasets, heading):
    assert grid(table1([row for name in datasets for row in unit(name)]))[0][4] == heading


LABELS = ("persistence", "direct-residual", "adaptive-scaled-residual", "adaptive-scaled-residual-proxy")


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_table_fits_the_terminal_and_loses_no_number(width, seeds):
    rows = [
        row
        for k, label in enumerate(LABELS)
        for s in range(seeds)
        for row in unit(method=label, size=k + s + 1.0, seed=s, ledger=96_000)
    ]
    table = demo_table(rows)
    text = table.text(width)
    assert max(map(len, text.splitlines())) <= width
    words = {
        word
        for line in table.groups[0]
        for cell in line.cells
        for word in (cell.value, cell.rest)
        if word not in ("", "0")
    }
    joined = " ".join(text.replace("*", "").split())
    assert all(word in joined or " " in word for word in words)
    if width < 200:
        assert all(line.endswith(" ") is False for line in text.splitlines())
    else:
        assert text.splitlines()[:3] == table.text().splitlines()[:3]
    head = next(line for line in text.splitlines() if "Method" in line)
    end = head.index("Seconds") + len("Seconds")
    first = text.splitlines()[text.splitlines().index(head) + 2]
    assert first[: end + 1].rstrip() == first[:end], "a number ends where its heading ends"


def test_text_columns_are_aligned():
    lines = Line((Cell("long word"), Cell("1"))), Line((Cell("x"), Cell("22", "r", True)))
    table = Table("t", ("a", "b"), (lines,), left=1)
    _, head, rule, first, second, end = table.text().splitlines()
    assert len({len(s) for s in (head, rule, first, second, end)}) == 1
    assert second == "x          22* r"


def test_the_short_table_names_datasets_only_when_there_are_several():
    one = demo_table(unit("transonic"))
    assert grid(one)[0] == ["Method", "1-step MSE", "10-step MSE", "Correlation time", "NFE", "Seconds", "Broken"]  # fmt: skip
    assert cells(one, "Correlation time") == ["70.0 (50.0, 80.0)"]
    two = demo_table([*unit("ks"), *unit("kolmogorov")])
    assert cells(two, "Dataset") == ["Kolmo", "KS"]
