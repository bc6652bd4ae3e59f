# One command each; every target sets up what it needs by itself. `make` alone sets up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Written last: a set-up that was broken off does not count as done.
STAMP := $(VENV)/.set-up

# The packages as a user's installation has them, partly compiled. With these variables a command uses them, and not
# the checkout's, which .venv has by its editable installation.
INSTALLED := build/installed
AS_INSTALLED := PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(INSTALLED):$(CURDIR)/benchmarks:$(CURDIR)
SOURCES := setup.py $(shell find streaming producers -name __pycache__ -prune -o -not -type d -print)

# A failed pip must not hide behind the filter of its output.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := setup
.PHONY: setup prepare check lint test demo faults soak bench bench-quick clean help
.DELETE_ON_ERROR:

setup: $(STAMP) prepare ## build .venv from $(PYTHON); fetch the jars, and prepare for quick starts
	@echo
	@echo "There are now: .venv with the command queue-activation; the jars of Spark's Kafka connector and of the broker,"
	@echo "and the archive of Java's classes, outside of this folder (QUEUE_ACTIVATION_CACHE, or ~/.cache)."
	@echo "Next:  make demo                      all of it on this machine, two minutes"
	@echo "  or:  . .venv/bin/activate           and then, with your own Kafka, queue-activation topics --help"

# Without it all works too: jars are fetched by whoever needs them first, and starts take half as long again.
prepare: $(STAMP)
	@$(BIN)/queue-activation prepare || echo "Not prepared; .venv/bin/queue-activation prepare tries again."

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON). Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is `$(PYTHON) --version 2>&1`, but 3.11 or newer is needed. Name another one: make PYTHON=/path/to/python3.11"; exit 1; }
	@rm -f $(STAMP)
	@echo "setting up $(VENV) (once; a minute or two)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a venv. On Debian and Ubuntu install the package python3-venv."; exit 1; }
	@$(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' | sed -u -n 's/^Collecting \([^ ]*\).*/  \1/p; s/^Installing collected.*/  installing/p'
	@touch $(STAMP)

$(INSTALLED)/.set-up: $(STAMP) $(SOURCES)
	@echo "installing the packages in $(INSTALLED), partly compiled (half a minute)"
	@rm -rf $(INSTALLED) build/lib*
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(INSTALLED) .
	@ls $(INSTALLED)/streaming/core/activation/queue.*.so >/dev/null 2>&1 || echo "Nothing is compiled, as there is no C compiler. On Debian and Ubuntu install the package gcc."
	@touch $@

lint: $(STAMP) ## style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint ## style, types, and what runs in under a minute: unit tests of the source
	$(BIN)/pytest -q -n 2 tests/unit

test: $(INSTALLED)/.set-up prepare ## all tests: unit, simulation, integration, acceptance
	@rm -rf build/coverage
	$(BIN)/coverage run -m pytest -n 2 tests/unit
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report
	$(AS_INSTALLED) $(BIN)/pytest -n 2 --import-mode=importlib tests/unit tests/simulation
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder tests/faults/test_monitor_kills.py tests/integration \
		tests/acceptance tests/simulation

demo: $(STAMP) prepare ## the whole of it on this machine; ends by itself
	@$(BIN)/queue-activation demo

FAULTS_MOMENTS ?= 20
FAULTS_SECONDS ?= 300
faults: $(STAMP) ## whatever is killed, cut off or torn: nothing lost, nothing invented; 50 minutes
	FAULTS_MOMENTS=$(FAULTS_MOMENTS) FAULTS_SECONDS=$(FAULTS_SECONDS) $(BIN)/pytest tests/faults

SOAK_MINUTES ?= 60
soak: $(INSTALLED)/.set-up ## an hour of load: does anything grow, is anything lost? SOAK_MINUTES=10 is shorter
	@$(AS_INSTALLED) $(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

bench: $(INSTALLED)/.set-up ## throughput beside the peers, with a plot; then latency, idle load, timers, growth: an hour
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@for peer in benchmarks/peers/*/setup; do $$peer; done
	@$(AS_INSTALLED) $(BIN)/python benchmarks/throughput.py --runs 5 --plot build/throughput.png \
		--only queue-activation Streams Flink Bytewax "bare loop"
	@$(AS_INSTALLED) $(BIN)/python benchmarks/throughput.py --set many --only queue-activation "Kafka Streams, RocksDB" "key per queue"
	@$(AS_INSTALLED) $(BIN)/python benchmarks/latency.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/timers.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/growth.py

bench-quick: $(INSTALLED)/.set-up ## has it become slower? two ratios beside the committed ones, in under 3 minutes
	@benchmarks/peers/bare-loop/setup
	@$(AS_INSTALLED) $(BIN)/python benchmarks/quick.py

clean: ## remove what can be built again
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
