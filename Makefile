# `make demo` and `make test` set up what they need: .venv, from Python ≥ 3.11 alone.
#   make PYTHON=python3.12 test                another interpreter
#   make test ARGS="-m 'not slow'"             options for pytest (ARGS="-n 0": one test after another)
#   make PIP_FLAGS="--extra-index-url …" demo  options for pip

PYTHON ?= python3
# Set these on make's command line; the caller's environment does not reach them.
VENV = .venv
EXTRAS = dev,docs,torch,plot,cli,report,dask,mlflow,experiments
PIP_FLAGS =
ARGS =

BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A process for each core; one that has nothing left takes over tests of another. tests/conftest.py: a thread for each.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test coverage audit lint format bench accuracy stress mutants docs clean

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
	@$(PYTEST) $(ARGS)

coverage: $(READY) ## all tests, with the lines and branches that they reach, then the tables (fails below 95%)
	@$(PYTEST) --cov --cov-report= $(ARGS)
	@$(BIN)/python -m studies.faults.coverage
	@$(BIN)/python -m studies tables

audit: ## known vulnerabilities of the versions in constraints.txt (asks the package index, in an environment of its own)
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && \
	  .venv-audit/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) pip-audit; }
	@.venv-audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt $(ARGS)

lint: $(READY) ## ruff (rules and format) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## apply ruff's fixes and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## benchmarks of minutes, then the tables (make accuracy: the long one, hours on two cores)
	@$(BIN)/python -m studies run votes --force $(ARGS)
	@$(BIN)/python -m studies tables

accuracy: $(READY) ## every scenario, rival and seed (ARGS="--jobs 16 --only case=A3" for some)
	@$(BIN)/python -m studies run scenarios $(ARGS)

stress: $(READY) ## long campaigns of faults and hostile files (a quarter of an hour), then their tables
	@$(BIN)/python -m studies run kills fuzz --force $(ARGS)
	@$(BIN)/python -m studies tables

mutants: $(READY) ## does a test notice each small mistake in an equation? (an hour on two cores)
	@$(BIN)/python -m studies run mutants --force $(ARGS)
	@$(BIN)/python -m studies tables

docs: $(READY) ## the documentation, into docs/_build/html
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## remove everything that make made
	rm -rf .venv .venv-ci .venv-audit .coverage build dist src/*.egg-info docs/_build docs/reference docs/gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests studies -name __pycache__ -type d -prune -exec rm -rf {} +
