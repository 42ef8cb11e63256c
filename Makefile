# `make demo` and `make test` need a Python of at least 3.10 and make, and set up the rest in .venv.
# PYTHON=/path/to/python3 chooses the interpreter; ARGS="-k receipt" is handed to pytest.

PYTHON ?=
ARGS ?=
# Tests mostly wait, so two processes run for each core; WORKERS=0 runs them one after the other, for a debugger.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SIDE_BY_SIDE := -n $(WORKERS) --dist worksteal
# All tests of one kind of broker in one process, so that each is started once.
BY_BROKER := -n 3 --dist loadgroup
REAL := activemq,activemq5,artemis,rabbitmq3,rabbitmq4
NO_BROKERS := STOMPY_BROKERS_FROM=none
NEWEST := artemis,rabbitmq4
REQUIRED := STOMPY_REQUIRE_BROKERS=$(REAL)
# Files of scenarios; and those on some brokers, all of which must be there, by a transport.
scenarios = $(patsubst %,tests/scenarios/test_%.py,$(1))
scenarios_on = STOMPY_REQUIRE_BROKERS=$(1) $(PYTEST) -m broker $(BY_BROKER) --brokers=$(1) --transport=$(2) $(call scenarios,$(3))
# `__init__` defines the version.
DEFINED_BY := setup.py setup.cfg pyproject.toml stompy/__init__.py

# Compiled tests are kept from run to run, whatever the caller's shell says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo flights test simulate test-tools test-brokers test-transports test-gevent test-dropin test-browser test-pythons test-newest-python test-load compare \
	test-spark test-spark-oldest test-spark-release test-spark-brokers test-autobahn test-long test-long-client test-long-worker test-long-spark fuzz mutation \
	check-long images bench bench-page bench-instructions bench-spark dev lint format types conformance docs architecture audit coverage build check clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' Makefile
	@echo "make lint | format | types | architecture | audit | coverage | docs | build | dev | clean"
	@echo "bash .ci/run             everything that a change has to pass"

# One stamp for each group of requirements; a change of the metadata installs anew. Each asks for the environment by order only.
$(VENV)/.made: tools/make_venv
	@tools/make_venv $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.installed-%: $(DEFINED_BY) | $(VENV)/.made
	$(PIP_INSTALL) --editable . $(addprefix --group ,$(filter-out package,$*))
	@touch $@

# What stompy.compat stands in for, beside the newest release, which is among the requirements of the tests.
$(VENV)/.installed-stomp.py-%: | $(VENV)/.made
	$(PIP_INSTALL) --target $(VENV)/stomp.py-$* stomp.py==$*
	@touch $@

# Published packages, each in a folder of its own with the release of stomp.py that it asks for.
$(VENV)/.installed-published: tests/published/packages.py | $(VENV)/.installed-test
	$(BIN)/python -m tests.published.packages $(VENV)/published
	@touch $@

demo: $(VENV)/.installed-package ## each feature, shown on the embedded broker
	$(BIN)/stompy demo

# Without the real brokers, even where they could be had, and without the embedded one in their place: they take minutes.
test: $(VENV)/.installed-test $(VENV)/.installed-stomp.py-8.2.0 ## the tests (ARGS=... for pytest, WORKERS=0 for one after the other)
	$(NO_BROKERS) $(PYTEST) --brokers=embedded $(SIDE_BY_SIDE) --ignore tests/tools $(ARGS)

# Of what builds images, runs the gate and the like: for who changes those.
test-tools: $(VENV)/.installed-test ## the tests of tools/
	$(PYTEST) -n 2 tests/tools $(ARGS)

# SEEDS=1000000 for more; `.venv/bin/python -m tests.simulation.run --seed 4711` for one, with its trace.
SEEDS ?= 10000
simulate: $(VENV)/.installed-test ## programs, network and broker in a simulated world, whose cases a seed chooses
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS)

# One at a time, as they measure memory and volume.
test-load: $(VENV)/.installed-test ## tests of volume and memory
	$(NO_BROKERS) $(PYTEST) -m load $(ARGS)

# New random sequences of frames to each real broker and to its stand-in; needs docker and the images.
COMPARED ?= 150
compare: $(VENV)/.installed-test ## the stand-ins against the real brokers, by random sequences of frames
	$(BIN)/python -m tests.comparison.run --gate $(COMPARED) --workers 12 --show 0

