# One way in. `make` alone lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev benchmark test test-all check stack stack-down clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# A stamp a set of packages: a second call starts at once, a changed pin installs again.
$(VENV)/run.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages; this takes some minutes the first time"
	$(PIP) --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(PIP) --editable '.[dev,s3,postgres]'
	touch $@

setup: $(VENV)/run.stamp  ## install the packages into .venv
setup-dev: $(VENV)/dev.stamp  ## install the tools for development, too

benchmark: setup  ## prepare data, train, compare: the whole thing, in minutes
	$(BIN)/lsm benchmark --preset quick

check: setup-dev  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## everything that takes seconds, and the end-to-end run
	$(BIN)/python -m pytest -m 'not slow' --numprocesses auto --dist loadfile

test-all: check  ## the slow studies, too
	$(BIN)/python -m pytest

stack: setup  ## start Prefect server, worker and MLflow on 127.0.0.1, and deploy the flows
	$(BIN)/lsm stack up

stack-down: setup  ## stop them again
	$(BIN)/lsm stack down

clean:  ## remove the virtual environment; data and results in .lsm stay
	rm -rf $(VENV)
