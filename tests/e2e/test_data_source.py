"""`data.source` and `data.cache` of a stack.

With a source, the stack's Job copies photographs from a bucket to the volume, and training starts on them. Then the
stack is changed, and its workers read shards of the bucket through the cache of their node.

    make build/servers/minio build/servers/node_modules
    pytest -m e2e tests/e2e/test_data_source.py -k eks-dev     # or aks-dev

MinIO stands in for S3 and Azurite for Blob Storage, in the network of the twin. EKS and AKS give pods the credentials
of their identities by an admission webhook; admission policies with credentials of the store stand in for it. The store
enforces the permissions that the stack declares for these identities. The first source is a bucket that these
permissions do not include.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.facade import shared_volume
from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.kubernetes_api import ApiError
from cloudtwin.nodes import Twin
from cloudtwin.nodes.control_plane.components import process_in_network
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.network import links

from components.interface import DATA_ACCOUNT
from everstep.catalog.names import JOB_NAMESPACE, WORKER_CONTAINER
from everstep.cli.report.readers import FolderReader
from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    EVERSTEP,
    QUERY_SECONDS,
    UP_SECONDS,
    LifeCycle,
    copy_project,
    output,
)
from tests.e2e.stores import BUCKET, FORBIDDEN, PREFIX, SHARDS, AzuriteStore, MinioStore, Store
from tests.trainer.data.photographs import CLASSES, write_photographs
from trainer.data import convert
from trainer.data.shard import Resizing

STORES = {store.stack: store for store in (MinioStore(), AzuriteStore())}
PER_CLASS = 40
IMAGES = 2 * PER_CLASS * len(CLASSES)
PREPARATION_POLICY, WORKER_POLICY = "identity-of-the-preparation", "identity-of-the-workers"
CACHE_IS_FILLED = "is complete: "
"""Part of the line that a worker logs when its cache has all shards."""

POLICIES_PATH = "/apis/admissionregistration.k8s.io/v1"

JOB = {
    "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "imageSize": 16, "globalBatch": 8,
    "learningRate": 0.01, "epochs": 5000,
}  # fmt: skip
"""The training outlasts the test; `down` ends it."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(
        max(store.retry_seconds for store in STORES.values())
        + 3 * UP_SECONDS
        + 4 * ALL_TRAIN_SECONDS
        + 3 * QUERY_SECONDS
        + DOWN_SECONDS
    ),
]


@dataclass
class SourceCycle(LifeCycle):
    """The life cycle of a stack with a data source.

    Attributes:
        store: store with the photographs.
        preparation_access: variables with credentials that have the permissions of the data preparation.
        worker_access: variables with credentials that have the permissions of workers with a cache.
        copied: paths of the copied photographs, relative to the folder of the copy.
        log: log of the worker that reads through a cache.
    """

    store: Store = field(default_factory=MinioStore)
    preparation_access: Mapping[str, str] = field(default_factory=dict)
    worker_access: Mapping[str, str] = field(default_factory=dict)
    copied: list[str] = field(default_factory=list)
    log: str = ""

    @property
    def store_folder(self) -> Path:
        """Folder of the store."""
        return self.folder / "store"

    def fill_store(self) -> None:
        """Upload photographs to both buckets and shards to one of them, and get credentials for the latter."""
        photographs = write_photographs(self.folder / "photographs", PER_CLASS, test="val")
        shards = self.folder / "shards"
        convert.convert(photographs, shards, Resizing(short_side=32), 1, Silent())
        self.store_folder.mkdir()
        with self.store.serve_locally(self.store_folder) as address:
            self.store.fill(address, photographs, shards)
            self.preparation_access = self.store.access(address, PREFIX)
            self.worker_access = self.store.access(address, SHARDS)
        self.store.register(self.twin)

    def serve(self) -> "subprocess.Popen[bytes]":
        """Start the store in the network of the twin, whose control plane is up."""
        network_holder = process_in_network(Layout(self.twin))
        assert network_holder is not None
        command, environment = self.store.command(self.store_folder)
        return subprocess.Popen(
            [
                *KILLED_WITH_PARENT,
                "nsenter",
                f"--net={links.namespace_of(network_holder.pid)}",
                *command,
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def give_credentials(self) -> bool:
        """Create the admission policies; return False while there is no API server."""
        if not Layout(self.twin).kubeconfig.exists():
            return False
        preparation_policy = admission_policy(
            f'object.spec.serviceAccountName == "{DATA_ACCOUNT}"',
            "prepare",
            self.preparation_access,
        )
        worker_policy = admission_policy(
            f'object.spec.containers.exists(container, container.name == "{WORKER_CONTAINER}")',
            WORKER_CONTAINER,
            self.worker_access,
        )
        try:
            self._create_policy(PREPARATION_POLICY, preparation_policy)
            self._create_policy(WORKER_POLICY, worker_policy)
        except ApiError:
            return False
        return True

    def _create_policy(self, name: str, spec: Mapping[str, Any]) -> None:
        """Create an admission policy with its binding, where they do not exist."""
        specs = {
            "mutatingadmissionpolicies": spec,
            "mutatingadmissionpolicybindings": {"policyName": name},
        }
        for plural, content in specs.items():
            body = {"metadata": {"name": name}, "spec": content}
            try:
                self.api().post(f"{POLICIES_PATH}/{plural}", body)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise

    def up_with_store(self) -> "subprocess.Popen[bytes]":
        """Bring the stack up; start the store and give pods credentials as soon as there is an API server.

        Returns:
            The store.
        """
        log = self.folder / "up.log"
        with log.open("w") as file:
            up = subprocess.Popen(
                [EVERSTEP, "up", "--detach", "--stack", self.stack, "--twin"],
                cwd=self.folder,
                env={**self.environment, "PULUMI_STACK": self.stack},
                stdout=file,
                stderr=file,
            )
        store = None
        try:
            self.wait_until("there is an API server", self.give_credentials, UP_SECONDS)
            store = self.serve()
            returncode = up.wait(UP_SECONDS + self.store.retry_seconds)
        except BaseException:
            up.terminate()
            up.wait()
            if store:
                store.kill()
            raise
        self.results["forbidden"] = subprocess.CompletedProcess(
            up.args, returncode, "", log.read_text()
        )
        return store

    def set_source(self, bucket: str) -> None:
        """Declare a bucket as the source of the photographs."""
        self.change(data={"dataset": "imagefolder", **self.store.source(bucket)}, job=JOB)

    def set_cache(self) -> None:
        """Declare a cache of the bucket's shards instead of a source."""
        cache = {**self.store.source(BUCKET, SHARDS), "size": "1Gi"}
        content = yaml.safe_load(self.stack_file.read_text())
        content["config"]["everstep:data"] = {"dataset": "imagefolder", "cache": cache}
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))
        self.change(job={"fresh": "cached"})

    def cache_is_filled(self) -> bool:
        """Return True if a worker has logged that its cache is complete, and keep its log."""
        pods = f"/api/v1/namespaces/{JOB_NAMESPACE}/pods"
        for pod in self.api().get(pods)["items"]:
            if any(part["name"] == WORKER_CONTAINER for part in pod["spec"]["containers"]):
                self.log = self.api().text(f"{pods}/{pod['metadata']['name']}/log")
        return CACHE_IS_FILLED in self.log

    def last_step_at(self) -> float:
        """Return the time of the newest step."""
        steps = FolderReader(self.run_folder, self.twin / "events.jsonl").read().steps
        return steps[-1].at if steps else 0.0

    def read_copy(self) -> None:
        """Record the photographs on the volume."""
        volume = shared_volume(self.twin)
        assert volume is not None
        copy = volume / "data" / "imagefolder-source"
        self.copied = sorted(str(path.relative_to(copy)) for path in copy.rglob("*.jpg"))


