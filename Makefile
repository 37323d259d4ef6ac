# `make test` and `make demo` set up what they need; a second run sets nothing up again.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
# Small tensors are bound by the number of operations: one thread per process is fastest.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: setup test laws test-fast test-slow lint types demo format check-well attack rescore docs dist clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps azula  # its torchvision is not needed
	touch $@

# Everything but networks of the paper's size. Whoever is done first takes over tests of the other.
test: lint
	+$(MAKE) --no-print-directory -j2 types laws

laws: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# For the edit loop: without whole studies, commands of the documents, kills, the browser and solvers, and without
# checks of types and shapes at every call, which double the time.
test-fast: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -o addopts='--strict-markers -q -rs' -m 'not slow and not long'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Data, search, training, fine-tuning, two baselines and a report, in minutes; a second call finds it all done.
demo: $(READY)
	$(BIN)/biasbound run runs/demo --preset ks-demo --jobs $(JOBS)

# Paper-size networks make their first updates; takes long and much memory.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# Every kept emulator of results/, scored again on test data made anew.
rescore: $(READY)
	$(BIN)/python benchmarks/rescore.py --jobs $(JOBS)

# The Well's own loader, in an environment of its own, reads our files and agrees on every value.
check-well: $(READY)
	$(BIN)/python benchmarks/check_well.py --venv build/well

# The site, in build/site: notebooks are run, and a warning or a link to nowhere is an error. Its environment is not that of the tests.
docs: build/docs-venv/.ready
	build/docs-venv/bin/python -m sphinx --fail-on-warning --keep-going -b html docs build/site
	build/docs-venv/bin/python docs/links.py build/site

build/docs-venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

# Wheel and sdist in build/dist, checked, and each tried in a fresh environment of every Python of PYTHONS.
PYTHONS ?= $(PYTHON)
dist: build/dist-venv/.ready
	build/dist-venv/bin/python benchmarks/wheel.py --release build/dist --pythons $(PYTHONS)

build/dist-venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/python -m pip install --quiet -c constraints.txt build twine numpy setuptools
	touch $@

# Damaged files, bad options, kills and odd surroundings by the thousand, with a table at the end (docs/trust.md).
attack: $(READY)
	$(BIN)/python benchmarks/attack.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build *.egg-info
