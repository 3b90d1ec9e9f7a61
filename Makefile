# One line each; continuous integration runs the same commands.
.DEFAULT_GOAL := help
PYTHON ?= python3
EVERSTEP := .venv/bin/everstep
# Where Python is told to keep no bytecode, every process compiles megabytes of SDK anew.
unexport PYTHONDONTWRITEBYTECODE
# Tests that take minutes and have targets of their own, apart from `make test`.
ELASTIC := tests/trainer
CLOUDS := tests/twin/clouds tests/twin/spot tests/twin/nodes/test_cloud_machines.py
# One of the two halves of `make test-twin`: what mostly waits for the engine.
ENGINE := tests/twin/pulumi tests/twin/program tests/e2e/test_images_that_are_nowhere.py

aws azure: %: .venv/.%  ## Add what the stacks of one cloud need

help:            ## Show what can be made
	@sed -n 's/^\([a-z-]*\): .*## /  make \1|/p' $(MAKEFILE_LIST) | sed 's/^\(  make [a-z-]*\):.*|/\1|/' | column -t -s '|'

up: .venv/.runtime  ## Build what is missing, start real Kubernetes, train through evictions, show it
	$(EVERSTEP) up --drill

down: .venv/.runtime  ## Destroy the stack and leave nothing on this machine
	$(EVERSTEP) down

test: test-unit test-twin test-e2e  ## Run every test but those of test-elastic, test-clouds and test-stacks

test-unit: .venv/.development  ## Run the tests that need neither root nor network (under a minute)
	OMP_NUM_THREADS=1 .venv/bin/pytest -m "not twin and not e2e" --numprocesses=2 --dist=loadfile

test-twin: built  ## Run the tests against real nodes, etcd and the real Pulumi engine
	@$(MAKE) --no-print-directory --jobs=2 test-engine test-nodes  # the first mostly waits

test-engine: built  ## Of these, the ones of the engine, its plugins and the program
	.venv/bin/pytest -m twin $(ENGINE)

test-nodes: built  ## Of these, all others: machines, images, controller
	.venv/bin/pytest -m twin $(addprefix --ignore=,$(ENGINE) $(ELASTIC) $(CLOUDS))

test-e2e: built  ## Run the whole path: up, train, evict, report, down
	.venv/bin/pytest -m e2e --ignore=tests/e2e/test_clouds.py

test-elastic: built  ## Run the trainer with real agents and etcd: deaths, drains, returns, freezes, faults, the same bits
	.venv/bin/pytest -m twin $(ELASTIC)

test-clouds: built  ## Run the tests of the twin's clouds, their machines and their notices
	.venv/bin/pytest -m twin $(CLOUDS)

test-stacks: built  ## Take each cloud stack through preview, up, evictions, change and down on the twin
	.venv/bin/pytest -m e2e tests/e2e/test_clouds.py

built: .venv/.development  ## Build the programs and images that tests use, where they are missing
	@.venv/bin/python -m twin.toolchain
	@.venv/bin/python -m twin.images

lint: .venv/.development  ## Check style, types, imports and what is generated
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	go -C .github/actionlint tool actionlint $(CURDIR)/.github/workflows/*.yaml

format: .venv/.development  ## Lay the code out and mend what can be mended
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

lock: .venv/.development  ## Lock the dependencies anew, with hashes
	PATH="$(CURDIR)/.venv/bin:$$PATH" requirements/lock.sh

clean:           ## Remove the virtual environment (the cache of built programs stays)
	rm -rf .venv

.venv/.uv: requirements/bootstrap.txt
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer with venv is needed. On Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@touch $@

.venv/.runtime: .venv/.uv requirements/runtime.txt pyproject.toml
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/runtime.txt
	.venv/bin/uv pip install --quiet --python .venv --no-deps --editable .
	@touch $@

.venv/.aws .venv/.azure: .venv/.%: .venv/.runtime requirements/%.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/$*.txt
	@touch $@

.venv/.development: .venv/.runtime requirements/development.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/development.txt
	@touch $@

.PHONY: help aws azure up down test test-unit test-twin test-engine test-nodes test-e2e test-elastic test-clouds test-stacks built lint format lock clean
