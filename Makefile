# Each target is one command, and sets up what it needs. `make` alone runs `make setup`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each is written last, so that an interrupted set-up does not count as done. The demos need only the first.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.set-up
PIP_INSTALL = $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt
PIP_PROGRESS = sed -u -n 's/^Collecting \([^ ]*\).*/  \1/p; s/^Building wheels for.*: \(.*\)/  building \1/p; s/^Installing collected.*/  installing/p' | $(STILL)
# Passes lines on, and says after some seconds without a line that the work goes on: `read` then fails with more than 128.
STILL = while IFS= read -r -t $(PIP_AGAIN_S) line || { [ $$? -gt 128 ] && line="  still at work after $$SECONDS s"; }; do echo "$$line"; done
PIP_AGAIN_S := 15

# The packages as a user installs them, partly compiled. With these variables a command uses them instead of the
# checkout, which .venv has as an editable installation.
INSTALLED := build/installed
AS_INSTALLED := PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(INSTALLED):$(CURDIR)/benchmarks:$(CURDIR)
# Measured each time.
COVERAGE := build/coverage
SOURCES := setup.py $(shell find streaming producers -name __pycache__ -prune -o -not -type d -print)

# With pipefail, the filter of pip's output does not hide that pip has failed.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := setup
.PHONY: setup prepare browser check lint test test-all demo demo-services demo-instances demo-observe faults soak bench bench-services bench-quick clean help $(COVERAGE)
.DELETE_ON_ERROR:
# The tests start Python some hundred times. Without its caches, each start compiles every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

PREPARE = $(BIN)/queue-activation prepare
NOT_PREPARED := The preparation failed. To try again: .venv/bin/queue-activation prepare

setup: $(STAMP) ## build .venv with $(PYTHON), fetch the jars, and prepare for quick starts
	@if $(PREPARE); then \
		echo; \
		echo "Set-up is complete. .venv has the command queue-activation. The jars of Spark's Kafka connector and of the broker,"; \
		echo "and the archive of Java's classes, are outside of this folder (QUEUE_ACTIVATION_CACHE, or ~/.cache)."; \
	else \
		echo; \
		echo ".venv has the command queue-activation. $(NOT_PREPARED)"; \
	fi
	@echo "Next:  make demo                      show everything on this machine, usually in two minutes"
	@echo "  or:  . .venv/bin/activate           and then, with your own Kafka, queue-activation run --help"

# Not required: without it, the first command that needs the jars fetches them, and starts take half as long again.
prepare: $(STAMP)
	@$(PREPARE) || echo "$(NOT_PREPARED)"

# The tests of the dashboard use these two files. Without them they are skipped, but fail if CI is set.
browser: ## install Debian's Chromium and its driver, in which the tests open the dashboard; needs root's rights
	@[ -x /usr/bin/chromium ] && [ -x /usr/bin/chromedriver ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
		|| { echo "Chromium could not be installed. As root, on Debian: apt-get install chromium chromium-driver"; exit 1; }

$(RUNTIME): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON). Install Python 3.11 or newer, or name another interpreter: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is `$(PYTHON) --version 2>&1`, but 3.11 or newer is needed. Name another interpreter: make PYTHON=/path/to/python3.11"; exit 1; }
	@[ ! -L $(VENV) ] || { echo "$(VENV) is a link. Remove the link first: setting up would delete everything in the folder that it points to."; exit 1; }
	@rm -f $(RUNTIME) $(STAMP)
	@echo "Setting up $(VENV) (once; takes a few minutes)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot create a virtual environment. On Debian and Ubuntu, install the package python3-venv."; exit 1; }
	@$(PIP_INSTALL) --editable '.[dashboard]' | $(PIP_PROGRESS)
	@touch $@

$(STAMP): $(RUNTIME)
	@echo "Adding the tools for tests and development to $(VENV) (once; takes a minute)"
	@$(PIP_INSTALL) --editable '.[dev,dashboard]' | $(PIP_PROGRESS)
	@touch $@

$(INSTALLED)/.set-up: $(STAMP) $(SOURCES)
	@echo "Installing the packages in $(INSTALLED), partly compiled (takes half a minute)"
	@rm -rf $(INSTALLED) build/lib*
	@$(BIN)/pip install --disable-pip-version-check --no-deps --target $(INSTALLED) . | $(PIP_PROGRESS)
	@ls $(INSTALLED)/streaming/core/activation/queue.*.so >/dev/null 2>&1 || echo "Nothing was compiled, because there is no C compiler. On Debian and Ubuntu, install the package gcc."
	@touch $@

