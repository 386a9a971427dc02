# Octavo's commands. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV    ?= .venv
PYTHON  ?= python3
BIN     := $(VENV)/bin
CLUSTER ?= local

# Two workers, each with whole files, so that a file's fixtures are made once. Cluster tests go one by one.
PARALLEL := -n 2 --dist loadfile

export OCTAVO_STATE ?= $(CURDIR)/.octavo
export PYTHONUNBUFFERED := 1

.PHONY: help setup demo demo-down check format generate prepare test test-fast test-cluster test-e2e cluster cluster-down constraints clean

help: ## List the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | LC_ALL=C sort | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## Make .venv with octavo, octavo-engine and the development tools

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "setup: installing Octavo and its dependencies into $(VENV) (torch is large: about 5 GB, 2 to 3 minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: $(PYTHON) is older than 3.11; set PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --progress-bar on -c constraints.txt -e '.[operator,engine,dev]'
	@touch $@
	@echo "setup: done; $(BIN)/octavo and $(BIN)/octavo-engine are ready"

demo: setup ## Start a local cluster, install Octavo, serve SmolLM2 and ask it a question (root, Go, gcc; or CLUSTER=existing)
	@$(BIN)/python -m tests.demo up --cluster $(CLUSTER)

demo-down: setup ## Remove everything that the demo made
	@$(BIN)/python -m tests.demo down --cluster $(CLUSTER)

check: setup ## Lint, format check, types, and generated files are current
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m octavo_operator.api.generate --check
	@$(BIN)/pytest -q tests/test_layers.py tests/test_repository.py

format: setup ## Format the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

generate: setup ## Write the CRD, the install manifest and the reference pages from the code
	@$(BIN)/python -m octavo_operator.api.generate
	@$(BIN)/python -m tests.install.generate

test-fast: check ## What needs no cluster and is not slow, in a few minutes
	@$(BIN)/pytest -q $(PARALLEL) -m "not cluster and not e2e and not slow"

test-cluster: setup ## Tests on a real API server (light cluster, no node; needs Go)
	@$(BIN)/python -m tests.cluster.local binaries
	@$(BIN)/pytest -q -m cluster

test-e2e: prepare ## Tests on the whole local cluster: kubelet, images, sample model (needs root)
	@$(BIN)/pytest -q -m e2e

prepare: setup ## Build once what the cluster tests need: packages, programs, images, sample model (root, Go, gcc)
	@$(BIN)/python -m tests.cluster.local prepare
	@$(BIN)/python -m tests.support.sample_model
	@$(BIN)/python -m tests.cluster.images build

test: check prepare ## Lint, types, unit, property, cluster and end-to-end tests (needs root)
	@$(BIN)/pytest -q $(PARALLEL) -m "not cluster and not e2e"
	@$(BIN)/pytest -q -m "cluster or e2e"

cluster: prepare ## Start the local cluster alone and print its kubeconfig (needs root)
	@$(BIN)/python -m tests.cluster.local up

cluster-down: setup ## Stop the local cluster
	@$(BIN)/python -m tests.cluster.local down

constraints: setup ## Pin in constraints.txt what .venv holds now
	@{ head -1 constraints.txt; $(BIN)/pip freeze --all --exclude-editable | grep -v "^pip=="; } > constraints.new && mv constraints.new constraints.txt

clean: ## Remove build products and caches of this checkout (not the shared cache)
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
