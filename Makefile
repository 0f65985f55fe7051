# `make demo` and `make test` are all a newcomer needs, on a machine with Python 3.11 to 3.13, make
# and git. Each makes its own environment in `.venv` if there is none, and keeps it as long as
# constraints.txt and pyproject.toml do not change it.
#
#   PYTHON=/path/to/python3.12   another interpreter than the first that .ci/find_python.sh finds
#   VENV=/elsewhere              another place for the environment
#   WORKERS=4                    how many tests run at once
#   ARGS="-k diff"               more arguments for pytest, or for what the demo runs
#   FOLDER=/data/kafka           where `make kafka` keeps its data
#   PORT=19092                   the port of 127.0.0.1 where it answers; the next one is taken too

PYTHON ?= $(shell .ci/find_python.sh)
VENV ?= .venv
WORKERS ?= 2
ARGS ?=
FOLDER ?= kafka-data
PORT ?= 9092

RUN = $(VENV)/bin/python
# Only the checkout's own environment holds its command; one that is kept elsewhere may serve many.
EDITABLE = $(if $(filter .venv,$(VENV)),--editable)
SECOND = $(VENV)-second
BENCH = $(VENV)-bench

.PHONY: help demo demo-train kafka kafka-stop test test-full check format bench clean interpreter environment torch-environment second-environment

help:
	@echo "make demo       the main job on the embedded default, in under a minute"
	@echo "make demo-train a training that is killed again and again ends as one never killed; installs torch"
	@echo "make kafka      a Kafka broker on this machine, until Ctrl-C"
	@echo "make test       lint, types and the tests"
	@echo "make test-full  the tests with every long property and kill test whole"
	@echo "make check      lint and types alone"
	@echo "make format     rewrite the sources in the house format"
	@echo "make bench      the figures: bar, peer, ours"
	@echo "make clean      remove the environments and caches (never your data)"

demo: environment
	@$(RUN) -m replay.cli demo $(ARGS)

demo-train: torch-environment
	@PYTHONPATH="$(CURDIR)" $(RUN) examples/kill_training.py $(ARGS)

# Needs Java 17 or later and Maven, else Docker; see docker/kafka-local/README.md.
kafka: interpreter
	@"$(PYTHON)" docker/kafka-local/run.py start --folder "$(FOLDER)" --port $(PORT)

kafka-stop: interpreter
	@"$(PYTHON)" docker/kafka-local/run.py stop --folder "$(FOLDER)"

test: torch-environment check second-environment
	$(RUN) -m pytest -n $(WORKERS) $(ARGS)

test-full: torch-environment check second-environment
	STEPLOG_FULL=1 $(RUN) -m pytest -n $(WORKERS) --durations=25 $(ARGS)

check: environment
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: environment
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: interpreter
	@"$(PYTHON)" .ci/environment.py $(BENCH) --extras bench,torch
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

environment: interpreter
	@"$(PYTHON)" .ci/environment.py $(VENV) --extras test --or-with torch $(EDITABLE)

# torch is large (several GB, minutes): only the tests wait for it.
torch-environment: interpreter
	@"$(PYTHON)" .ci/environment.py $(VENV) --extras test,torch $(EDITABLE)

# Some tests compare what two Python versions make of the same values. Where there is no second
# one, or its packages cannot be had, they are skipped, and the end of the run says so.
second-environment: environment
	@if second=$$(.ci/find_python.sh --other-than "$$($(RUN) -c 'import platform; print(".".join(platform.python_version_tuple()[:2]))')"); \
	then "$$second" .ci/environment.py $(SECOND) --extras numpy || echo "no second environment: see above"; \
	else echo "no second Python version here: the tests that compare two are skipped"; fi

interpreter:
	@test -n "$(PYTHON)"

clean:
	rm -rf .venv .venv.lock .venv-second .venv-second.lock .venv-bench .venv-bench.lock
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests find the second interpreter by this name; tests/support/second_python.py tries it out.
export STEPLOG_SECOND_PYTHON = $(wildcard $(abspath $(SECOND))/bin/python)