lint: $(STAMP) ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint ## lint, and the unit tests of the source, in under a minute
	$(BIN)/pytest -q -n 3 --dist worksteal tests/unit

$(COVERAGE): $(STAMP)
	@rm -rf $@
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal tests/unit/core
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

# Everything that a user installs, and with real Kafka and Spark one test of each thing that it can do.
test: $(INSTALLED)/.set-up prepare ## test that everything works on this machine, in six to eight minutes
	$(AS_INSTALLED) $(BIN)/pytest -n 2 --dist worksteal --import-mode=importlib tests/unit tests/simulation
	$(AS_INSTALLED) $(BIN)/pytest -n 2 --dist loadfile --import-mode=importlib tests/acceptance

# A long file that comes last would leave the other workers without work. Files that mostly wait (scenarios,
# observed_scenarios, sole_monitor, host, observed_activations, stopping) are among those that mostly compute. Each file
# is named once.
LONGEST_FIRST := $(addprefix tests/integration/test_, scenarios.py instances.py demos.py sole_monitor.py monitor.py \
	observed_scenarios.py host.py secured.py observed_activations.py stopping.py cluster.py router.py service_clients.py)
OTHERS := $(filter-out $(LONGEST_FIRST), $(sort $(wildcard tests/integration/test_*.py)))

# More workers than cores, because some tests only wait.
test-all: test $(COVERAGE) ## run all tests: those of `make test`, the coverage of the core, integration
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(LONGEST_FIRST) $(OTHERS)

demo: $(RUNTIME) ## show everything on this machine; ends by itself
	@$(BIN)/queue-activation demo

demo-services: $(RUNTIME) ## show how programs talk to services on this machine; ends by itself
	@$(BIN)/queue-activation demo services

demo-instances: $(RUNTIME) ## show conversations between Kafka clusters on this machine; ends by itself
	@$(BIN)/queue-activation demo instances

demo-observe: $(RUNTIME) ## show consumers that know only Kafka, started on demand; ends by itself
	@$(BIN)/queue-activation demo observe

FAULTS_MOMENTS ?= 20
FAULTS_SECONDS ?= 300
faults: $(STAMP) ## kill, cut off and tear everything: nothing may be lost or invented; an hour
	FAULTS_MOMENTS=$(FAULTS_MOMENTS) FAULTS_SECONDS=$(FAULTS_SECONDS) $(BIN)/pytest tests/faults

SOAK_MINUTES ?= 60
soak: $(INSTALLED)/.set-up ## an hour of load: nothing may grow or be lost; SOAK_MINUTES=10 is shorter
	@$(AS_INSTALLED) $(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

bench: $(INSTALLED)/.set-up ## measure throughput beside the peers, with a plot; latency, idle load, timers, growth, routing; an hour
	@$(PIP_INSTALL) --quiet --editable '.[bench]'
	@for peer in benchmarks/peers/*/setup; do $$peer; done
	@$(AS_INSTALLED) $(BIN)/python benchmarks/throughput.py --runs 5 --plot build/throughput.png \
		--only queue-activation Streams Flink Bytewax "bare loop"
	@$(AS_INSTALLED) $(BIN)/python benchmarks/throughput.py --set many --only queue-activation "Kafka Streams, RocksDB" "key per queue"
	@$(AS_INSTALLED) $(BIN)/python benchmarks/timers.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/growth.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/routing.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/conversations.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/transport.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/let_go.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/observing.py
	@$(AS_INSTALLED) $(BIN)/python benchmarks/dashboard.py
	@$(MAKE) --no-print-directory bench-services

bench-services: $(INSTALLED)/.set-up ## measure services beside their peers, with a plot, and the monitor alone, in 25 minutes
	@$(PIP_INSTALL) --quiet --editable '.[bench]'
	@benchmarks/peers/mirror-maker/setup
	@benchmarks/peers/kafka-streams/setup
	@$(AS_INSTALLED) $(BIN)/python benchmarks/services.py --plot build/services.png
	@$(AS_INSTALLED) $(BIN)/python benchmarks/latency.py

bench-quick: $(INSTALLED)/.set-up ## compare two ratios with the committed ones, in under 3 minutes
	@benchmarks/peers/bare-loop/setup
	@$(AS_INSTALLED) $(BIN)/python benchmarks/quick.py

clean: ## remove everything that can be built again
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
