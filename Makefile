# Three commands matter: `make demo`, `make quick` and `make test`. Each sets everything up in .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
INSTALL := .ci/install

# Tests start thousands of processes, which must not compile what they import each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-pure test-rest test-servers test-commands test-random test-spark-databases test-spark-sources test-spark-sessions test-lakehouse test-delta test-own-delta test-iceberg test-lower-bounds test-lower-bounds-of-jobs test-newest-python test-python-versions test-spark-versions test-snippets lint format bench docs sbom scale soak campaigns wheel setup clean

demo: setup
	@$(BIN)/python -m emulator.demo

# Spark's tests share a session in each of three lanes, which run beside each other and the rest. They print what they found when they have
# ended.
DATABASES := tests/integration/bigquery tests/spark_sink/sinks/bigquery tests/spark_sink/sinks/spanner
SPARK := tests/spark_sink tests/integration/bigquery

# ALSO="test-iceberg test-own-delta test-lower-bounds test-newest-python" runs those beside them, as CI does.
# RETRY=1 runs what failed once more when nothing else runs, as CI does, and names what then passed: each is a fault to be mended.
# LONG=1 runs the tests that are marked long, too: an hour instead of a third of one.
# COVERAGE=1 measures branch coverage and prints a summary; it takes a third longer. Not traced are tests that measure processor time, that are
# bound by it (many random examples of code that other tests cover), or that run commands in processes of their own.
COMMANDS := tests/benchmarks tests/faults tests/integration tests/packaging
RANDOM := tests/peers tests/property tests/soak tests/connector/spool/test_summaries.py
SERVERS := tests/emulator tests/breakages
SOURCES := tests/spark_sink/sources tests/spark_sink/reading/windows tests/spark_sink/reading/backfill tests/spark_sink/reading/repairs \
  tests/spark_sink/sinks/files
SNIPPETS := $(VENV)/snippets
SHOWN := $(addprefix tests/docs/,test_own_job.py test_quickstart.py test_snippets.py) tests/connector/api/test_embedding.py

ifdef LONG
export PYTEST_ADDOPTS := --run-long
endif

ifdef COVERAGE
export COVERAGE_FILE := $(abspath $(VENV))/coverage/data
PYTEST := -m coverage run -m pytest
else
PYTEST := -m pytest
endif

# So many at a time keep two cores busy; with more, each only waits longer. The longest start first, so that none is left to run alone. What
# only some of them need is made beside the others.
AT_A_TIME := 4
LANES := lint test-rest test-spark-databases test-random $(ALSO) test-spark-sessions test-spark-sources test-commands test-snippets \
  test-servers
PASSED := $(VENV)/passed

# About a minute: what a change meets first. Tests of the pure parts need neither Java nor an emulator.
PURE := tests/ci tests/connector/core tests/connector/spanner/decoding tests/connector/envelope tests/connector/proof/verify tests/emulator/scenario tests/house

quick: setup
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target lint test-pure

test-pure:
	@$(BIN)/python -m pytest -q -m "not spark and not emulator and not container" $(PURE)

# A failed lane ends no other one, so that one run shows every failure. The last lines name the tests and the lanes that have failed.
test: setup
	@rm -rf $(VENV)/coverage $(PASSED) $(VENV)/test-*.log $(VENV)/first $(CACHES)
	@$(MAKE) --no-print-directory --keep-going --jobs=$(AT_A_TIME) $(LANES) || true
	@$(if $(RETRY),$(FAILED_ALONE))
	@failed=; for lane in $(LANES); do \
	    [ -e $(PASSED)/$$lane ] || { failed="$$failed $$lane"; grep -hsE '^(FAILED|ERROR) ' $(VENV)/$$lane.log >&2; }; \
	  done; \
	  [ -z "$$failed" ] || { echo "Failed:$$failed. What each printed is above; \`make LANE\` runs one alone." >&2; exit 1; }
	@$(if $(COVERAGE),$(BIN)/python .ci/coverage_summary.py)

# Each lane of pytest remembers which tests have failed.
CACHES := $(VENV)/caches
CACHE = -o cache_dir=$(abspath $(CACHES))/$@ $(AGAIN)

