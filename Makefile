# The front door. It needs Python 3.11 or newer and make; everything else it installs into
# .venv* folders. What is done to a library stands in that library's justfile, once.
# MONGODB_URI names a server of yours to use.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := 0.13.9
SAVER := libs/langgraph-checkpoint-mongodb
REDUCER := libs/agentstate-reducer
# Starts real servers on machines without a container engine; kept beside the project.
SERVERS ?= ../shared/servers/mongo
SERVER_VERSIONS ?= 6.0 7.0 8.2

export PATH := $(CURDIR)/.venv-uv/bin:$(CURDIR)/.venv/bin:$(PATH)
# An environment that happens to be active is none of this project's.
unexport VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
# PYTHON makes every environment, unless UV_PYTHON names another one for uv's.
export UV_PYTHON ?= $(PYTHON)

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv-uv/bin/uv:
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/installed: .venv-uv/bin/uv pyproject.toml uv.lock
	uv sync --quiet --locked
	touch $@

.PHONY: setup setup-saver setup-reducer
setup: setup-saver setup-reducer ## Install everything, as locked

setup-saver: .venv/installed
	just $(SAVER)/install

setup-reducer: .venv/installed
	just $(REDUCER)/install

.PHONY: demo
demo: .venv-uv/bin/uv ## 17 MB of state saved and resumed, with the bytes of each step
	cd $(SAVER) && uv run --locked python demo.py

.PHONY: test test-saver test-reducer test-tools
test: test-saver test-reducer test-tools ## All tests, on MONGODB_URI or an embedded server

test-saver: setup-saver
	just $(SAVER)/tests

test-reducer: setup-reducer
	just $(REDUCER)/tests

test-tools: .venv/installed
	pytest

.PHONY: test-postgres
test-postgres: setup-reducer ## The reducer's tests, with a private PostgreSQL server too
	$(PYTHON) $(REDUCER)/tests/with_postgres.py just $(REDUCER)/tests

.PHONY: test-matrix $(SERVER_VERSIONS:%=test-on-%)
test-matrix: $(SERVER_VERSIONS:%=test-on-%) ## The server tests on MongoDB 6.0, 7.0 and the 8.2 emulation

$(SERVER_VERSIONS:%=test-on-%): test-on-%: setup-saver
	@if [[ ! -x "$(SERVERS)" ]]; then \
	  echo "SKIPPED: no tests on server $*: $(SERVERS) is not there. Set SERVERS to a command that does" \
	    "\`run VERSION -- COMMAND\`, or run \`make test\` with MONGODB_URI."; \
	else \
	  echo "== server $*"; "$(SERVERS)" run $* -- just $(SAVER)/integration_tests; \
	fi

.PHONY: test-lowest test-newest
test-lowest: setup-saver ## The tests with the oldest dependencies promised to work
	just $(SAVER)/lowest_tests

test-newest: setup-saver ## The tests with the newest dependencies there are
	just $(SAVER)/newest_tests

.PHONY: test-server
test-server: setup-saver ## The saver in LangGraph's API server, `langgraph dev`
	just $(SAVER)/server_tests

.PHONY: test-clone
test-clone: ## All tests and the demo in a fresh clone: make test-clone PYTHON=/usr/bin/python3
	@folder="$$(mktemp -d)"; trap 'rm -rf "$$folder"' EXIT; \
	git clone --quiet . "$$folder/project"; \
	$(MAKE) --directory "$$folder/project" --keep-going test demo

.PHONY: lint lint-repository lint-saver lint-reducer
lint: lint-repository lint-saver lint-reducer ## Style and format of code, scripts and workflows

lint-repository: .venv/installed
	ruff check .
	ruff format --check .
	shellcheck .ci/run
	check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	zizmor --offline --quiet --pedantic .github

lint-saver: setup-saver
	just $(SAVER)/lint

lint-reducer: setup-reducer
	just $(REDUCER)/lint

.PHONY: typecheck typecheck-repository typecheck-saver typecheck-reducer
typecheck: typecheck-repository typecheck-saver typecheck-reducer ## mypy, strict

typecheck-repository: .venv/installed
	mypy

typecheck-saver: setup-saver
	just $(SAVER)/typing

typecheck-reducer: setup-reducer
	just $(REDUCER)/typing

.PHONY: format
format: setup ## Mend style and format
	ruff check --fix .
	ruff format .
	just $(SAVER)/format
	just $(REDUCER)/format

.PHONY: bench bench-quick
bench: setup-saver ## The comparison with 0.5.1, PostgreSQL and memory
	cd $(SAVER) && uv run --no-sync python -m bench

bench-quick: setup-saver ## The same, small, in a minute; the first time two
	cd $(SAVER) && uv run --no-sync python -m bench --quick

.PHONY: patch
patch: ## Write the pull request as one patch: make patch UPSTREAM=path/to/checkout
	@[[ -n "$(UPSTREAM)" ]] || { echo "say where the upstream checkout is: make patch UPSTREAM=path"; exit 2; }
	$(PYTHON) tools/make_patch.py "$(UPSTREAM)"

.PHONY: clean
clean: ## Remove environments, caches and results
	rm -rf .venv .venv-uv .mypy_cache .ruff_cache .pytest_cache
	rm -rf libs/*/.venv libs/*/.venv-* libs/*/.mypy_cache libs/*/.ruff_cache libs/*/.pytest_cache
	rm -rf libs/*/.hypothesis libs/*/bench-results.json
	find libs tools -name __pycache__ -prune -exec rm -rf {} +
