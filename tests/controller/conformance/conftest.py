"""Gives the conformance tests a cluster, a controller, and somebody to play the kubelets.

The same test functions run on two grounds:

    stand-in    the twin's control plane without machines, and a strict stand-in for the kubelets
                (fake_kubelet.py): quick, and able to say exactly what a kubelet would say
    pods        machines of a twin with real kubelets and containers (real_pods.py): processes that
                end with a code, are killed, are evicted, are lost with their machine

`make test-twin` runs all tests on the stand-in and a subset (ON_PODS) on pods. EVERSTEP_CONFORMANCE
chooses otherwise: `stand-in`, or `pods` for all tests there (about ten minutes).

The controller under test is the maintained one, as a process with the rights of its own service
account. Another one is tried by its image, which runs on a machine of its own beside the workers':

    EVERSTEP_TWIN_IMAGES=/path/to/torchelastic-kubernetes.tar    an OCI archive (skopeo copy
        docker://torchelastic/kubernetes:0.1.0 oci-archive:torchelastic-kubernetes.tar:torchelastic/kubernetes:0.1.0)
    EVERSTEP_CONFORMANCE=pods
    EVERSTEP_CONFORMANCE_IMAGE=torchelastic/kubernetes:0.1.0
    EVERSTEP_CONFORMANCE_UPSTREAM=1    runs it as the published TorchElastic controller wants to be
        run, and expects the tests to fail that it is known to fail (`upstream_known_wrong`)
    pytest -m twin tests/controller/conformance

Or name a cluster (with no other nodes, and the ElasticJob's definition installed) in which a
controller runs already, and what selects its pods; the stand-in plays the kubelets there:

    EVERSTEP_CONFORMANCE_KUBECONFIG=... EVERSTEP_CONFORMANCE_CONTROLLER=app=torch-elastic pytest ...
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
from kubernetes import client, config

from everstep.progress import Silent
from tests.controller.conformance import real_pods
from tests.controller.conformance.bench import Bench
from tests.controller.conformance.fake_kubelet import FakeKubelet
from tests.controller.conformance.in_cluster import InCluster, install
from tests.controller.conformance.real_pods import RealPods
from twin.nodes import Twin

ROOT = Path(__file__).parents[3]
NAMESPACE = "elastic-job"
NODES = ("stand-in-0", "stand-in-1", "stand-in-2")
STAND_IN, PODS = "stand-in", "pods"
PATIENCE = 4.0
"""Real containers start and end within seconds, and their disks are looked at every ten."""

IMPATIENT = ("--scale-down-after=3", "--scale-up-after=1", "--ask-after=30")
"""For jobs that follow capacity; the controller's own times would make tests of minutes."""

ON_PODS = {
    "test_a_job_follows_its_machines_down_and_up_and_leaves_the_others_alone",
    "test_a_running_worker_reads_bounds_that_changed",
    "test_each_worker_has_a_pod_and_a_headless_service_of_one_name",
    "test_a_worker_that_a_signal_ended_is_replaced_and_the_others_stay[pods-137]",
    "test_a_worker_that_a_signal_ended_is_replaced_and_the_others_stay[pods-143]",
    "test_a_worker_that_failed_is_replaced_after_a_pause[pods-1]",
    "test_a_worker_that_failed_is_replaced_after_a_pause[pods-139]",
    "test_a_worker_that_its_kubelet_evicted_is_replaced",
    "test_a_drained_worker_is_replaced",
    "test_a_worker_that_exits_with_0_because_it_is_asked_to_go_has_not_finished",
    "test_workers_of_a_node_that_is_gone_are_replaced",
    "test_a_job_all_of_whose_workers_finished_has_succeeded",
    "test_what_happened_while_no_controller_ran_is_made_good",
}
"""What only real processes and machines can show, and what all else stands on."""


