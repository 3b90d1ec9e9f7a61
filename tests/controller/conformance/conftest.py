"""Fixtures of the conformance tests: a cluster, a controller and kubelets (real or simulated).

The same test functions run in two environments:

    stand-in    the twin's control plane without machines, and strict simulated kubelets
                (fake_kubelet.py): quick, with exact control of the reported statuses
    pods        machines of a twin with real kubelets and containers (real_pods.py): processes that
                exit with a code, are killed, evicted, or lost with their machine

`make test-twin` runs all tests on the stand-in and a subset (POD_TESTS) on pods. EVERSTEP_CONFORMANCE
selects the environment: `stand-in`, or `pods` for all tests there (about ten minutes). A test with the
marker `only_on` runs in one environment only.

The controller under test is the maintained one, as a process with the permissions of its service
account. To test another controller, give its image; it runs on a machine without workers:

    EVERSTEP_TWIN_IMAGES=/path/to/torchelastic-kubernetes.tar    an OCI archive (skopeo copy
        docker://torchelastic/kubernetes:0.1.0 oci-archive:torchelastic-kubernetes.tar:torchelastic/kubernetes:0.1.0)
    EVERSTEP_CONFORMANCE=pods
    EVERSTEP_CONFORMANCE_IMAGE=torchelastic/kubernetes:0.1.0
    EVERSTEP_CONFORMANCE_UPSTREAM=1    runs it with the command and permissions of the upstream
        TorchElastic controller, and expects its known failures (`known_upstream_failure`)
    pytest -m twin tests/controller/conformance

Or use a cluster without other nodes, with the ElasticJob's CRD and a running controller, and give
the label selector of its Deployment; the kubelets are simulated there:

    EVERSTEP_CONFORMANCE_KUBECONFIG=/path/to/kubeconfig
    EVERSTEP_CONFORMANCE_CONTROLLER=app=torch-elastic
    pytest -m twin tests/controller/conformance
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from cloudtwin.nodes import Twin
from kubernetes import client, config

from everstep.cli.images import OPTIONS
from everstep.progress import Silent
from tests.controller.conformance import real_pods
from tests.controller.conformance.fake_kubelet import FakeKubelet, accepts_workers
from tests.controller.conformance.in_cluster import InCluster, install
from tests.controller.conformance.job_namespace import Job, JobNamespace
from tests.controller.conformance.real_pods import RealPods
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
NAMESPACE = "elastic-job"
NODES = ("stand-in-0", "stand-in-1", "stand-in-2")
NODES_SECONDS = 300.0
STAND_IN, PODS = "stand-in", "pods"
REAL_PODS_TIME_FACTOR = 4.0
"""Real containers start and end within seconds; kubelets check their disks every 10 s."""

SHORT_DELAYS = ("--scale-down-after=3", "--scale-up-after=1", "--request-capacity-after=30")
"""Delays for jobs that follow capacity; the defaults of the controller would take minutes."""

POD_TESTS = {
    "test_workers_continue_to_train_while_the_api_server_does_not_respond",
    "test_a_job_follows_its_machines_without_disturbing_other_workers",
    "test_a_running_worker_reads_bounds_that_changed",
    "test_each_worker_has_a_pod_and_a_headless_service_of_the_same_name",
    "test_a_worker_killed_by_a_signal_is_replaced_and_the_others_stay[pods-137]",
    "test_a_worker_killed_by_a_signal_is_replaced_and_the_others_stay[pods-143]",
    "test_a_failed_worker_is_replaced_after_a_back_off[pods-1]",
    "test_a_failed_worker_is_replaced_after_a_back_off[pods-139]",
    "test_an_evicted_worker_is_replaced",
    "test_a_worker_evicted_through_the_api_is_replaced",
    "test_a_worker_that_exits_with_0_on_sigterm_has_not_finished",
    "test_workers_of_a_deleted_node_are_replaced",
    "test_a_job_succeeds_when_all_workers_have_finished",
    "test_events_during_a_downtime_of_the_controller_are_handled_after_it",
}
"""Tests that need real processes and machines, and basic tests."""


def pytest_configure(config: pytest.Config) -> None:
    description = (
        "known_upstream_failure(reason): the upstream TorchElastic controller is known to fail this"
    )
    config.addinivalue_line("markers", description)
    config.addinivalue_line("markers", "only_on(environment, reason): runs in one environment only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    conformance_items = [item for item in items if Path(__file__).parent in item.path.parents]
    deselected_ids = {id(item) for item in conformance_items if not _is_selected(item)}
    config.hook.pytest_deselected(
        items=[item for item in conformance_items if id(item) in deselected_ids]
    )
    items[:] = [item for item in items if id(item) not in deselected_ids]
    for item in conformance_items:
        item.add_marker(pytest.mark.twin)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Expect failed assertions in a test that the upstream controller is known to fail.

    A marker `xfail` would also accept errors of fixtures and of the API, with which a test proves nothing.
    """
    marker = pyfuncitem.get_closest_marker("known_upstream_failure")
    if not marker or not os.environ.get("EVERSTEP_CONFORMANCE_UPSTREAM"):
        return (yield)
    try:
        yield
    except AssertionError as error:
        pytest.xfail(f"{marker.args[0]}: {str(error).partition(chr(10))[0]}")
    pytest.fail(f"passes, but is marked as known to fail: {marker.args[0]}", pytrace=False)


