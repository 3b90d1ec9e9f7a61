"""A real API server with Node objects, and the watcher as a process."""

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.nodes import Twin
from kubernetes import client, config

from everstep.catalog.names import ELASTICJOB_GROUP, JOB_NAMESPACE, SYSTEM_NAMESPACE
from everstep.progress import Silent
from tests import waiting
from tests.spot.metadata_server import MetadataServer, serving

ROOT = Path(__file__).resolve().parents[3]
NODE, OTHER_NODE = "gpu-0", "gpu-1"
WAIT_SECONDS = 100.0


@dataclass(frozen=True)
class WatcherCluster:
    """A cluster without kubelets.

    Attributes:
        core: client with the permissions of an administrator.
        address: address of the API server.
        credentials: folder with the watcher's token and ca.crt.
    """

    core: Any  # the stubs accept no JSON bodies
    address: str
    credentials: Path

    def node(self, name: str = NODE) -> Any:
        return self.core.read_node(name)

    def create_worker(self, name: str, node: str = NODE) -> Any:
        """Create a worker on a node; without a kubelet it stays until `confirm_deletion`."""
        container = {"name": "c", "image": "i"}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 110}
        metadata = {"name": name, "labels": {"group-name": ELASTICJOB_GROUP}}
        return self.core.create_namespaced_pod(JOB_NAMESPACE, {"metadata": metadata, "spec": spec})

    def pod(self, name: str) -> Any:
        return self.core.read_namespaced_pod(name, JOB_NAMESPACE)

    def confirm_deletion(self, name: str) -> None:
        """Remove a pod, as a kubelet does after its containers have ended."""
        self.core.delete_namespaced_pod(name, JOB_NAMESPACE, grace_period_seconds=0)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatcherCluster]:
    twin = Twin.open(f"spot-{os.getpid()}")
    try:
        twin.up([], Silent())
        yield prepare_cluster(twin.kubeconfig, tmp_path_factory.mktemp("credentials"))
    finally:
        twin.down(Silent())


def prepare_cluster(kubeconfig: Path, credentials: Path) -> WatcherCluster:
    """Create nodes, namespaces and the permissions of the watcher in an empty cluster."""
    api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]  # the client has no types
    core: Any = client.CoreV1Api(api)
    cluster = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    for name in (SYSTEM_NAMESPACE, JOB_NAMESPACE):
        core.create_namespace({"metadata": {"name": name}})
    for name in (NODE, OTHER_NODE):
        core.create_node({"metadata": {"name": name}})
    kubectl = ("kubectl", "--kubeconfig", str(kubeconfig))
    rbac = ROOT / "manifests" / "spot-rbac.yaml"
    subprocess.run([*kubectl, "apply", "-f", str(rbac)], check=True, capture_output=True)
    # A token bound to a pod names its node, as the tokens from a kubelet do.
    spec = {
        "nodeName": NODE,
        "serviceAccountName": "spot",
        "containers": [{"name": "c", "image": "i"}],
    }
    core.create_namespaced_pod(SYSTEM_NAMESPACE, {"metadata": {"name": "watcher"}, "spec": spec})
    # No kubelet runs the pod, so it is marked as finished; its token remains valid.
    finished_status = {"status": {"phase": "Succeeded"}}
    core.patch_namespaced_pod_status("watcher", SYSTEM_NAMESPACE, finished_status)
    binding = ("--bound-object-kind=Pod", "--bound-object-name=watcher")
    token = subprocess.run(
        [*kubectl, "-n", SYSTEM_NAMESPACE, "create", "token", "spot", *binding],
        check=True,
        capture_output=True,
    )
    (credentials / "token").write_bytes(token.stdout)
    (credentials / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return WatcherCluster(core, cluster["server"], credentials)


@contextlib.contextmanager
def watching(cluster: WatcherCluster, service: MetadataServer, *arguments: str) -> Iterator[None]:
    """Run the watcher until the block ends; it must exit with 0 on SIGTERM."""
    command = [sys.executable, "-m", "spot", "--node", NODE, "--metadata", service.base_url]
    access_arguments = ["--api", cluster.address, "--credentials", str(cluster.credentials)]
    process = subprocess.Popen(
        [*command, *access_arguments, *arguments], cwd=ROOT, stderr=subprocess.PIPE
    )
    try:
        yield
    finally:
        process.terminate()
        _, log = process.communicate(timeout=100)
        print(log.decode())
    assert process.returncode == 0


@pytest.fixture
def azure(cluster: WatcherCluster) -> Iterator[MetadataServer]:
    with serving("azure") as service:
        yield service


@pytest.fixture
def aws(cluster: WatcherCluster) -> Iterator[MetadataServer]:
    with serving("aws") as service:
        yield service


def wait_until(condition: Callable[[], object], description: str) -> None:
    """Wait until a condition holds."""
    waiting.wait_until(condition, description, WAIT_SECONDS)