# Images of the real brokers, for which no registry of images is needed.
images: ## images of real brokers, built on this machine
	tools/broker_images.py

# With docker: the official images where they can be pulled, else those of `make images`. None may be missing. The embedded
# broker as itself is left out, as `make test` has it.
test-brokers: $(VENV)/.installed-test ## the scenarios against real brokers in containers, and against the embedded one in their place
	home=$$(.ci/activemq) && $(REQUIRED) $(PYTEST) -m broker -k "not embedded" --activemq-home=$$home $(BY_BROKER) $(ARGS)
	env $$($(BIN)/python -m tests.support.local_brokers) STOMPY_REQUIRE_BROKERS=activemq,artemis,rabbitmq4 $(PYTEST) examples

# On the embedded broker all scenarios over TLS 1.3, Unix sockets and WebSocket; over TLS 1.2, with client certificates and over
# WebSocket in TLS those of how a session begins, carries bytes, waits and ends. On the real ones those of connecting, messages
# and outages, and by WebSocket those of acknowledging, receipts and transactions too.
PARTLY := tls12 mtls wss
test-transports: $(addprefix test-transport-,tls12 tls13 mtls unix ws wss) ## the scenarios over TLS, client certificates, Unix sockets and WebSocket
	$(call scenarios_on,$(REAL),ws,connecting messages)
	$(call scenarios_on,$(NEWEST),ws,settling receipts transactions outages)
	$(call scenarios_on,$(REAL),wss,connecting)
	$(call scenarios_on,$(REAL),tls12,connecting)
	$(call scenarios_on,$(REAL),mtls,connecting messages outages)

test-transport-%: $(VENV)/.installed-test
	STOMPY_REQUIRE_BROKERS=embedded $(PYTEST) -m broker --transport=$* --brokers=embedded $(SIDE_BY_SIDE) \
		$(if $(filter $*,$(PARTLY)),$(call scenarios,client closing connecting flow heartbeats messages outages),tests/scenarios) \
		-k embedded

# In a process that gevent has patched, with the broker in it; tests/scenarios/test_gevent.py has one outside.
GEVENT := STOMPY_REQUIRE_BROKERS=embedded $(BIN)/python -m gevent.monkey --module pytest -q -m broker -k embedded --brokers=embedded
test-gevent: $(VENV)/.installed-test ## scenarios in a process that gevent has patched
	$(GEVENT) $(call scenarios,connecting messages settling receipts transactions heartbeats outages) $(ARGS)
	$(GEVENT) --transport=tls13 $(call scenarios,connecting messages heartbeats outages)
	$(GEVENT) --transport=ws $(call scenarios,connecting messages heartbeats outages)
	$(PYTEST) $(call scenarios,gevent)

test-dropin: $(VENV)/.installed-test $(VENV)/.installed-published ## published packages on stomp.py and then on stompy.compat, on the embedded broker and ActiveMQ
	home=$$(.ci/activemq) && STOMPY_BROKERS_FROM=process STOMPY_REQUIRE_BROKERS=activemq \
		$(PYTEST) -n 3 --published=$(VENV)/published --activemq-home=$$home tests/published $(ARGS)

test-browser: $(VENV)/.installed-test ## the console, and the libraries of web pages, in Chromium; what editors on Pyright show
	libraries=$$(.ci/browser) && $(PYTEST) tests/browser tests/documentation/test_editors.py --browser-libraries=$$libraries $(ARGS)

test-autobahn: $(VENV)/.installed-test ## the Autobahn test suite of WebSocket against both ends of stompy's (needs Python 2.7)
	suite=$$(.ci/autobahn) && $(PYTEST) tests/autobahn --autobahn=$$suite $(ARGS)

# Not what is the same on every Python: the pages, the layout, the tools, the tests of the tests, the cost of parsing and of the
# broker's work, the simulated world, what waits for its retry by the thousand, and the long sweeps over each byte or value.
test-pythons: $(VENV)/.installed-test ## what depends on the interpreter, on the oldest and the newest Python here
	$(NO_BROKERS) tools/test_pythons $(VENV) -m "not broker" $(SIDE_BY_SIDE) --ignore tests/tools \
		--ignore tests/documentation --ignore tests/conformance --ignore tests/test_architecture.py \
		--ignore tests/property --ignore tests/fuzz --ignore-glob 'tests/scenarios/test_every_byte*' \
		--ignore tests/test_layout.py --ignore tests/test_conftest.py --ignore tests/simulation --ignore tests/broker/test_work.py \
		--ignore tests/worker/test_parking.py --ignore tests/hostile/test_injection.py \
		--ignore tests/scenarios/test_outbox_oversized.py --ignore tests/hostile/test_memory.py $(ARGS)