# Runs the failed tests of each failed lane alone, and a lane whole that did not get as far as naming them.
FAILED_ALONE = mkdir -p $(VENV)/first; for lane in $(LANES); do [ -e $(PASSED)/$$lane ] || { \
    cp $(VENV)/$$lane.log $(VENV)/first/ 2>/dev/null; echo "Once more, alone: $$lane"; \
    $(MAKE) --no-print-directory $$lane AGAIN=--last-failed && { \
      echo "Failed beside the others, and passed alone, in $$lane:" >&2; \
      grep -hsE '^(FAILED|ERROR) ' $(VENV)/first/$$lane.log >&2; }; }; done; true

# Ends a lane's recipe.
PASS = mkdir -p $(PASSED) && touch $(PASSED)/$@

# Follows a lane's command: prints what it printed when it has ended.
LATER = >$(VENV)/$@.log 2>&1; code=$$?; cat $(VENV)/$@.log; [ $$code = 0 ] && $(PASS) || exit $$code

# Spark starts twice as fast with its classes in an archive.
$(filter test-spark-% test-commands test-snippets,$(LANES)): | $(VENV)/spark-classes.jsa

$(VENV)/spark-classes.jsa: $(VENV)/.installed tests/java.py
	@$(BIN)/python -m tests.java

test-rest:
	@rm -f $(PASSED)/$@
	@{ $(BIN)/python $(PYTEST) $(CACHE) $(addprefix --ignore=,$(SPARK) $(COMMANDS) $(RANDOM) $(SERVERS) $(SHOWN)) && $(PASS); } 2>&1 | tee $(VENV)/$@.log
	@[ -e $(PASSED)/$@ ]

test-servers:
	@$(BIN)/python $(PYTEST) $(CACHE) $(SERVERS) $(LATER)

test-spark-databases:
	@$(BIN)/python $(PYTEST) $(CACHE) $(DATABASES) $(LATER)

test-spark-sources:
	@$(BIN)/python $(PYTEST) $(CACHE) $(SOURCES) $(LATER)

test-spark-sessions:
	@$(BIN)/python $(PYTEST) $(CACHE) $(addprefix --ignore=,$(DATABASES) $(SOURCES)) tests/spark_sink $(LATER)

test-commands:
	@$(BIN)/python -m pytest $(CACHE) $(addprefix --ignore=,$(SPARK)) $(COMMANDS) $(LATER)

test-random:
	@$(BIN)/python -m pytest $(CACHE) $(RANDOM) $(LATER)

LEAKS_OF_OLD_SPARK := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

# Delta and Iceberg, on the newest PySpark that both have a library for; Spark takes the libraries from Maven Central. Parquet is tested with
# the rest, on the newest PySpark. All but PySpark is taken from the tests' own environment. DuckDB reads the tables, too; its extensions
# come from PyPI rather than from its own server.
LAKEHOUSE := $(VENV)/lakehouse

test-lakehouse: WHOLE := --run-slow
test-lakehouse: test-delta test-iceberg

test-delta: $(LAKEHOUSE)/.installed
	@$(LAKEHOUSE)/bin/python -m pytest $(WHOLE) $(CACHE) $(LEAKS_OF_OLD_SPARK) -k "delta and not parquet" tests/spark_sink/sinks/tables $(LATER)

# CI's part of test-delta: Delta's own statements and files. A statement of Delta takes three times as long as Iceberg's: what is one code for both
# formats, such as cuts, keys, sessions, Spark Connect, what is left out, repaired or kept as a history, is shown there with Iceberg alone.
ONE_CODE := campaign $(addprefix cuts/test_,listing.py transfers.py) history rejected repairs \
  $(addprefix test_,$(addsuffix .py,appending corners keys kept_spools restored_spools sessions stopped_tables))
