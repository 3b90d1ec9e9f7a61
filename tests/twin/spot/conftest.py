"""A real API server, a node on paper, and the real watcher as a process of its own beside them."""

import base64
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from everstep.progress import Silent
from tests.unit.spot.metadata_server import Service, serving
from twin.nodes import Twin

ROOT = Path(__file__).resolve().parents[3]
NODE, OTHER_NODE = "gpu-0", "gpu-1"
SYSTEM, JOB = "everstep-system", "elastic-job"


@dataclass(frozen=True)
class Bench:
    """The cluster, as its administrator and as the watcher sees it.

    Attributes:
        core: the administrator's way in.
        address: of the API server.
        credentials: folder with the watcher's own token and ca.crt.
    """

    core: client.CoreV1Api
    address: str
    credentials: Path

    def node(self, name: str = NODE) -> Any:
        return self.core.read_node(name)

    def worker(self, name: str) -> Any:
        """Put a pod on the node; nobody runs it, so it goes only when somebody says that it has."""
        container = {"name": "c", "image": "i"}
        spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 110}
        return self.core.create_namespaced_pod(JOB, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str) -> Any:
        return self.core.read_namespaced_pod(name, JOB)

    def gone(self, name: str) -> None:
        """Say, as a kubelet would, that a pod has ended."""
        self.core.delete_namespaced_pod(name, JOB, grace_period_seconds=0)


@pytest.fixture(scope="package")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    twin = Twin.open(f"spot-{os.getpid()}")
    try:
        twin.up([], Silent())
        yield furnished(twin.kubeconfig, tmp_path_factory.mktemp("credentials"))
    finally:
        twin.down(Silent())


def furnished(kubeconfig: Path, credentials: Path) -> Bench:
    """Put nodes, namespaces and the watcher's rights into an empty cluster."""
    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    said = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    for name in (SYSTEM, JOB):
        core.create_namespace({"metadata": {"name": name}})
    for name in (NODE, OTHER_NODE):
        core.create_node({"metadata": {"name": name}})
    kubectl = ("kubectl", "--kubeconfig", str(kubeconfig), "-n", SYSTEM)
    rights = ROOT / "manifests" / "spot-rbac.yaml"
    subprocess.run([*kubectl, "apply", "-f", str(rights)], check=True, capture_output=True)
    # A token that is bound to a pod says on which node that pod is, as the kubelet's tokens do.
    spec = {
        "nodeName": NODE,
        "serviceAccountName": "spot",
        "containers": [{"name": "c", "image": "i"}],
    }
    core.create_namespaced_pod(SYSTEM, {"metadata": {"name": "watcher"}, "spec": spec})
    # One that has ended: no drain is about it, and its token is as good as long as it is there.
    ended = {"status": {"phase": "Succeeded"}}
    core.patch_namespaced_pod_status("watcher", SYSTEM, ended)
    bound = ("--bound-object-kind=Pod", "--bound-object-name=watcher")
    token = subprocess.run(
        [*kubectl, "create", "token", "spot", *bound], check=True, capture_output=True
    )
    (credentials / "token").write_bytes(token.stdout)
    (credentials / "ca.crt").write_bytes(base64.b64decode(said["certificate-authority-data"]))
    return Bench(core, said["server"], credentials)


@contextlib.contextmanager
def watching(bench: Bench, service: Service, *words: str) -> Iterator[None]:
    """Run the watcher until the block ends; it must end well when told to."""
    command = [sys.executable, "-m", "spot", "--node", NODE, "--metadata", service.base]
    access = ["--api", bench.address, "--credentials", str(bench.credentials)]
    process = subprocess.Popen([*command, *access, *words], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        _, log = process.communicate(timeout=20)
        print(log.decode())
    assert process.returncode == 0


@pytest.fixture
def azure(bench: Bench) -> Iterator[Service]:
    with serving("azure") as service:
        yield service


@pytest.fixture
def aws(bench: Bench) -> Iterator[Service]:
    with serving("aws") as service:
        yield service


def eventually(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