def admission_policy(
    condition: str, container: str, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return a policy that adds variables to a container of the pods that match a condition."""
    entries = ", ".join(
        f"Object.spec.containers.env{{name: {json.dumps(name)}, value: {json.dumps(value)}}}"
        for name, value in variables.items()
    )
    change = f"Object.spec.containers{{name: {json.dumps(container)}, env: [{entries}]}}"
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]
    }  # fmt: skip
    configuration = {"expression": f"Object{{spec: Object.spec{{containers: [{change}]}}}}"}
    return {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "reads-data", "expression": condition}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": configuration}],
    }


@pytest.fixture(scope="module", params=STORES)
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SourceCycle]:
    """Run the life cycle of a stack once; the store and the twin are always taken down."""
    store = STORES[request.param]
    if not store.program.exists():
        pytest.skip(f"{store.program.name} is not installed: `make test-stacks` installs it")
    cycle = SourceCycle(store.stack, copy_project(tmp_path_factory.mktemp("source")), store=store)
    options = ("--stack", cycle.stack, "--twin")
    server: subprocess.Popen[bytes] | None = None
    try:
        cycle.fill_store()
        cycle.set_source(FORBIDDEN)
        server = cycle.up_with_store()
        cycle.set_source(BUCKET)
        cycle.run_checked("up", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.read_copy()
        cycle.wait_until("training starts", lambda: cycle.progress().steps, ALL_TRAIN_SECONDS)
        cycle.record("again", "preview", "--expect-no-changes", *options)
        cycle.set_cache()
        cycle.run_checked("cache", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.wait_until("the cache is filled", cycle.cache_is_filled, ALL_TRAIN_SECONDS)
        filled_at = time.time()
        cycle.wait_until(
            "training continues", lambda: cycle.last_step_at() > filled_at, ALL_TRAIN_SECONDS
        )
        cycle.record("down", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        if server:
            server.kill()
            server.wait()
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())
        shutil.rmtree(cycle.folder, ignore_errors=True)


def test_up_names_a_forbidden_bucket_and_the_fix(cycle: SourceCycle) -> None:
    result = cycle.results["forbidden"]

    assert result.returncode == 1, output(cycle, "forbidden")
    for part in cycle.store.refusal:
        assert part in result.stderr, output(cycle, "forbidden")


def test_all_photographs_are_on_the_volume_before_the_training(cycle: SourceCycle) -> None:
    assert len(cycle.copied) == IMAGES
    assert cycle.copied[0] == f"train/{CLASSES[0]}/0.jpg"


def test_a_preview_after_the_source_was_corrected_finds_no_changes(cycle: SourceCycle) -> None:
    assert cycle.results["again"].returncode == 0, output(cycle, "again")


def test_workers_read_shards_of_the_bucket_through_a_cache(cycle: SourceCycle) -> None:
    assert CACHE_IS_FILLED in cycle.log


def test_down_leaves_nothing_but_what_existed_before_the_stack(cycle: SourceCycle) -> None:
    """`down` fails if any resource remains, so it succeeds only if none existed before the stack."""
    result, earlier_resources = cycle.results["down"], set(cycle.store.earlier_resources)
    lines = re.findall(r"^\s*(?:AWS|Azure): (.*)$", result.stderr, re.MULTILINE)

    assert set(lines) == earlier_resources, output(cycle, "down")
    assert (result.returncode == 0) == (not earlier_resources), output(cycle, "down")
    assert not cycle.twin.exists(), output(cycle, "down")
