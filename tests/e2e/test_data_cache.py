"""`data.cache` on real nodes: workers read shards of a store, and a returning node trains while its cache fills.

    pytest -m e2e tests/e2e/test_data_cache.py

The store is in the network of the twin. While the cache of the node is cold, the store answers no request for a whole
shard, so that the node has no shard until it has trained, however fast the machine is.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.kubernetes_api import ApiError
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.control_plane.components import process_in_network
from cloudtwin.nodes.network import addressing, links

from everstep.catalog.names import JOB_NAME_LABEL, JOB_NAMESPACE
from everstep.cli.images import OPTIONS
from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.progress import Lines, Silent
from tests.e2e.life_cycle import EVERSTEP, REPOSITORY, copy_project, holds_now
from tests.e2e.object_server import HOLD, REQUESTS, SHARD
from tests.journals import JournalReader
from tests.trainer.data.photographs import write_photographs
from tests.trainer.verification import run_verify
from tests.waiting import wait_until
from trainer.data import convert
from trainer.data.shard import Resizing

TWIN = f"cache-{os.getpid()}"
PORT, PREFIX, SECRET = 9000, "photographs/shards", "store"
LOST = "gpu-1"
NODES = ("gpu-0", LOST)
COLD_STEPS = 20
"""Steps that the node trains with a cold cache: most of an epoch, whose images are in all shards."""

UP_SECONDS, WAIT_SECONDS, VERIFY_SECONDS = 600, 300, 240

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * UP_SECONDS + 5 * WAIT_SECONDS + VERIFY_SECONDS),
]

JOB = {
    "replicas": 2, "minReplicas": 1, "maxReplicas": 2, "imageSize": 16, "globalBatch": 8,
    "learningRate": 0.01, "epochs": 5000,
    "env": {
        "AWS_ENDPOINT_URL_S3": f"http://{addressing.CONTROL_PLANE}:{PORT}",
        "AWS_DEFAULT_REGION": "us-east-1",
    },
    "envFromSecrets": [SECRET],
}  # fmt: skip
"""The training outlasts the test."""


@dataclass
class CachedStack:
    """A stack that trains from a store of shards, and the twin that runs both.

    Attributes:
        twin: the machines.
        store: folder of the store.
        project: folder of the project.
    """

    twin: Twin
    store: Path
    project: Path

    def __post_init__(self) -> None:
        self.run = self.twin.layout.shared / "runs" / "fashion"
        self._journal = JournalReader(self.run / "journal")

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests for shards that the store has answered."""
        lines = (self.store / REQUESTS).read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["name"].endswith(SHARD)]

    def is_filled(self, node: str) -> bool:
        """Return True if the worker on a node has logged that its cache is complete."""
        api = admin_client(self.twin.layout)
        pods = api.get(f"/api/v1/namespaces/{JOB_NAMESPACE}/pods")["items"]
        workers = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeName") == node and JOB_NAME_LABEL in pod["metadata"]["labels"]
        ]
        try:
            logs = [
                api.text(f"/api/v1/namespaces/{JOB_NAMESPACE}/pods/{name}/log") for name in workers
            ]
        except ApiError:  # its container has not started
            return False
        return any("is complete: " in log for log in logs)

    def steps(self, world_size: int, since: float) -> int:
        """Return the number of steps that groups of `world_size` workers have completed since a time."""
        steps = [entry for entry in self._journal.read() if entry["kind"] == "step"]
        return sum(step["world_size"] == world_size and step["at"] > since for step in steps)

    def wait_for_steps(self, world_size: int, steps: int = 1) -> None:
        """Wait until groups of `world_size` workers have completed `steps` more steps."""
        since = time.time()
        self.wait_until(
            f"{world_size} workers take {steps} steps",
            lambda: self.steps(world_size, since) >= steps,
        )

    def wait_until(self, description: str, holds: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        wait_until(lambda: holds_now(holds), description, WAIT_SECONDS, interval_seconds=0.5)

    def up(self) -> None:
        """Create the stack, and the credentials of the store as soon as the namespace exists."""
        log = self.project / "up.log"
        with log.open("w") as file:
            up = subprocess.Popen(
                [EVERSTEP, "up", "--detach", "--yes"],
                cwd=self.project,
                env={**os.environ, "EVERSTEP_TWIN": TWIN},
                stdout=file,
                stderr=file,
            )
        try:
            self.wait_until("the stack has a namespace", lambda: self._create_secret() or up.poll())
            assert up.wait(UP_SECONDS) == 0, log.read_text()[-4000:]
        finally:
            up.kill()
            up.wait()

    def _create_secret(self) -> bool:
        """Create the credentials; return False while there is no namespace."""
        keys = {"AWS_ACCESS_KEY_ID": "everstep", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
        body = {"metadata": {"name": SECRET}, "stringData": keys}
        try:
            admin_client(self.twin.layout).post(f"/api/v1/namespaces/{JOB_NAMESPACE}/secrets", body)
        except ApiError as error:
            return error.status == HTTPStatus.CONFLICT  # an earlier attempt had no response in time
        return True

    def verify(self) -> subprocess.CompletedProcess[str]:
        """Recompute the samples of all checkpoints."""
        return run_verify(self.run, VERIFY_SECONDS)


@pytest.fixture
def cached_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CachedStack]:
    """Start the machines and the store; both are always taken down."""
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "state" / "twins"))
    monkeypatch.setattr(convert, "MIN_SAMPLES", 16)
    store = tmp_path / "store"
    write_photographs(tmp_path / "photographs", per_class=100)
    convert.convert(tmp_path / "photographs", store / PREFIX, Resizing(short_side=32), 1, Silent())
    (store / REQUESTS).touch()
    twin = Twin.open(TWIN, OPTIONS)
    server: subprocess.Popen[bytes] | None = None
    try:
        twin.up([system_machine("system-0"), *map(gpu_machine, NODES)], Lines())
        server = serve(twin, store)
        yield CachedStack(twin, store, project(tmp_path / "project", twin))
    finally:
        if server:
            server.kill()
            server.wait()
        twin.down(Lines())