def _is_selected(item: pytest.Item) -> bool:
    """Return True if a test runs in the environment of its parameter."""
    spec = getattr(item, "callspec", None)
    environment = spec.params.get("environment") if spec else None
    marker = item.get_closest_marker("only_on")
    if marker and environment != marker.args[0]:
        return False
    selected_environments = os.environ.get("EVERSTEP_CONFORMANCE")
    if os.environ.get("EVERSTEP_CONFORMANCE_KUBECONFIG"):  # real pods need a twin
        selected_environments = STAND_IN
    if environment is None or selected_environments:
        return environment in (None, selected_environments)
    function = item.name.partition("[")[0]
    return environment == STAND_IN or item.name in POD_TESTS or function in POD_TESTS


class Controller(Protocol):
    """The interface to the controller under test."""

    def stop(self) -> None: ...
    def start(self) -> None: ...


def start_controller(kubeconfig: Path, log: Path, *flags: str) -> "subprocess.Popen[bytes]":
    """Start the maintained controller as a process that appends to a log."""
    command = [sys.executable, "-m", "controller", f"--namespace={NAMESPACE}"]
    command += [f"--kubeconfig={kubeconfig}", "--metrics-port=0", *flags]
    with log.open("a") as stream:
        return subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=stream)


class ControllerProcess:
    """The maintained controller, as a process with the permissions of its service account."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig, self.log = kubeconfig, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = start_controller(self.kubeconfig, self.log, *SHORT_DELAYS)

    def stop(self) -> None:
        """Kill the process, since a graceful shutdown would be a weaker test."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(100)
            self.process = None


class ExternalController:
    """A controller in the cluster; its Deployment is found by its labels, and scaled to stop and to start it."""

    def __init__(self, api: client.ApiClient, selector: str) -> None:
        self.selector = selector
        self.apps: Any = client.AppsV1Api(api)  # the stubs make every field optional

    def start(self) -> None:
        self._scale(1)

    def stop(self) -> None:
        self._scale(0)

    def _scale(self, replicas: int) -> None:
        for deployment in self.apps.list_namespaced_deployment(
            NAMESPACE, label_selector=self.selector
        ).items:
            body = {"spec": {"replicas": replicas}}
            self.apps.patch_namespaced_deployment_scale(deployment.metadata.name, NAMESPACE, body)


@pytest.fixture(scope="session", params=[STAND_IN, PODS])
def environment(request: pytest.FixtureRequest) -> str:
    """Return the environment of the jobs."""
    return str(request.param)


