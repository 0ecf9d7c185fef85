# make run     everything from nothing, then the server on 127.0.0.1:8000
# make test    all tests
# make check   what CI runs: tests, format, lint, types, imports, OpenAPI
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
BIN := .venv/bin
# The lock is whole, so nothing is resolved: an older pip would look at versions beyond it, and refuse.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --only-binary :all:
LINT := openapi/lint
OPENAPI := openapi/openapi.json

.PHONY: help run test test-measured test-exhaustive check bench demo openapi lock format lint types imports openapi-drift openapi-lint clean
help:
	@sed -n 's/^# //p' Makefile

run: .venv/run
	@$(BIN)/cleave serve --host $(HOST) --port $(PORT)

demo: .venv/run
	@$(BIN)/cleave demo

# Two at once: what is measured for coverage, which takes thrice the time, and what is large.
test: .venv/dev
	@$(MAKE) --no-print-directory --jobs=2 test-measured test-exhaustive

test-measured: .venv/dev
	$(BIN)/python -m pytest -m "not exhaustive" --cov --cov-report= $(PYTEST)
	@$(BIN)/python -m coverage report --omit='app/placement/*' --skip-covered --fail-under=90
	@$(BIN)/python -m coverage report --include='app/placement/*' --skip-covered --fail-under=100

test-exhaustive: .venv/dev
	$(BIN)/python -m pytest -m exhaustive -p no:cacheprovider $(PYTEST)

check: format lint types imports openapi-drift openapi-lint test

format: .venv/dev
	$(BIN)/ruff format --check .

lint: .venv/dev
	$(BIN)/ruff check .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports

openapi: .venv/dev
	$(BIN)/cleave openapi > $(OPENAPI).new && mv $(OPENAPI).new $(OPENAPI)

openapi-drift: .venv/dev
	@$(BIN)/cleave openapi | diff -u $(OPENAPI) - || { echo "$(OPENAPI) is out of date: make openapi"; exit 1; }

openapi-lint: $(LINT)/node_modules
	cd $(LINT) && npm run --silent lint

bench: .venv/dev
	$(BIN)/python -m benchmarks $(BENCH)

lock: .venv/dev
	$(BIN)/uv pip compile pyproject.toml --group build $(LOCK) -o requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml --group dev $(LOCK) -o requirements/dev.txt
LOCK := --upgrade --universal --generate-hashes --python-version 3.11 --no-header --quiet

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cleave needs Python 3.11 or newer; make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/run: requirements/run.txt pyproject.toml | .venv/bin/python
	$(PIP) -r requirements/run.txt
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: requirements/dev.txt .venv/run
	$(PIP) -r requirements/dev.txt
	@$(BIN)/python -m pip --disable-pip-version-check check >/dev/null
	@touch $@

$(LINT)/node_modules: $(LINT)/package-lock.json $(LINT)/.npmrc
	cd $(LINT) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean:
	rm -rf .venv $(LINT)/node_modules build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
