# `make demo` and `make test` set up what they need: .venv, from Python ≥ 3.11 alone.
#   make PYTHON=python3.12 test                another interpreter
#   make test ARGS="-m 'not slow' -n auto"     options for pytest
#   make PIP_FLAGS="--extra-index-url …" demo  options for pip

PYTHON ?= python3
# Set these on make's command line; the caller's environment does not reach them.
VENV = .venv
EXTRAS = dev,docs,plot,cli,report,dask,baselines
PIP_FLAGS =
ARGS =

BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format bench accuracy stress docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv (every other target does so when needed)

# Runs once, and again when a dependency changes.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "Cannot find '$(PYTHON)'. Install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "collidescope needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make environments. Install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Setting up $(VENV) (once, a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(READY) ## the main job on scikit-learn's digits, printed and as report.html
	@$(BIN)/python -m collidescope demo

test: $(READY) ## all tests and doctests
	@$(BIN)/python -m pytest $(ARGS)

lint: $(READY) ## ruff (rules and format) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## apply ruff's fixes and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## benchmarks of minutes, then the tables (make accuracy: the long one, hours on two cores)
	@set -e; for script in recovery coverage counted speed tables; do \
	  echo "== benchmarks/$$script.py"; $(BIN)/python -m benchmarks.$$script; done

accuracy: $(READY) ## every scenario, rival and seed (ARGS="--jobs 16 A3 D3" for some)
	@$(BIN)/python -m benchmarks.accuracy $(ARGS)

stress: $(READY) ## long campaigns of faults and hostile files (a quarter of an hour), then their tables
	@set -e; for script in kills fuzz tables; do \
	  echo "== stress/$$script.py"; OMP_NUM_THREADS=1 $(BIN)/python -m stress.$$script; done

docs: $(READY) ## the documentation, into docs/_build/html
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## remove everything that make made
	rm -rf .venv .venv-ci build dist src/*.egg-info docs/_build docs/reference docs/gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks stress -name __pycache__ -type d -prune -exec rm -rf {} +