SHOWN_WITH_ICEBERG := connect/test_connect.py::test_tables_are_merged_through_spark_connect_each_epoch_once \
  $(addprefix cuts/test_as_of.py::test_,a_cut_whose_version_was_removed_is_refused_in_a_line_and_the_newest_is_read \
    cuts_of_several_sinks_are_not_mixed cuts_that_are_older_than_they_are_kept_are_removed \
    the_newest_cut_at_or_before_a_timestamp_is_read_to_the_nanosecond \
    small_files_are_made_one_though_each_process_publishes_but_once) \
  $(addprefix maintenance/test_tables.py::test_,a_table_says_who_has_created_it versions_go_and_the_last_epoch_stays) \
  names/test_own_names.py::test_a_table_of_an_older_version_is_carried_on_under_its_names[delta-merge] \
  $(addprefix test_merging.py::test_,a_backfill_fills_what_changes_did_not_name_and_brings_no_deleted_row_back \
    deleted_rows_are_kept_with_their_last_values_if_asked)

test-own-delta: $(LAKEHOUSE)/.installed
	@$(LAKEHOUSE)/bin/python -m pytest $(CACHE) $(LEAKS_OF_OLD_SPARK) -k "delta and not parquet" \
	  $(addprefix --ignore=tests/spark_sink/sinks/tables/,$(ONE_CODE)) \
	  $(addprefix --deselect='tests/spark_sink/sinks/tables/,$(addsuffix ',$(SHOWN_WITH_ICEBERG))) tests/spark_sink/sinks/tables $(LATER)

test-iceberg: $(LAKEHOUSE)/.installed
	@$(LAKEHOUSE)/bin/python -m pytest $(WHOLE) $(CACHE) $(LEAKS_OF_OLD_SPARK) -k "not delta and not parquet" tests/spark_sink/sinks/tables $(LATER)

$(LAKEHOUSE)/.installed: $(VENV)/.installed
	@echo "Installing PySpark 4.1 into $(LAKEHOUSE)..."
	@$(PYTHON) -m venv --clear $(LAKEHOUSE)
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" >"$$($(LAKEHOUSE)/bin/python -c "$$packages")/tests.pth"
	@$(INSTALL) $(LAKEHOUSE)/bin/python "pyspark==4.1.*" \
	  $(addsuffix ==1.5.5,duckdb duckdb-extensions duckdb-extension-avro duckdb-extension-delta duckdb-extension-iceberg)
	@$(LAKEHOUSE)/bin/python -m tests.lake_libraries >$(LAKEHOUSE)/libraries.log 2>&1 || { tail -20 $(LAKEHOUSE)/libraries.log; exit 1; }
	@touch $@

# The oldest versions that pyproject.toml allows, in an environment of their own: what calls the libraries, and little else.
# Old libraries warn of what they will end; only here a warning is no error.
OLDEST := $(VENV)/oldest
CALLERS := $(addprefix tests/connector/,$(addsuffix .py,check/test_check cli/test_dead_letters_command envelope/test_events envelope/test_opencdc \
    reader/test_change_stream spanner/decoding/test_chunks spanner/decoding/test_walk spanner/snapshot/test_reading \
    spanner/snapshot/test_row_block spanner/test_transport spool/storage/test_gcs spool/storage/test_storage_contract \
    telemetry/test_server test_config)) tests/emulator/bigquery tests/emulator/official/test_container.py \
  $(addprefix tests/spark_sink/,$(addsuffix .py,encoding/test_avro sinks/bigquery/deliveries/test_errors sinks/bigquery/rows/test_builder \
    sinks/bigquery/tables/test_names sinks/files/test_writer sinks/shared/test_gcs_destination sources/changes/test_batch \
    sources/changes/test_old_spark))

# A second environment has what jobs that call no Spanner may have older, and the rest of the first; only what such jobs import is run there. Not in CI.
OLDEST_JOBS := $(OLDEST)/jobs
JOB_CALLERS := tests/emulator/bigquery $(filter tests/connector/spool/% tests/connector/envelope/% tests/spark_sink/%,$(CALLERS))
# Random examples of pure code show little of a library's version or Python's.
NOT_RANDOM := -m "not hypothesis"
OLD_WARNINGS := -W ignore::DeprecationWarning -W ignore::FutureWarning $(LEAKS_OF_OLD_SPARK)

