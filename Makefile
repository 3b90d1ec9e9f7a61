# Each target has a one-line description; continuous integration runs the same commands.
.DEFAULT_GOAL := help
PYTHON ?= python3
EVERSTEP := .venv/bin/everstep
# Without bytecode files, every process would compile megabytes of SDK code again.
unexport PYTHONDONTWRITEBYTECODE
# Tests that take minutes and have targets of their own, apart from `make test`.
ELASTIC := tests/trainer/elastic tests/chaos
CLOUDS := twin/tests/providers twin/tests/capacity tests/spot/on_twin twin/tests/nodes/machine/test_cloud_machines.py
PATH_TESTS := tests/e2e/test_up_train_evict_down.py
STACK_TESTS := $(addprefix tests/e2e/test_,clouds.py data_cache.py data_source.py deadline.py guides.py measured_stacks.py monitored_stacks.py pools.py tutorial.py)
# One of the two halves of `make test-twin`, which take about the same time. The other half must contain all tests that compare
# or change resources that the host's machines share: mounts, links, names of network namespaces.
# The last two folders share a control plane, which would cost CPU time beside later tests until the session ends.
ENGINE := twin/tests/pulumi tests/e2e/test_missing_images.py tests/github tests/monitoring twin/tests/images \
  twin/tests/toolchain tests/program twin/tests/providers/kubernetes

aws azure: %: .venv/.%  ## Add what the stacks of one cloud need

help:            ## List the targets
	@sed -n 's/^\([a-z-]*\): .*## /  make \1|/p' $(MAKEFILE_LIST) | sed 's/^\(  make [a-z-]*\):.*|/\1|/' | column -t -s '|'

up: .venv/.runtime  ## Build what is missing, start real Kubernetes, train through evictions, report
	$(EVERSTEP) up --drill

down: .venv/.runtime  ## Destroy the stack and leave nothing on this machine
	$(EVERSTEP) down

test: test-unit test-twin test-e2e  ## Run all tests except test-elastic, test-chaos, test-examples, test-clouds, test-stacks and test-gpu

test-unit: .venv/.development  ## Run the tests that need neither root nor network (about five minutes)
	OMP_NUM_THREADS=1 .venv/bin/pytest -m "not twin and not e2e and not browser and not gpu" --numprocesses=2 --dist=loadfile

search: .venv/.development  ## Look for failures in EFFORT=20 times as many random schedules and examples, from SEED=N (by default derived from the date)
	EVERSTEP_TEST_EFFORT=$(or $(EFFORT),20) EVERSTEP_TEST_SEED=$(or $(SEED),$$(( $$(date +%s) / 86400 * 100000 ))) OMP_NUM_THREADS=1 \
	  .venv/bin/pytest -m "(schedules or hypothesis) and not twin and not e2e and not browser and not gpu" --numprocesses=2 --timeout=0

test-twin: built  ## Run the tests against real nodes, etcd and the real Pulumi engine
	@$(MAKE) --no-print-directory --jobs=2 test-engine test-nodes  # both mostly wait

test-engine: built  ## Run the part of test-twin for the engine, the program, workflows, metrics and builds
	.venv/bin/pytest -m twin $(ENGINE)

test-nodes: built  ## Run the rest of test-twin: machines, controller, etcd, launchers
	.venv/bin/pytest -m twin $(addprefix --ignore=,$(ENGINE) $(ELASTIC) $(CLOUDS) tests/examples)

# The parts of continuous integration. `test-nodes` compares the host's mounts, so the parts that start machines of the twin run after it.
ci-clouds ci-rollout: ci-nodes
ci-%:
	@$(MAKE) --no-print-directory test-$*

test-e2e: test-path test-rollout  ## Run the end-to-end tests, the installed wheel and first steps in a cloud on the twin

test-path: built  ## Run up, train, evict, report, down; its time limits need an otherwise idle machine
	.venv/bin/pytest -m e2e $(PATH_TESTS)

test-rollout: built  ## Run the rest of test-e2e: the wheel, an account without GPUs, pushed images
	.venv/bin/pytest -m e2e $(addprefix --ignore=,$(PATH_TESTS) $(STACK_TESTS)) tests/e2e

test-elastic: built  ## Run the trainer with real agents and etcd: crashes, drains, rejoins, freezes, faults, bit-identical results
	.venv/bin/pytest -m twin $(ELASTIC)

