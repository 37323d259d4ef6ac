# `make test` and `make demo` set up what they need; a second run sets nothing up again.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
# Small tensors are bound by the number of operations: one thread a process is fastest.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: setup test lint types demo format check-well clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

test: lint types
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(READY)
	$(BIN)/python examples/01_oracle.py

# The Well's own loader, in an environment of its own, reads our files and agrees on every value.
check-well: $(READY)
	$(BIN)/python benchmarks/check_well.py --venv build/well

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