test-lower-bounds: $(OLDEST)/.installed
	@$(OLDEST)/bin/python -m pytest $(CACHE) $(OLD_WARNINGS) $(NOT_RANDOM) $(CALLERS) $(LATER)

test-lower-bounds-of-jobs: $(OLDEST_JOBS)/.installed
	@$(OLDEST_JOBS)/bin/python -m pytest --run-long $(CACHE) $(OLD_WARNINGS) $(JOB_CALLERS) $(LATER)

$(OLDEST)/.installed: pyproject.toml .ci/lower_bounds.py
	@echo "Installing the oldest versions into $(OLDEST)..."
	@$(PYTHON) -m venv --clear $(OLDEST)
	@$(PYTHON) .ci/lower_bounds.py >$(OLDEST)/requirements.txt
	@$(INSTALL) $(OLDEST)/bin/python --requirement $(OLDEST)/requirements.txt --editable .
	@touch $@

$(OLDEST_JOBS)/.installed: $(OLDEST)/.installed
	@$(PYTHON) -m venv --clear $(OLDEST_JOBS)
	@$(PYTHON) .ci/lower_bounds.py --jobs >$(OLDEST_JOBS)/requirements.txt
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  echo "import site; site.addsitedir('$$($(OLDEST)/bin/python -c "$$packages")')" >"$$($(OLDEST_JOBS)/bin/python -c "$$packages")/tests.pth"
	@$(INSTALL) $(OLDEST_JOBS)/bin/python --no-deps --requirement $(OLDEST_JOBS)/requirements.txt
	@touch $@

# The purest tests on the newest Python that is found here, if it is newer than PYTHON; in an environment of its own with little more than
# these need.
NEWEST := $(VENV)/newest

test-newest-python: $(NEWEST)/.installed
	@if [ -e $(NEWEST)/bin/python ]; then $(NEWEST)/bin/python --version; \
	    $(NEWEST)/bin/python -m pytest $(CACHE) $(NOT_RANDOM) tests/connector/core tests/connector/envelope tests/connector/spanner/decoding; \
	  else echo "Skipped: no Python is found that is newer than $$($(PYTHON) --version) and named in pyproject.toml's classifiers."; fi $(LATER)

$(NEWEST)/.installed: pyproject.toml .ci/pythons.py
	@rm -rf $(NEWEST) && mkdir -p $(NEWEST)
	@python=$$($(PYTHON) .ci/pythons.py newest); [ -z "$$python" ] || { \
	  echo "Installing what the purest tests need into $(NEWEST), with $$python..."; $$python -m venv --clear $(NEWEST); \
	  $(INSTALL) $(NEWEST)/bin/python --editable ".[reader,avro,gcs]" hypothesis proto-plus pytest pytest-timeout && \
	  touch $@; }

# The pure tests, those on the emulator, and the demo, on the oldest and the newest Python that are found here: PYTHONS="PATH..." for others.
PYTHONS ?= $(shell $(PYTHON) .ci/pythons.py ends)

test-python-versions: setup
	@set -e; for python in $(PYTHONS); do \
	  venv=$(VENV)/python-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  [ -e $$venv/.installed ] || { echo "Installing into $$venv..."; $$python -m venv --clear $$venv; \
	    $(INSTALL) $$venv/bin/python --editable ".[dev]"; \
	    touch $$venv/.installed; }; \
	  $$venv/bin/python --version; \
	  $$venv/bin/python -m pytest --run-long -m "not spark and not container" $(or $(TESTS),$(PURE) tests/emulator $(wildcard tests/integration/test_*.py)); \
	  $$venv/bin/python -m emulator.demo --output $(VENV)/demo-output; \
	done

# The source's tests on every PySpark that it supports: VERSIONS="4.1" for one. CI runs the newest, and parts on the oldest.
VERSIONS ?= 4.0 4.1 4.2 4.3