test-browser: browser .venv/.development  ## Open the report's page in Chromium: layout, keyboard, colors, print
	.venv/bin/pytest -m browser

test-gpu: .venv/.development  ## Run the tests that need one or more GPUs, measure ResNet-50 and EfficientNets, report what could not be tested
	.venv/bin/python -m tests.gpu.run
	.venv/bin/python -m benchmarks.gpu

browser:
	@command -v chromium >/dev/null || apt-get install --yes --no-install-recommends chromium

test-chaos: built  ## Inject faults into a real local cluster and check its history (SEEDS=N runs, the first with seed SEED; needs root)
	OMP_NUM_THREADS=1 .venv/bin/python -m tests.chaos.run --seed $(or $(SEED),0) --seeds $(or $(SEEDS),1)

test-examples: built .venv/.examples  ## Run the examples of the elastic library through evictions
	.venv/bin/pytest -m twin tests/examples

test-clouds: built  ## Run the tests of the twin's clouds, their machines and their notices
	.venv/bin/pytest -m twin $(addprefix --ignore=,$(ENGINE)) $(CLOUDS)

test-stacks: built build/servers/minio build/servers/node_modules  ## Take each cloud stack through preview, up, evictions, change and down on the twin, also with two pools, a deadline, a data cache, a bucket and a container; run `everstep scale` and `everstep nccl-test`; run the commands of the guides and the tutorial
	.venv/bin/pytest -m e2e $(STACK_TESTS)

test-guides: built  ## Run the commands of docs/eks.md and docs/aks.md on the twin: up, eviction, upgrade, destroy
	.venv/bin/pytest -m e2e tests/e2e/test_guides.py

test-notebooks: built .venv/.notebooks  ## Execute the notebooks of the lab on the twin (CLOUD=eks or aks; both by default)
	.venv/bin/pytest -m e2e tests/notebooks $(if $(CLOUD),-k $(CLOUD))

notebooks: .venv/.notebooks .venv/.aws .venv/.azure  ## Add what the notebooks of the lab need

test-staging: .venv/.development build/servers/minio build/servers/node_modules  ## Run the tests of data staging against MinIO and Azurite, built on the first run (Go, npm)
	.venv/bin/pytest tests/everstep/staging

test-trackers: trackers .venv/.development  ## Run the tests of `everstep report --mlflow`, `--wandb` and `--tensorboard` with the real clients
	.venv/bin/pytest $(addprefix tests/everstep/cli/report/test_,mlflow_export.py wandb_export.py tensorboard.py)

trackers: .venv/.trackers  ## Add what `everstep report --mlflow` and `--wandb` need, and TensorBoard

build/servers/minio:
	GOBIN=$(CURDIR)/build/servers go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

build/servers/node_modules:
	npm install --silent --no-audit --no-fund --no-save --prefix build/servers azurite@3.37.0

test-mutations: .venv/.development  ## Inject deliberate mistakes into components and elastic library; each must fail a test (SAMPLE=N for fewer, without a run of the unchanged tests)
	.venv/bin/python -m tests.mutation.run --sample $(or $(SAMPLE),0) $(if $(SAMPLE),--assume-pass)

wheels: .venv/.uv  ## Build the wheels of the three distributions into build/dist
	rm -rf build/dist
	for folder in . facts twin; do .venv/bin/uv build --quiet --wheel --out-dir build/dist $$folder || exit 1; done

images: .venv/.runtime  ## Build the images of STACK (default: local); with PUSH=1 or REGISTRY=... push them and write their digests to the stack file
	@$(EVERSTEP) images $(if $(PUSH)$(REGISTRY),push,build) --stack $(or $(STACK),local) $(if $(REGISTRY),--registry $(REGISTRY))

built: .venv/.development  ## Build the programs and images that tests use, where they are missing
	@.venv/bin/python -m everstep.cli.images

