# make demo   sets up .venv, installs, trains on this machine and shows the result
# make test   sets up what the tests need, then runs the linters and all tests
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test coverage lint bench reproduce clean

# The first Python of at least 3.11 that is on the path; PYTHON=… overrules it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SCALE ?= small
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --progress-bar off

help:
	@echo "make demo    set up .venv, train on this machine, show the result"
	@echo "make test    set up what the tests need, lint, run all tests"
	@echo "make coverage the same tests, and which lines they run"
	@echo "make lint    ruff, mypy --strict, import-linter"
	@echo "make bench   speed, as ratios measured side by side"
	@echo "make reproduce the paper's figures, tables and claims; SCALE=paper for its own sizes"
	@echo "make clean   remove .venv and everything that was built"

.venv/made:
	@test -n "$(PYTHON)" || { echo "dfwtrace needs Python 3.11 or later: none was found."; exit 1; }
	@echo "Setting up .venv with $(PYTHON) …"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/installed: .venv/made pyproject.toml
	@echo "Installing dfwtrace …"
	@$(PIP) -e '.[cli,plots]'
	@touch $@

.venv/installed-dev: .venv/made pyproject.toml
	@echo "Installing dfwtrace and what its tests need …"
	@$(PIP) -e '.[dev]'
	@touch .venv/installed $@

demo: .venv/installed
	@$(BIN)/python examples/demo.py

test: .venv/installed-dev lint
	@tools/test.sh

coverage: .venv/installed-dev
	@tools/test.sh coverage

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks

reproduce: .venv/installed-dev
	@tools/java.sh || true
	$(BIN)/python -m reproduction --scale $(SCALE)

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
