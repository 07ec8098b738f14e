# The few commands this project needs. `make run` and `make test` work on a machine that has only Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
TOOLS_STAMP := $(VENV)/.installed-tools
DOCS_STAMP := $(VENV)/.installed-for-docs
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
REFERENCE = $(if $(ORACLE_DIR),--reference-dir "$(ORACLE_DIR)") $(if $(ORACLE),--reference "$(ORACLE)")

.DEFAULT_GOAL := help
.PHONY: help setup compiled engine run up test test-interop test-kubernetes chaos cluster-chaos cluster-failover upgrades differential fuzz bench bench-check bench-must neighbours bench-update release pictures check docs format proto sim clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1 |/' | column -t -s '|'

setup: $(STAMP) ## create .venv with the tools for development, and compile the engine if there is a C compiler

$(RUN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "yunishard needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=")'
	@echo "installing what yunishard needs to run into $(VENV) (about half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -e '.[server]'
	@touch $@

$(TOOLS_STAMP): $(RUN_STAMP)
	@echo "installing the tools for development"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(STAMP): $(RUN_STAMP)
	@echo "compiling the engine in the background (minutes)"
	@$(MAKE) --no-print-directory engine > $(VENV)/compiled.log 2>&1 & engine=$$!; \
		$(MAKE) --no-print-directory $(TOOLS_STAMP) || { wait $$engine; exit 1; }; \
		wait $$engine || echo "the engine runs as Python, because compiling it failed: see $(VENV)/compiled.log"
	@touch $@

$(DOCS_STAMP): $(RUN_STAMP)
	@echo "installing Sphinx"
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@

run: $(RUN_STAMP) ## replay a real workload through the whole system (about a minute)
	@echo "replaying a workload log through a local system (about a minute)"
	@$(BIN)/yunishard replay examples/lcg-2005.swf.gz --local

compiled: setup engine ## compile the engine as it is now, for the workers of this checkout; needs a C compiler (a minute)

engine: $(RUN_STAMP)
	@folder="$$($(BIN)/python -P -m yunishard.common.process.compiled)" && if test -d "$$folder"; then echo "$$folder is there"; else \
		rm -rf $(VENV)/compiled && \
		HATCH_BUILD_HOOK_ENABLE_CUSTOM=true PIP_CONSTRAINT="$(CURDIR)/constraints.txt" \
			$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$$folder.new" . && \
		find "$$folder.new/yunishard" -mindepth 1 -maxdepth 1 ! -name __init__.py ! -name common ! -name partition_worker \
			-exec rm -r {} + && \
		PYTHONPATH="$$folder.new" $(BIN)/python -P -m yunishard.partition_worker --help > /dev/null && \
		mv "$$folder.new" "$$folder" && echo "workers run the compiled engine from now on"; fi

up: $(RUN_STAMP) ## start the system and leave it running: ARGS= (options of `yunishard up`)
	$(BIN)/yunishard up $(ARGS)

test: setup ## run the tests, on all processors (about five minutes on two): LONG=1 (also those that take long, eleven minutes)
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(if $(LONG),,-m "not long")

differential: setup ## compare with the reference, which needs Go: AREAS= TRACES= SEED= REPLAY= ORACLE_DIR= ORACLE=
	$(BIN)/python -m tests.differential $(if $(ORACLE_DIR),--oracle-dir "$(ORACLE_DIR)") $(if $(ORACLE),--oracle "$(ORACLE)") \
		$(if $(AREAS),--areas $(AREAS)) $(if $(TRACES),--traces $(TRACES)) $(if $(SEED),--seed $(SEED)) $(if $(REPLAY),--replay $(REPLAY))

chaos: setup ## kill the processes of a running system at random: SEED= BLOWS= ASKS=
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(BLOWS),--blows $(BLOWS)) $(if $(ASKS),--asks $(ASKS))