lint: .venv/.development  ## Check format, style, types, imports, words and workflows
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	# In separate runs that share a cache: one run needs 2.3 GB of memory, separate runs at most 1.4 GB each.
	for part in components.aws components.azure; do .venv/bin/mypy -p $$part || exit 1; done
	.venv/bin/mypy
	.venv/bin/mypy -p tests -p twin.tests -p benchmarks
	.venv/bin/lint-imports --no-cache
	.vale/check.sh
	go -C .github/actionlint tool actionlint $(CURDIR)/.github/workflows/*.yaml

scan: .venv/.development build/scan/.installed  ## Scan manifests, Dockerfiles and workflows; every finding needs an answer in docs/security.md
	.venv/bin/python -m tests.scan --checkov build/scan/bin/checkov

prose: .venv/.development  ## Check the words of pages, comments, docstrings, messages and names
	@.vale/check.sh

format: .venv/.development  ## Format the code and fix what can be fixed automatically
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

catalog: .venv/.development  ## Write the data that come from botocore and Azure's SDK: facts, limits of inputs
	.venv/bin/python facts/update.py
	.venv/bin/python -P -m cloudtwin.providers.aws.read_shapes
	.venv/bin/python -P -m cloudtwin.providers.azure.read_shapes

facts-age:       ## List prices, limits, quota codes and versions with their sources, undated ones and the oldest first
	@$(PYTHON) facts/age.py

docs: .venv/.development  ## Write docs/configuration.md, docs/cli.md, docs/metrics.md, stacks/README.md, the actions in docs/eks.md and docs/aks.md, the recorded messages, the diff of the example
	.venv/bin/python -m components.docs.option_table
	.venv/bin/python -m components.docs.stack_table
	.venv/bin/python -m components.docs.metric_table
	.venv/bin/python -m components.platform.dashboards
	.venv/bin/python -m components.platform.operator_objects
	.venv/bin/python -m everstep.cli.command_page
	.venv/bin/python -m everstep.cli.account.aws_actions
	.venv/bin/python -m everstep.cli.account.azure_actions
	.venv/bin/python -m tests.components.config.messages
	.venv/bin/python -m tests.examples.script_page

site: .venv/.docs  ## Build the documentation site into build/site; a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

lock: .venv/.development  ## Lock the dependencies again, with hashes
	PATH="$(CURDIR)/.venv/bin:$$PATH" requirements/lock.sh

clean:           ## Remove the virtual environment (the cache of built programs stays)
	rm -rf .venv

.venv/.uv: requirements/bootstrap.txt
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer with venv is needed. On Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@touch $@

.venv/.runtime: .venv/.uv requirements/runtime.txt pyproject.toml facts/pyproject.toml twin/pyproject.toml
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/runtime.txt
	.venv/bin/uv pip install --quiet --python .venv --no-deps --config-settings editable_mode=compat --editable . --editable ./facts --editable ./twin
	@touch $@

.venv/.aws .venv/.azure: .venv/.%: .venv/.runtime requirements/%.txt requirements/account.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/$*.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes --no-deps -r requirements/account.txt
	@touch $@

.venv/.examples: .venv/.development requirements/examples.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/examples.txt
	@touch $@

.venv/.notebooks: .venv/.development requirements/notebooks.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/notebooks.txt
	@touch $@

.venv/.trackers: .venv/.runtime requirements/trackers.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/trackers.txt
	@touch $@

.venv/.comparison: .venv/.development requirements/comparison.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/comparison.txt
	@touch $@

# Without the project: the site is built from files only.
.venv/.docs: .venv/.uv requirements/docs.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/docs.txt
	@touch $@

# The scanner's dependencies conflict with the project's, so it has a separate environment.
build/scan/.installed: .venv/.uv requirements/scan.txt
	.venv/bin/uv venv --quiet --allow-existing --python .venv/bin/python build/scan
	.venv/bin/uv pip install --quiet --python build/scan --require-hashes -r requirements/scan.txt
	@touch $@

.venv/.development: .venv/.runtime requirements/development.txt requirements/models.txt requirements/account.txt requirements/s3-server.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes -r requirements/development.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes --no-deps -r requirements/models.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes --no-deps -r requirements/account.txt
	.venv/bin/uv pip install --quiet --python .venv --require-hashes --no-deps -r requirements/s3-server.txt
	@touch $@

.PHONY: help aws azure up down browser test search test-browser test-gpu test-unit test-twin test-engine test-nodes test-e2e test-path test-rollout test-elastic test-chaos test-examples test-clouds test-stacks test-guides test-notebooks notebooks test-staging test-trackers trackers test-mutations wheels images built lint scan prose format catalog facts-age docs site lock clean