NEWEST_PYTHON ?= 3.15
test-newest-python: ## the same on a newer Python than this machine has, from Debian (NEWEST_PYTHON=3.14 for that one)
	folder=$$(tools/debian_python $(NEWEST_PYTHON)) && PATH=$$folder:$$PATH $(MAKE) --no-print-directory test-pythons

# The data pipeline: Spark takes half a gigabyte and ten seconds to start, so it has an environment and a command of its own.
# SPARK chooses the release (SPARK='pyspark==4.1.*'), SPARK_VENV another place for it.
SPARK ?= pyspark
SPARK_VENV ?= .venv-spark
SPARK_GROUPS ?= spark-test examples
SPARK_REQUIRED ?= all
SPARK_TESTS ?= tests/spark tests/cli/test_spool.py tests/cli/test_spark.py::test_a_replay_reports_one_line_and_needs_no_spark \
	tests/documentation tests/examples/test_spark_flights.py
# A test's Java is short-lived: it begins with the classes loaded, compiles in a hurry, and says on stderr what it has to say.
SPARK_JAVA = JAVA_HOME=$$(tools/spark_java $(SPARK_VENV))
SPARK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr
SPARK_ARCHIVE = $(abspath $(SPARK_VENV))/spark.jsa
SPARK_PYTEST = $(SPARK_JAVA) JAVA_TOOL_OPTIONS="$(SPARK_JAVA_OPTIONS)" \
	$(SPARK_VENV)/bin/python -m pytest -q --timeout 180 --require-spark=$(SPARK_REQUIRED)
test-spark test-spark-brokers test-long-spark: private SPARK_JAVA_OPTIONS += -XX:SharedArchiveFile=$(SPARK_ARCHIVE)