def serve(twin: Twin, store: Path) -> "subprocess.Popen[bytes]":
    """Start the store in the network of the twin."""
    network_holder = process_in_network(twin.layout)
    assert network_holder is not None
    address = [str(addressing.CONTROL_PLANE), str(PORT), str(store)]
    return subprocess.Popen(
        [*KILLED_WITH_PARENT, "nsenter", f"--net={links.namespace_of(network_holder.pid)}", sys.executable, "-m",
         "tests.e2e.object_server", *address],
        cwd=REPOSITORY,
    )  # fmt: skip


def project(folder: Path, twin: Twin) -> Path:
    """Return a copy of the project whose stack reads through the cache."""
    stack_file = copy_project(folder) / "stacks" / "Pulumi.local.yaml"
    stack = yaml.safe_load(stack_file.read_text())
    config = stack["config"]
    config["everstep:cluster"]["kubeconfig"] = str(twin.kubeconfig)
    config["everstep:etcd"]["members"] = 1
    cache = {"source": f"s3://{PREFIX}", "size": "1Gi"}
    config["everstep:data"] = {"dataset": "imagefolder", "cache": cache}
    config["everstep:job"] |= JOB
    stack_file.write_text(yaml.safe_dump(stack, sort_keys=False))
    return folder


def test_a_returning_node_trains_with_a_cold_cache_and_fills_it(
    cached_stack: CachedStack,
) -> None:
    cached_stack.up()
    cached_stack.wait_for_steps(world_size=2)
    cached_stack.wait_until(
        "both nodes have all shards", lambda: all(map(cached_stack.is_filled, NODES))
    )

    (cached_stack.store / HOLD).touch()
    cached_stack.twin.vanish(LOST)
    cached_stack.wait_for_steps(world_size=1)
    before = len(cached_stack.requests())
    cached_stack.twin.return_node(LOST)
    cached_stack.wait_for_steps(world_size=2, steps=COLD_STEPS)

    cold = cached_stack.requests()[before:]
    assert cold, "the new node reads the images of its steps from the store"
    assert not any(request["is_whole"] for request in cold), "it has no shard yet"

    (cached_stack.store / HOLD).unlink()
    cached_stack.wait_until("the new node has all shards", lambda: cached_stack.is_filled(LOST))
    # During these steps, all earlier requests are answered.
    cached_stack.wait_for_steps(world_size=2, steps=COLD_STEPS)
    requests_before = len(cached_stack.requests())
    cached_stack.wait_for_steps(world_size=2, steps=COLD_STEPS)
    assert len(cached_stack.requests()) == requests_before, "a complete cache needs no store"

    verified = cached_stack.verify()
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "every sample exactly once" in verified.stdout