@pytest.fixture(scope="session")
def twin(environment: str) -> Iterator[Twin | None]:
    """Yield a twin for these tests; None for an external cluster."""
    if os.environ.get("EVERSTEP_CONFORMANCE_KUBECONFIG"):
        yield None
        return
    twin = Twin.open(f"conformance-{uuid.uuid4().hex[:6]}", OPTIONS)
    try:
        twin.up([], Silent())
        yield twin
    finally:
        twin.down(Silent())


@pytest.fixture(scope="session")
def kubeconfig(twin: Twin | None) -> Path:
    """Return the kubeconfig of a cluster administrator."""
    return twin.kubeconfig if twin else Path(os.environ["EVERSTEP_CONFORMANCE_KUBECONFIG"])


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    connection = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]  # the client has no types
    with connection:
        yield connection


@pytest.fixture(scope="session")
def machines(
    environment: str, twin: Twin | None, api: client.ApiClient
) -> Iterator[FakeKubelet | RealPods]:
    """Yield the kubelets before they are started."""
    if environment == STAND_IN:
        yield FakeKubelet(api, NAMESPACE, NODES)
        return
    assert twin is not None, "real pods need a twin"
    yield RealPods(twin, api, NAMESPACE)


@pytest.fixture(scope="session")
def controller(
    api: client.ApiClient,
    kubeconfig: Path,
    machines: FakeKubelet | RealPods,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Controller]:
    """Yield the running controller under test."""
    if selector := os.environ.get("EVERSTEP_CONFORMANCE_CONTROLLER"):
        yield ExternalController(api, selector)
        return
    upstream = bool(os.environ.get("EVERSTEP_CONFORMANCE_UPSTREAM"))
    install(api, NAMESPACE, upstream=upstream)
    if image := os.environ.get("EVERSTEP_CONFORMANCE_IMAGE"):
        assert isinstance(machines, RealPods), "an image needs EVERSTEP_CONFORMANCE=pods"
        machines.start()
        yield from InCluster(
            api, NAMESPACE, image, upstream=upstream, flags=SHORT_DELAYS
        ).deployed()
        return
    folder = tmp_path_factory.mktemp("controller")
    process = ControllerProcess(_as_service_account(api, kubeconfig, folder), folder / "log")
    process.start()
    yield process
    process.stop()
    log = process.log.read_text()
    assert "Traceback" not in log, f"the controller must log no errors:\n{log}"


@pytest.fixture(scope="session")
def kubelet(
    api: client.ApiClient, controller: Controller, machines: FakeKubelet | RealPods
) -> Iterator[FakeKubelet | RealPods]:
    """Yield the started kubelets."""
    machines.start()
    core: Any = client.CoreV1Api(api)
    wait_until(
        lambda: all(accepts_workers(core.read_node(name)) for name in machines.workers),
        "the nodes of the workers accept pods",
        NODES_SECONDS,
    )
    yield machines
    machines.stop()


@pytest.fixture
def job_namespace(api: client.ApiClient, kubelet: FakeKubelet | RealPods) -> JobNamespace:
    """Return the namespace for jobs."""
    if isinstance(kubelet, RealPods):
        return JobNamespace(api, NAMESPACE, real_pods.adapt_pod, REAL_PODS_TIME_FACTOR)
    return JobNamespace(api, NAMESPACE)


@pytest.fixture
def name(request: pytest.FixtureRequest, job_namespace: JobNamespace) -> Iterator[str]:
    """Yield a unique job name; the job is deleted after the test."""
    name = f"job-{uuid.uuid4().hex[:6]}"
    yield name
    job = Job(job_namespace, name)
    if not job.is_gone():
        job.delete()


def _as_service_account(api: client.ApiClient, kubeconfig: Path, folder: Path) -> Path:
    """Write a kubeconfig with the permissions of the controller, so that a missing rule is detected."""
    core: Any = client.CoreV1Api(api)
    body = {"spec": {"expirationSeconds": 3600}}
    token = core.create_namespaced_service_account_token("elasticjob-controller", NAMESPACE, body)
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [
        {"name": user["name"], "user": {"token": token.status.token}} for user in content["users"]
    ]
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
    return path
