# Each target works on a fresh machine with Python 3.11+ and make, and does nothing twice.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.PHONY: run test check bench docs lock clean

run: $(VENV)/.run
	$(BIN)/butlers run examples/general

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python bench/run.py

docs: $(VENV)/.dev
	$(BIN)/python scripts/reference.py

# Pins every version anew; needs `uv`, and writes no address.
lock:
	uv pip compile --universal --no-header --no-annotate --python-version 3.11 --extra dev --upgrade \
	    pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("butlers needs Python 3.11 or newer; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	@touch $@ $(VENV)/.run
