# Everything runs in $(VENV); a stamp file remembers what was installed, so targets repeat quickly.
#   make quickstart        from a bare machine to a streamed answer
#   make test              the tests, without torch
#   make bench MODEL=...   speed against this machine's own memory bandwidth

PYTHON ?= python3
VENV ?= .venv
MODEL ?= smollm2-135m
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help install quickstart lab bench test test-oracle check format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed-core ## make the environment and install the package

quickstart: $(VENV)/.installed-core ## fetch and convert the embedded model, stream an answer
	$(BIN)/dashinfer-lab quickstart

lab: $(VENV)/.installed-lab ## open JupyterLab with everything a notebook needs
	$(BIN)/jupyter lab

bench: $(VENV)/.installed-core ## measure MODEL on this machine
	$(BIN)/dashinfer-lab bench $(MODEL)

# The model is fetched before pytest starts: no test reaches for the network.
test: $(VENV)/.installed-test ## run the tests
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -m "not oracle and not browser"

test-oracle: $(VENV)/.installed-oracle ## compare with torch and transformers
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -m oracle

check: $(VENV)/.installed-check ## lint, format, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-check ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches of the tools
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "dashinfer_lab needs Python 3.10 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "This Python cannot make environments. Install the missing part, then repeat:"; \
	  echo "  apt-get install python3-venv"; exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-core: pyproject.toml | $(BIN)/python
	@echo "Installing dashinfer_lab ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-oracle: $(VENV)/.installed-test
	@echo "Installing the oracle extra (torch, transformers) ..."
	@$(PIP) --editable '.[oracle]'
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed-core
	@echo "Installing the $* extra ..."
	@$(PIP) --editable '.[$*]'
	@touch $@