cluster-chaos: setup ## fail hosts, links and database servers of a cluster in namespaces (ten minutes): SEED= FAULTS= ASKS= FROM= (a commit)
	$(BIN)/python -m tests.cluster $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(ASKS),--asks $(ASKS)) \
		$(if $(FROM),--upgrade-from $(FROM))

cluster-failover: setup ## fail the servers of a cluster whose database fails over by Patroni, which has to be installed: SEED= FAULTS=
	$(BIN)/python -m tests.cluster --patroni --faults $(or $(FAULTS),11) --asks 20000 $(if $(SEED),--seed $(SEED))

upgrades: setup ## start two builds in turn on the same state, under load: ROUNDS= (default 50) FROM= (a commit)
	UPGRADE_ROUNDS=$(or $(ROUNDS),50) $(if $(FROM),UPGRADE_FROM=$(FROM)) $(BIN)/python -m pytest -q -rP tests/upgrade/test_under_load.py

test-interop: setup ## run a resource manager written in Go against the system, which needs Go
	$(BIN)/python -m pytest -q tests/interop

test-kubernetes: setup ## run the Kubernetes shim against a real control plane, which needs Go and is built first: TESTS= K8S_DIR=
	$(BIN)/python -m tests.kubernetes $(TESTS)

fuzz: setup ## send a million corrupted messages to every port: FRAMES= SEED= REPLAY=
	$(BIN)/python -m tests.fuzz $(if $(FRAMES),--frames $(FRAMES)) $(if $(SEED),--seed $(SEED)) $(if $(REPLAY),--replay $(REPLAY))
	$(if $(REPLAY),,PROPERTIES=long $(BIN)/python -m pytest -q --timeout 1200 tests/fuzz/test_machines.py)

bench: setup ## run the benchmarks: NAMES= JSON= and, to compare with the reference, ORACLE_DIR= or ORACLE=
	$(BIN)/python -m benchmarks $(NAMES) $(if $(JSON),--json "$(JSON)") $(REFERENCE)

bench-check: setup ## fail if a figure is a fifth above the committed one (about five minutes)
	$(BIN)/python -m benchmarks --check $(NAMES)

bench-must: setup ## check the ratios to the reference: ORACLE_DIR= (needs Go) or ORACLE=
	$(BIN)/python -m benchmarks --must $(REFERENCE)

neighbours: setup ## measure what others notice of expensive inputs (ten minutes): ROWS= (names, with * for any text), UPDATE=1
	$(BIN)/python -m benchmarks.neighbours $(ROWS) $(if $(UPDATE),--update)

bench-update: setup ## run the benchmarks, and write benchmarks/results.json and docs/performance.md: NAMES= ORACLE_DIR= ORACLE=
	$(BIN)/python -m benchmarks --update $(NAMES) $(REFERENCE)
	$(BIN)/python -m benchmarks.document

sim: setup ## simulate the system with faults under a virtual clock: SEED= for one seed and its story, FIRST= SEEDS= for others, CLUSTER=1 with a database
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(CLUSTER),--cluster)

release: $(TOOLS_STAMP) ## build sdist, wheels, checksums and bill of materials in dist/, and check them on Python 3.11 to 3.13: PYTHONS=
	$(BIN)/python packaging/release.py $(if $(PYTHONS),--pythons $(PYTHONS))

pictures: setup ## make the pictures of README.md and of the dashboard's page from a running system; needs Chromium
	$(BIN)/python -m tests.dashboard.screenshots

check: $(TOOLS_STAMP) ## lint, format, types, import rules, size limits and banned words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.size --check
	$(BIN)/python -m tests.prose

docs: $(DOCS_STAMP) ## build the documentation as a site with search, in docs/_build/html
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html
	@echo "built: docs/_build/html/index.html"

proto: setup ## generate the Python code of the gRPC services again
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. rmproxy/si/scheduler.proto rmproxy/admin/admin.proto

format: setup ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
