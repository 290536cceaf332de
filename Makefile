# Everything runs in $(VENV); a stamp file remembers what was installed, so targets repeat quickly.
#   make quickstart        from a bare machine to a streamed answer
#   make chat MODEL=...    talk to a model of your own choice
#   make test              the tests, without torch

PYTHON ?= python3
VENV ?= .venv
MODEL ?= smollm2-135m
PROMPT ?= The capital of France is
MINUTES ?= 30
# Recipes read them from the environment, where no character of theirs is the shell's.
export MODEL PROMPT MINUTES
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# ModelScope's owner/name, and no path, is fetched by a client that the core does without.
ELSE := $(word 2,$(MODEL))$(filter /% ./% ../% ~% hf:%,$(MODEL))$(wildcard $(MODEL))
FOR_MODEL := $(VENV)/.installed-$(if $(and $(findstring /,$(MODEL)),$(if $(ELSE),,id)),hub,core)

.DEFAULT_GOAL := help
.PHONY: help install quickstart pull show run chat demo studio profile bench bench-peers lab
.PHONY: test test-slow test-matrix soak test-notebooks test-browser test-lab test-oracle
.PHONY: check format readme dist clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14
	@echo
	@echo "MODEL=...   what quickstart, pull, show, run, chat, demo, profile and bench take:"
	@echo "            a directory (checkpoint or converted), a GGUF file, owner/name of ModelScope,"
	@echo "            hf:owner/name of Hugging Face, or smollm2-135m, the embedded model and default"
	@echo "PROMPT=...  the text that run continues"
	@echo "PYTHON=...  the Python that makes VENV=..., by default .venv"

install: $(VENV)/.installed-core ## make the environment and install the package

quickstart: $(FOR_MODEL) ## fetch and convert MODEL, stream an answer
	@$(BIN)/dashinfer-lab quickstart --model "$$MODEL"

pull: $(FOR_MODEL) ## fetch MODEL into the cache
	@$(BIN)/dashinfer-lab pull "$$MODEL"

show: $(FOR_MODEL) ## show what MODEL is before it runs
	@$(BIN)/dashinfer-lab show "$$MODEL"

run: $(FOR_MODEL) ## continue PROMPT with MODEL
	@$(BIN)/dashinfer-lab run "$$MODEL" "$$PROMPT"

chat: $(FOR_MODEL) ## talk to MODEL in the terminal
	@$(BIN)/dashinfer-lab chat "$$MODEL"

demo: $(VENV)/.installed-demo $(FOR_MODEL) ## talk to MODEL in the browser
	@$(BIN)/dashinfer-lab demo "$$MODEL"

studio: $(VENV)/.installed-dist ## write a ModelScope Studio with MODEL into build/studio
	@rm -rf build/studio build/studio-wheel
	@$(BIN)/python -m build --wheel --no-isolation --outdir build/studio-wheel >/dev/null
	@$(BIN)/python demos/studio.py build/studio build/studio-wheel/*.whl "$$MODEL"

profile: $(FOR_MODEL) ## show where MODEL's time goes, operator by operator
	@$(BIN)/dashinfer-lab profile "$$MODEL"

bench: $(FOR_MODEL) ## measure MODEL on this machine
	@$(BIN)/dashinfer-lab bench "$$MODEL"

bench-peers: $(VENV)/.installed-core ## measure MODEL beside llama.cpp and DashInfer
	@$(BIN)/python -m tests.bench.peers --model "$$MODEL"

lab: $(VENV)/.installed-lab ## open JupyterLab at the first notebook
	$(BIN)/jupyter lab notebooks/00_quickstart.ipynb

# The model is fetched before pytest starts: no test reaches for the network.
test: $(VENV)/.installed-test ## run the tests
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -n auto --maxprocesses 8 -m "not oracle and not browser and not notebook and not slow and not matrix"

test-slow: $(VENV)/.installed-test ## run the tests that take many seconds each
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -n auto --maxprocesses 8 -m "slow and not browser and not notebook and not matrix"

test-matrix: $(VENV)/.installed-test ## run every model in every format for every instruction set
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -n auto --maxprocesses 8 -m matrix

soak: $(VENV)/.installed-test ## ask at random for MINUTES=30; nothing may grow
	$(BIN)/python -m tests.bench.soak --minutes "$$MINUTES"

test-notebooks: $(VENV)/.installed-test ## run every notebook from top to bottom
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest tests/notebooks

test-browser: $(VENV)/.installed-browser ## run the tests that need Debian's chromium
	@command -v chromium >/dev/null || echo "chromium is not installed: its tests are skipped"
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest -m "browser and not slow"

test-lab: $(VENV)/.installed-browser ## run notebooks in JupyterLab by its menu, in chromium
	$(BIN)/dashinfer-lab pull smollm2-135m
	$(BIN)/python -m pytest tests/browser/test_lab.py

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

readme: $(VENV)/.installed-core ## write the tables of models and formats into both READMEs
	$(BIN)/python -m tests.architecture.supported_models

dist: $(VENV)/.installed-dist ## build the sdist, and from it the wheel, into dist/
	$(BIN)/python -m build --no-isolation

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
	@echo "Installing dashinfer_lab and its packages, about 450 MB ..."
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
