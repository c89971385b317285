# Everything starts here: `make run` and `make test` install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
export ORT_DISABLE_TELEMETRY := 1
WORKERS ?= 2
# Where setup.sh and triton.sh of a reference Triton server lie; without it the suites that ask a real one are skipped.
FLOTILLA_ORACLE ?= $(wildcard ../shared/oracle)

.DEFAULT_GOAL := help
.PHONY: help run demo setup setup-dev compile test test-all test-compiled test-gpu fuzz lint fmt types arch migrations generated bench docs proto css clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] < (3, 14)))' \
		|| { echo "Flotilla needs Python 3.11, 3.12 or 3.13. Set PYTHON=/path/to/python."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing (Debian: apt-get install python3-venv)."; exit 1; }

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[node,onnx,console,embedded,signing]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt 'pip>=25.1'
	$(PIP) install -q -c constraints.txt torch==2.13.0
	$(PIP) install -q -c constraints.txt -e '.[node,onnx,torch,console,embedded,signing,convert,convert-trees]' --group dev
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.runtime ## Make .venv with what the product needs

setup-dev: $(VENV)/.dev ## Make .venv with what development needs (adds torch, Chromium)
	@scripts/ensure_chromium.sh

run: setup ## Set everything up and run Flotilla (console on 7070, node on 8000-8003)
	@$(BIN)/flotilla up --data-dir data

demo: $(VENV)/.dev ## Fill a running Flotilla with models of four backends, approvals and traffic
	@$(BIN)/flotilla demo --data-dir data

lint: $(VENV)/.dev ## Lint and check formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fmt: $(VENV)/.dev ## Format
	$(BIN)/ruff check --fix -q . || true
	$(BIN)/ruff format .

types: $(VENV)/.dev ## Type-check (strict)
	$(BIN)/mypy

arch: $(VENV)/.dev ## Check the import contracts
	$(BIN)/lint-imports

migrations: $(VENV)/.dev ## Check that migrations match the models
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check

generated: $(VENV)/.dev ## Check that generated files are fresh
	$(BIN)/python scripts/generate_protos.py --check
	$(BIN)/python scripts/generate_reference.py --check
	$(BIN)/python scripts/generate_node_reference.py --check
	$(BIN)/python scripts/draw_scheduling.py --check
	scripts/build_css --check
	$(BIN)/python scripts/vendor_static.py --check

proto: $(VENV)/.dev ## Generate the protobuf stubs
	$(BIN)/python scripts/generate_protos.py

css: $(VENV)/.dev ## Build the style sheet
	scripts/build_css

test: setup-dev lint types arch migrations generated ## All checks and tests (under 25 minutes on 2 cores)
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m 'not slow and not gpu'

test-all: setup-dev lint types arch migrations generated ## Also the slow suites (installs a real Triton to compare with)
	@[ -z "$(FLOTILLA_ORACLE)" ] || bash $(FLOTILLA_ORACLE)/setup.sh
	FLOTILLA_ORACLE=$(abspath $(FLOTILLA_ORACLE)) $(BIN)/pytest -n $(WORKERS) --dist loadgroup -m 'not gpu'

compile: $(VENV)/.dev ## Compile the modules of the node that every request passes (needs gcc, 3 minutes; optional)
	$(BIN)/python -m serving_node compile

test-compiled: compile ## The tests of the node on its compiled modules
	$(BIN)/pytest -p tests.compiled -n $(WORKERS) --dist loadgroup -m 'not slow and not gpu' tests/serving_node

test-gpu: $(VENV)/.dev ## The tests that need an NVIDIA GPU; each says what it lacks
	$(BIN)/pytest -m gpu tests/serving_node

EXAMPLES ?= 20000
fuzz: $(VENV)/.dev ## Throw EXAMPLES inputs at everything that reads a stranger's bytes
	FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n $(WORKERS) -m fuzz --timeout 7200

bench: $(VENV)/.dev ## Run the benchmarks (ratios against peers in the same run)
	$(BIN)/python -m benchmarks $(addprefix --oracle ,$(FLOTILLA_ORACLE))

docs: $(VENV)/.dev ## Write the reference pages that come from the code
	$(BIN)/python scripts/generate_reference.py
	$(BIN)/python scripts/generate_node_reference.py
	$(BIN)/python scripts/draw_scheduling.py
	@echo "Start at docs/index.md"

clean: ## Remove the virtual environment and caches (never your data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