test-spark-versions: setup
	@set -e; for version in $(VERSIONS); do \
	  venv=$(VENV)/pyspark-$$version; \
	  [ -e $$venv/.installed ] || { echo "Installing PySpark $$version..."; $(PYTHON) -m venv --clear $$venv; \
	    $(INSTALL) $$venv/bin/python --editable ".[dev]" "pyspark==$$version.*"; \
	    touch $$venv/.installed; }; \
	  $$venv/bin/python -c 'import pyspark; print("PySpark", pyspark.__version__)'; \
	  $$venv/bin/python -m pytest --run-long $(LEAKS_OF_OLD_SPARK) $(or $(TESTS),tests/spark_sink/sources/changes); \
	done

# What README and docs show, run where there is only what they say is to be installed: the wheels, and the extra `spark`.
test-snippets: wheel
	@$(PYTHON) -m venv --clear $(SNIPPETS)
	@$(INSTALL) $(SNIPPETS)/bin/python "$$(ls dist/spanner_cdc_spark-*.whl)[reader,spark]" dist/spanner_cdc_spark_testing-*.whl
	@SPANNER_CDC_SNIPPETS=$(SNIPPETS) $(BIN)/python -m pytest $(CACHE) $(SHOWN) $(LATER)

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python .ci/commit_subjects.py && $(PASS)

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# SHORT=1 for little more than a minute; ONLY=wire-to-arrow for one of them.
bench: setup $(VENV)/.bench
	@$(BIN)/python -m benchmarks $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY))

# The pages of docs/ as a site in build/docs; a link that leads nowhere, or a table that a phone or a desktop would cut, fails it. Those made from
# the code are written again first.
docs: setup
	@$(BIN)/python -m tests.docs.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python -m tests.docs.site.widths build/docs

# MINUTES=10, or SEEDS=200: scenarios with faults and kills, held against the truth. A failure names its seed.
soak: setup
	@$(BIN)/python -m tests.soak $(if $(SEEDS),--seeds $(SEEDS),--minutes $(or $(MINUTES),10))

# The slow and the long tests, those of lakehouse tables among them, and all random examples, of which `make test` draws a share.
campaigns: export PROPERTY_SHARE := 1
campaigns: setup $(LAKEHOUSE)/.installed
	@$(BIN)/python -m pytest -m "slow or long or hypothesis" --run-slow tests
	@$(BIN)/python -m pytest -m "not slow and not hypothesis" tests/property
	@$(LAKEHOUSE)/bin/python -m pytest $(LEAKS_OF_OLD_SPARK) -m "slow or long" -k "not parquet" --run-slow tests/spark_sink/sinks/tables

# Both distributions, below dist/: the service, and the scripted server for users' tests. An old build/ would be packed too.
# PROJECT_REPOSITORY=https://... and PROJECT_DOCUMENTATION=https://... are the links that an index shows (setup.py).
wheel: setup
	@rm -rf build testing/build dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist . ./testing
	@ls -1 dist

# What the wheel installs with all extras, as a CycloneDX document. An image has Debian's packages beside it: its own scanner lists those.
sbom: wheel
	@$(PYTHON) -m venv --clear $(VENV)/sbom
	@$(INSTALL) $(VENV)/sbom/bin/python "$$(ls dist/spanner_cdc_spark-*.whl)[all]"
	@$(VENV)/sbom/bin/python -m pip uninstall --quiet --yes pip setuptools
	@$(BIN)/cyclonedx-py environment --output-reproducible --output-file dist/sbom.json $(VENV)/sbom/bin/python
	@ls -1 dist/sbom.json

scale: setup
	@$(BIN)/python -m benchmarks.scale

setup: $(VENV)/.installed
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || \
	  { echo "Java 17 is missing: install a JDK 17 (Debian: apt-get install openjdk-17-jre-headless)."; exit 1; }

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: run make PYTHON=python3.11 (this is $$($(PYTHON) --version))."; exit 1; }
	@echo "Installing into $(VENV) (a minute or two the first time)..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) $(BIN)/python --editable ".[$(EXTRAS)]"
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@$(INSTALL) $(BIN)/python --editable ".[bench]" && touch $@ || \
	  echo "matplotlib could not be installed: there will be no plot"

clean:
	rm -rf $(VENV) demo-output build dist testing/build *.egg-info testing/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
