# `make demo` and `make test` need a Python of at least 3.10 and make, and set up the rest in .venv.
# PYTHON=/path/to/python3 chooses the interpreter; ARGS="-k receipt" is handed to pytest.

PYTHON ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The version stands in the door.
DEFINED_BY := setup.cfg pyproject.toml stompy/__init__.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo flights test test-load test-brokers test-spark bench-spark dev lint format types conformance docs architecture audit coverage build check clean

help:
	@echo "make demo          the tour on the embedded broker"
	@echo "make flights       a year of flights through a queue and Spark (BROKER=activemq for a real broker)"
	@echo "make test          the tests"
	@echo "make test-brokers  the scenarios against real brokers in containers"
	@echo "make test-load     the tests that take minutes"
	@echo "make test-spark    the tests of the data pipeline, in an environment of their own (.venv-spark)"
	@echo "make bench-spark   what the data pipeline costs on this machine"
	@echo "make check         lint, types, architecture, tests, docs, build"
	@echo "make lint | format | types | architecture | audit | coverage | docs | build | dev | clean"

# One stamp for each set of extras; a change of the metadata installs anew. Each asks for the environment by order only.
$(VENV)/.made:
	@tools/make_venv $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.installed-package: $(DEFINED_BY) | $(VENV)/.made
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: $(DEFINED_BY) | $(VENV)/.made
	$(PIP_INSTALL) --editable ".[test]"
	@touch $@

$(VENV)/.installed-dev: $(DEFINED_BY) | $(VENV)/.made
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@

demo: $(VENV)/.installed-package
	$(BIN)/stompy demo

# Without the real brokers, even where they could be had: they take minutes.
test: $(VENV)/.installed-test
	STOMPY_BROKERS_FROM=none $(BIN)/python -m pytest $(ARGS)

# With docker: the official images where they can be pulled, else those of tools/broker_images.py. None may be missing.
test-brokers: $(VENV)/.installed-test
	STOMPY_REQUIRE_BROKERS=$${STOMPY_REQUIRE_BROKERS:-all} $(BIN)/python -m pytest -m broker $(ARGS)
	STOMPY_REQUIRE_BROKERS=$${STOMPY_REQUIRE_BROKERS:-all} $(BIN)/python -m pytest -q examples

# What takes minutes: hundreds of thousands of messages through the embedded broker.
test-load: $(VENV)/.installed-test
	STOMPY_LOAD=1 $(BIN)/python -m pytest -m load $(ARGS)

# The data pipeline: Spark takes half a gigabyte and ten seconds to start, so it has an environment and a command of its own.
# SPARK chooses the release (SPARK='pyspark==4.1.*'), SPARK_VENV another place for it.
SPARK ?= pyspark
SPARK_VENV ?= .venv-spark
SPARK_EXTRAS ?= spark-test,examples
SPARK_TESTS ?= tests/spark tests/cli/test_spool.py tests/documentation tests/examples/test_spark_flights.py

$(SPARK_VENV)/.installed: setup.cfg
	@tools/make_venv $(SPARK_VENV) $(PYTHON)
	$(SPARK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$(SPARK_EXTRAS)]" "$(SPARK)"
	@touch $@

test-spark: $(SPARK_VENV)/.installed
	JAVA_HOME=$$(tools/spark_java $(SPARK_VENV)) STOMPY_REQUIRE_SPARK=1 \
		$(SPARK_VENV)/bin/python -m pytest --timeout 180 $(SPARK_TESTS) $(ARGS)

# The worked example: pictures and tables in flights-out/. ARGS="--flights 10000" for fewer of them.
BROKER ?= embedded
flights: $(SPARK_VENV)/.installed
	JAVA_HOME=$$(tools/spark_java $(SPARK_VENV)) \
		$(SPARK_VENV)/bin/python examples/spark/flights.py --broker $(BROKER) $(ARGS)

bench-spark: $(SPARK_VENV)/.installed
	JAVA_HOME=$$(tools/spark_java $(SPARK_VENV)) $(SPARK_VENV)/bin/python benchmarks/spark.py $(ARGS)

dev: $(VENV)/.installed-dev

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: dev
	$(BIN)/mypy

# Known vulnerabilities in the requirements, where their list can be reached; and the code by rules of security.
audit: dev
	$(BIN)/ruff check --select S --ignore S101 stompy tools examples docs
	$(BIN)/python tools/audit.py

architecture: dev
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_layout.py

coverage: dev
	STOMPY_BROKERS_FROM=none $(BIN)/python -m pytest -p no:stompy --cov --cov-report=term-missing $(ARGS)

# The page that says which test holds which row of the specifications, and the drawing of a session's states.
conformance: dev
	$(BIN)/python -m tests.conformance.generate --check
	$(BIN)/python -m tests.conformance.states --check

docs: conformance
	$(BIN)/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# The built sdist is unpacked and the wheel made from it, so that the sdist is known to be whole.
build: dev
	rm -rf build dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python tools/check_dists.py dist

check: lint types architecture test docs build

clean:
	rm -rf $(VENV) $(SPARK_VENV) .venv-spark-4.1 build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
