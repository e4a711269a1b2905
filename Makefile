# One way in. `make` alone lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
# A hundred thousand lines are imported by every process; compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup explore benchmark board browser test test-all check style types imports audit faults \
	stack stack-down clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# A stamp: a second call starts at once, a changed pin installs again. uv installs the pinned set in
# seconds; where it finds no index of its own, pip does it in minutes. torch goes by pip, which knows
# the builds that lie on a machine, while uv installs the others.
$(VENV)/stamp: pyproject.toml constraints.txt
	@echo "setting up $(VENV); this takes a minute or two, once"
	@test -x $(BIN)/python || command -v $(PYTHON) >/dev/null || { echo "LSM needs Python 3.11, and \
	$(PYTHON) is not here: install it (Debian: apt-get install python3.11-venv, macOS: brew install \
	python@3.11), or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" | tr -d '\t' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@grep -v '^torch==' constraints.txt > $(VENV)/pinned.txt
	@$(PIP) "$$(grep '^uv==' constraints.txt)"
	@$(PIP) --no-deps "$$(grep '^torch==' constraints.txt)" & torch=$$!; trap "kill $$torch" INT TERM; \
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --no-deps -r $(VENV)/pinned.txt \
		|| $(PIP) --no-deps -r $(VENV)/pinned.txt; others=$$?; \
	wait $$torch && test $$others = 0
	@$(PIP) "$$(grep '^torch==' constraints.txt)"  # and what a build for GPUs needs beside
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/stamp  ## install everything into .venv

explore: setup  ## a page to play with the trained models that are in the box
	$(BIN)/lsm explore

benchmark: setup  ## prepare data, train, compare: the whole thing, in minutes
	$(BIN)/lsm benchmark --preset quick --models lsm_ours fno unet
	$(BIN)/lsm study transfer --preset quick --models lsm_ours

board: setup  ## elasticity on points from three seeds: LSM, its successors, classical rows, the solver
	$(BIN)/lsm benchmark --preset quick --benchmarks elasticity_p --seeds 0 1 2 \
		--models transolver lno flare lsm lsm_ours fno unet mean_field ridge pod_rbf
	$(BIN)/lsm board --preset quick --solvers --out board

check: setup  ## style, types and the direction of imports; the types take longest
	@$(MAKE) --no-print-directory --jobs 2 types style imports audit

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports --no-cache

audit: setup  ## known holes in the pinned packages, where the index tells of them
	@$(BIN)/python infra/packages.py

# A process a core: threads of several would wait for each other.
test: check  ## everything that takes seconds, and the end-to-end run
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
		$(BIN)/python -m pytest -m 'not slow' --numprocesses auto --dist loadfile --no-loadscope-reorder \
		--durations 40 --durations-min 5

browser:  ## Chromium for the tests of pages, where this machine lets us install it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| command -v google-chrome >/dev/null \
		|| { test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y chromium; } >/dev/null 2>&1 \
		|| echo "no Chromium could be installed: the tests of pages will say that they did not run"

test-all: check browser  ## the slow studies, too
	$(BIN)/python -m pytest

faults: setup  ## break everything on purpose and count what is lost; hours, continues if stopped
	$(BIN)/python -m tests.faults --page infra/faults.md

stack: setup  ## start Prefect server, worker and MLflow on 127.0.0.1, and deploy the flows
	$(BIN)/lsm stack up

stack-down: setup  ## stop them again
	$(BIN)/lsm stack down

clean:  ## remove the virtual environment; data and results in .lsm stay
	rm -rf $(VENV)
