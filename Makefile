# Every target sets up .venv first; the stamp makes the second time free.
SHELL := /bin/bash
VENV  := .venv
STAMP := $(VENV)/.setup-stamp
BIN   := $(VENV)/bin
# The first interpreter of 3.11 or newer that can make a virtual environment.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell \
    $(p) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1 && echo $(p))))
ARGS ?=
JOBS ?= 2

.PHONY: setup run test lint format bench docs stress

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "treadle needs Python 3.11 or newer with the venv module" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

run: $(STAMP)
	$(BIN)/python examples/quickstart.py $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	$(BIN)/python -m bench.run $(ARGS)

docs: $(STAMP)
	$(BIN)/python tools/docs.py $(ARGS)
	$(BIN)/python tools/stubs.py $(ARGS)

stress: $(STAMP)
	$(BIN)/python -m bench.stress $(ARGS)