# What is not imported is not compiled.
$(SPARK_VENV)/.installed: setup.cfg pyproject.toml
	@tools/make_venv $(SPARK_VENV) $(PYTHON)
	$(SPARK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--editable ".[spark]" $(addprefix --group ,$(SPARK_GROUPS)) "$(SPARK)"
	@touch $@

# Pays for itself where Java is started again and again. Java goes on writing it while the tests begin.
$(SPARK_ARCHIVE): $(SPARK_VENV)/.installed
	@rm -f $@
	@$(SPARK_JAVA) JAVA_TOOL_OPTIONS="$(SPARK_JAVA_OPTIONS)" $(SPARK_VENV)/bin/python tools/spark_archive.py $@

# What starts a Java of its own is one group (`java`), so that it is one at a time: Spark gives a new Python ten seconds.
test-spark: $(SPARK_VENV)/.installed $(SPARK_ARCHIVE) ## the tests of the data pipeline, in an environment of their own (.venv-spark)
	home=$$(.ci/activemq) && STOMPY_REQUIRE_BROKERS=activemq $(SPARK_PYTEST) --activemq-home=$$home \
		-n 3 --dist loadgroup $(SPARK_TESTS) --ignore tests/spark/brokers --ignore tests/spark/queries/test_iceberg.py $(ARGS)

test-spark-brokers: $(SPARK_VENV)/.installed ## the data pipeline against real brokers
	STOMPY_REQUIRE_BROKERS=activemq,artemis,rabbitmq4 $(SPARK_PYTEST) tests/spark/brokers $(ARGS)

# What depends on the release: the session, the options, the offsets; tables and streams, read and written.
test-spark-oldest: ## those that depend on Spark, on the oldest release that is supported
	.ci/iceberg
	$(MAKE) --no-print-directory test-spark-release SPARK='pyspark==4.1.*' SPARK_VENV=.venv-spark-4.1 SPARK_GROUPS=test \
		SPARK_REQUIRED=pyarrow,pyspark,iceberg SPARK_TESTS="$(addprefix tests/spark/,test_session.py test_datasource.py \
		source/test_stream.py sink/test_writer.py queries/test_iceberg.py)"

test-spark-release: $(SPARK_VENV)/.installed
	$(SPARK_PYTEST) $(SPARK_TESTS) $(ARGS)

# What takes too long for every run; the gate looks at the result that is kept.
test-long: ## what takes an hour or more; its result is kept in .ci/gate-long.json
	tools/gate.py --long

check-long:
	tools/gate.py --check-long

test-long-client: $(VENV)/.installed-test
	$(NO_BROKERS) $(PYTEST) --long -m long -n 2 tests/scenarios tests/stress $(ARGS)
	$(REQUIRED) $(PYTEST) --long -m long --brokers=$(REAL) $(BY_BROKER) $(call scenarios,all_or_nothing) $(ARGS)
	$(NO_BROKERS) $(PYTEST) --long -n 2 --timeout 900 $(call scenarios,signals) tests/property tests/hostile/test_injection.py \
		tests/examples/test_ten.py $(ARGS)

# Kills of workers on every broker, and ten million messages.
test-long-worker: $(VENV)/.installed-test
	$(REQUIRED) $(PYTEST) --long -m long -n 2 tests/worker $(ARGS)

# ARGS="-k cluster_killed --minutes 15" for a quarter of an hour of kills on a cluster alone.
test-long-spark: $(SPARK_VENV)/.installed
	home=$$(.ci/activemq) && STOMPY_REQUIRE_BROKERS=activemq,rabbitmq4 $(SPARK_PYTEST) --activemq-home=$$home --long -m long \
		tests/spark tests/documentation tests/examples $(ARGS)

# With coverage guidance, by a Python that atheris has wheels for.
FUZZ_PYTHON ?= python3.11
FUZZ_SECONDS ?= 600
fuzz:
	tools/fuzz .venv-fuzz $(FUZZ_PYTHON) $(FUZZ_SECONDS)

mutation: $(VENV)/.installed-test
	$(BIN)/python -m tests.mutation.run frames protocol

# The worked example: pictures and tables in flights-out/. ARGS="--flights 10000" for fewer of them.
BROKER ?= embedded
flights: $(SPARK_VENV)/.installed ## a year of flights through a queue and Spark (BROKER=activemq for a real broker)
	JAVA_HOME=$$(tools/spark_java $(SPARK_VENV)) \
		$(SPARK_VENV)/bin/python examples/spark/flights.py --broker $(BROKER) $(ARGS)

# The clients that are measured have an environment of their own (.venv-bench); BENCH_VENV chooses another one.
BENCH_VENV ?= .venv-bench

$(BENCH_VENV)/.installed: setup.cfg pyproject.toml
	@tools/make_venv $(BENCH_VENV) $(PYTHON)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --group bench
	@touch $@

# Where Go is, the Go client is measured too.
bench: $(BENCH_VENV)/.installed ## what a message costs the client, beside other clients (ARGS="--rows send,receive" for some rows)
	@! command -v go >/dev/null || (cd benchmarks/clients/go_stomp && go build -o $(abspath build)/bench-go-stomp .)
	$(BENCH_VENV)/bin/python -m benchmarks.run $(ARGS)

bench-page: bench ## the same, every row, then write docs/topics/performance.md and its chart (on a quiet machine)
	$(BENCH_VENV)/bin/python -m benchmarks.page

# What no neighbour disturbs: ARGS=--record keeps the figures as the limits.
bench-instructions: $(BENCH_VENV)/.installed ## the instructions of a message: fails if a row has 3 % more than recorded (needs valgrind)
	$(BENCH_VENV)/bin/python -m benchmarks.instructions $(ARGS)

bench-spark: $(SPARK_VENV)/.installed ## what the data pipeline costs on this machine
	JAVA_HOME=$$(tools/spark_java $(SPARK_VENV)) $(SPARK_VENV)/bin/python -m benchmarks.spark $(ARGS)

dev: $(VENV)/.installed-dev

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/words.py

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
	$(PYTEST) tests/test_architecture.py tests/test_layout.py

coverage: dev
	$(NO_BROKERS) $(PYTEST) $(SIDE_BY_SIDE) -p no:stompy --cov --cov-report=term-missing $(ARGS)

# The page that says which test holds which row of the specifications, and the drawing of a session's states.
conformance: dev
	$(BIN)/python -m tests.conformance.generate --check
	$(BIN)/python -m tests.conformance.states --check

docs: conformance
	$(BIN)/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# The built sdist is unpacked and the wheel made from it, so that the sdist is known to be whole; its tests run on what each installs.
build: dev
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python tools/check_dists.py dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/check_installed.py dist/*

check: lint types test docs build ## lint, types, tests, docs, build

clean:
	rm -rf .venv* build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
