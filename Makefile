# Everything runs in .venv, made from the lock file; `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements/dev.lock
COMPILE := uv pip compile --quiet --generate-hashes --no-annotate --python-version 3.11 \
	--custom-compile-command 'make lock'

.PHONY: help venv test test-full lint format bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

venv: .venv/.made-from-lock ## create .venv with the pinned packages

.venv/.made-from-lock: $(LOCK) setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "plainsong needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version)" >&2; \
		     echo "hint: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "installing pinned packages into .venv ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: venv ## run the default test suite
	$(BIN)/python -m pytest

test-full: venv ## run every test, the heavy ones too
	$(BIN)/python -m pytest -m "heavy or not heavy"

lint: venv ## ruff and mypy --strict
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: venv ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## measure the core, the control plane and the shards, each beside a yardstick
	$(BIN)/plainsong bench core
	$(BIN)/plainsong bench control
	$(BIN)/plainsong bench shards

lock: ## resolve setup.cfg again into requirements/*.lock (needs uv)
	$(COMPILE) --extra dev --extra spark --output-file $(LOCK) setup.cfg requirements/build.in

clean: ## remove what the other targets made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info