def pytest_configure(config: pytest.Config) -> None:
    text = (
        "upstream_known_wrong(reason): the published TorchElastic controller is known to fail this"
    )
    config.addinivalue_line("markers", text)
    config.addinivalue_line("markers", "only_on(ground, reason): says nothing on other grounds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    unwanted = {id(item) for item in ours if not _wanted(item)}
    config.hook.pytest_deselected(items=[item for item in ours if id(item) in unwanted])
    items[:] = [item for item in items if id(item) not in unwanted]
    for item in ours:
        item.add_marker(pytest.mark.twin)
        known = item.get_closest_marker("upstream_known_wrong")
        if known and os.environ.get("EVERSTEP_CONFORMANCE_UPSTREAM"):
            item.add_marker(pytest.mark.xfail(reason=known.args[0], strict=True))


def _wanted(item: pytest.Item) -> bool:
    """Whether a test is to run on the ground that it was made for."""
    spec = getattr(item, "callspec", None)
    ground = spec.params.get("ground") if spec else None
    only = item.get_closest_marker("only_on")
    if only and ground != only.args[0]:
        return False
    chosen = os.environ.get("EVERSTEP_CONFORMANCE")
    if ground is None or chosen:
        return ground in (None, chosen)
    function = item.name.partition("[")[0]
    return ground == STAND_IN or item.name in ON_PODS or function in ON_PODS


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
            *IMPATIENT,
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


@pytest.fixture(scope="session", params=[STAND_IN, PODS])
def ground(request: pytest.FixtureRequest) -> str:
    """What the jobs run on."""
    return str(request.param)


@pytest.fixture(scope="session")
def twin(ground: str) -> Iterator[Twin | None]:
    """A twin of our own; None where the cluster is somebody else's."""
    if os.environ.get("EVERSTEP_CONFORMANCE_KUBECONFIG"):
        yield None
        return
    twin = Twin.open(f"conformance-{uuid.uuid4().hex[:6]}")
    try:
        twin.up([], Silent())
        yield twin
    finally:
        twin.down(Silent())


@pytest.fixture(scope="session")
def kubeconfig(twin: Twin | None) -> Path:
    """The kubeconfig of an administrator of the cluster."""
    return twin.kubeconfig if twin else Path(os.environ["EVERSTEP_CONFORMANCE_KUBECONFIG"])


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(kubeconfig)) as connection:
        yield connection


@pytest.fixture(scope="session")
def machines(
    ground: str, twin: Twin | None, api: client.ApiClient
) -> Iterator[FakeKubelet | RealPods]:
    """Whoever runs the pods, not yet at work."""
    if ground == STAND_IN:
        yield FakeKubelet(api, NAMESPACE, NODES)
        return
    assert twin is not None, "real pods need a twin of our own"
    yield RealPods(twin, api, NAMESPACE)


@pytest.fixture(scope="session")
def controller(
    api: client.ApiClient,
    kubeconfig: Path,
    machines: FakeKubelet | RealPods,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Controller]:
    """The controller under test, running."""
    if selector := os.environ.get("EVERSTEP_CONFORMANCE_CONTROLLER"):
        yield SomebodyElses(api, selector)
        return
    upstream = bool(os.environ.get("EVERSTEP_CONFORMANCE_UPSTREAM"))
    install(api, NAMESPACE, upstream=upstream)
    if image := os.environ.get("EVERSTEP_CONFORMANCE_IMAGE"):
        assert isinstance(machines, RealPods), "an image needs EVERSTEP_CONFORMANCE=pods"
        machines.start()
        yield from InCluster(api, NAMESPACE, image, upstream=upstream).running()
        return
    folder = tmp_path_factory.mktemp("controller")
    process = OwnProcess(_as_service_account(api, kubeconfig, folder), folder / "log")
    process.start()
    yield process
    process.stop()
    log = process.log.read_text()
    assert "Traceback" not in log, f"the controller must never meet an error of its own:\n{log}"


@pytest.fixture(scope="session")
def kubelet(
    api: client.ApiClient, controller: Controller, machines: FakeKubelet | RealPods
) -> Iterator[FakeKubelet | RealPods]:
    """Whoever runs the pods, at work."""
    machines.start()
    core = client.CoreV1Api(api)
    _wait(
        lambda: all(not node.spec.taints for node in core.list_node().items), "the nodes take pods"
    )
    yield machines
    machines.stop()


@pytest.fixture
def bench(api: client.ApiClient, kubelet: FakeKubelet | RealPods) -> Bench:
    """The namespace to make jobs in."""
    if isinstance(kubelet, RealPods):
        return Bench(api, NAMESPACE, real_pods.dressed, PATIENCE)
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
