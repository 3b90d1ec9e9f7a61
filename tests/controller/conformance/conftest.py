"""Gives the conformance tests a cluster, a controller, and somebody to play the kubelets.

By default: the twin's control plane without machines, the maintained controller as a process with
the rights of its own service account, and the stand-in kubelet. To try another controller that runs
in a cluster already (which must hold no other nodes and have the ElasticJob's definition
installed), name the cluster and what selects the controller's pods:

    EVERSTEP_CONFORMANCE_KUBECONFIG=... EVERSTEP_CONFORMANCE_CONTROLLER=app=torch-elastic pytest
    tests/controller/conformance

With EVERSTEP_CONFORMANCE_UPSTREAM=1 the tests that the published TorchElastic controller is known
to fail are expected to.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import yaml
from kubernetes import client, config, utils

from everstep.progress import Silent
from tests.controller.conformance.bench import Bench
from tests.controller.conformance.fake_kubelet import FakeKubelet

ROOT = Path(__file__).parents[3]
NAMESPACE = "elastic-job"
NODES = ("stand-in-0", "stand-in-1", "stand-in-2")


def pytest_configure(config: pytest.Config) -> None:
    text = (
        "upstream_known_wrong(reason): the published TorchElastic controller is known to fail this"
    )
    config.addinivalue_line("markers", text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.twin)
        known = item.get_closest_marker("upstream_known_wrong")
        if known and os.environ.get("EVERSTEP_CONFORMANCE_UPSTREAM"):
            item.add_marker(pytest.mark.xfail(reason=known.args[0], strict=True))


class Controller(Protocol):
    """The controller under test, seen from outside."""

    def stop(self) -> None: ...
    def start(self) -> None: ...


class OwnProcess:
    """The maintained controller, as a process on this machine with its service account's rights."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig, self.log = kubeconfig, log
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        flags = [
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            str(self.kubeconfig),
            "--metrics-port",
            "0",
        ]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controller", *flags], cwd=ROOT, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """Kill it: an orderly end proves less."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None


class SomebodyElses:
    """A controller in the cluster, known by its pods; its Deployment is scaled to stop and to start it."""

    def __init__(self, api: client.ApiClient, selector: str) -> None:
        self.apps, self.selector = client.AppsV1Api(api), selector

    def start(self) -> None:
        self._scale(1)

    def stop(self) -> None:
        self._scale(0)

    def _scale(self, replicas: int) -> None:
        for found in self.apps.list_namespaced_deployment(
            NAMESPACE, label_selector=self.selector
        ).items:
            body = {"spec": {"replicas": replicas}}
            self.apps.patch_namespaced_deployment_scale(found.metadata.name, NAMESPACE, body)


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """The kubeconfig of an administrator of the cluster."""
    named = os.environ.get("EVERSTEP_CONFORMANCE_KUBECONFIG")
    if named:
        yield Path(named)
        return
    from twin.nodes import Twin

    twin = Twin.open(f"conformance-{uuid.uuid4().hex[:6]}")
    try:
        twin.up([], Silent())
        yield twin.kubeconfig
    finally:
        twin.down(Silent())


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(kubeconfig)) as connection:
        yield connection


@pytest.fixture(scope="session")
def controller(
    api: client.ApiClient, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """The controller under test, running."""
    selector = os.environ.get("EVERSTEP_CONFORMANCE_CONTROLLER")
    if selector:
        yield SomebodyElses(api, selector)
        return
    _install(api)
    folder = tmp_path_factory.mktemp("controller")
    process = OwnProcess(_as_service_account(api, kubeconfig, folder), folder / "log")
    process.start()
    yield process
    process.stop()
    log = process.log.read_text()
    assert "Traceback" not in log, f"the controller must never meet an error of its own:\n{log}"


@pytest.fixture(scope="session")
def kubelet(api: client.ApiClient, controller: Controller) -> Iterator[FakeKubelet]:
    """The stand-in for all kubelets."""
    kubelet = FakeKubelet(api, NAMESPACE, NODES)
    kubelet.start()
    core = client.CoreV1Api(api)
    _wait(
        lambda: all(not node.spec.taints for node in core.list_node().items), "the nodes take pods"
    )
    yield kubelet
    kubelet.stop()


@pytest.fixture
def bench(api: client.ApiClient, kubelet: FakeKubelet) -> Bench:
    """The namespace to make jobs in."""
    return Bench(api, NAMESPACE)


@pytest.fixture
def name(request: pytest.FixtureRequest, bench: Bench) -> Iterator[str]:
    """A job name of the test's own; the job is deleted after the test."""
    name = f"job-{uuid.uuid4().hex[:6]}"
    yield name
    from tests.controller.conformance.bench import Job

    job = Job(bench, name)
    if not job.gone():
        job.delete()


def _install(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    for name in ("elasticjob-crd.yaml", "controller-rbac.yaml"):
        for part in yaml.safe_load_all((ROOT / "manifests" / name).read_text()):
            utils.create_from_dict(api, part)
    crds = client.ApiextensionsV1Api(api)
    served = "elasticjobs.elastic.pytorch.org"

    def established() -> bool:
        conditions = crds.read_custom_resource_definition(served).status.conditions or ()
        return any(item.type == "Established" and item.status == "True" for item in conditions)

    _wait(established, "the definition of ElasticJobs is served")


def _as_service_account(api: client.ApiClient, kubeconfig: Path, folder: Path) -> Path:
    """Write a kubeconfig with the controller's own rights, so that a missing rule shows."""
    core = client.CoreV1Api(api)
    body = {"spec": {"expirationSeconds": 3600}}
    token = core.create_namespaced_service_account_token("elasticjob-controller", NAMESPACE, body)
    known = yaml.safe_load(kubeconfig.read_text())
    known["users"] = [
        {"name": user["name"], "user": {"token": token.status.token}} for user in known["users"]
    ]
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(known))
    return path


def _wait(true, what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
