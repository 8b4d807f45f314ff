# make demo   set everything up and see AutoDO at work on real digits
# make test   set everything up and run lint, types, doctests and tests
# make kernels   run the GPU kernels' tests by Triton's interpreter, where there is no GPU (Linux)

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test setup lint types tests kernels format clean help

help:
	@sed -n '1,3s/^# //p' Makefile

setup: $(STAMP)

# Build isolation is off because an isolated build would ignore constraints.txt and this machine's packages.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "autodo needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/autodo demo

test: lint types tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

tests: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

kernels: setup
	@# A torch for CUDA brings the Triton that it needs.
	$(BIN)/python -c 'import triton' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps triton==3.8.0
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/hyper tests/implicit tests/models tests/policies

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
