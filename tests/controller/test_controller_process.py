"""The process of the controller: its work queue, Lease, metrics and command line."""

import asyncio
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.__main__ import parse
from controller.client import CONFLICT, NOT_FOUND, ApiError, KubernetesClient
from controller.joining import JoinReader
from controller.leader import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    REQUEST_SECONDS,
    Candidate,
    keep_leading,
    wait_to_lead,
)
from controller.metrics import Metrics, serve
from controller.progress import ProgressReader
from controller.reconcile import Reconciler
from controller.status import Status
from controller.workqueue import WorkQueue
from tests.controller.builders import decide, job, pod, spec
from tests.controller.simulator.model import KEY, ModelCluster
from tests.http_servers import stopping
from tests.ipv6 import needs_ipv6


def test_a_time_within_a_second_is_due_at_the_end_of_the_second() -> None:
    """A pass truncates the time to whole seconds: until the second ends, passes would repeat without a pause."""
    cluster, deadline = ModelCluster(), datetime(2026, 1, 1, 0, 0, 30, 250_000, tzinfo=UTC)
    cluster.source["spec"]["spending"] = {"deadline": deadline.isoformat(), "onDemand": "never"}
    reconciler = Reconciler(cluster, Metrics(), now=lambda: cluster.now)
    cluster.now = deadline + timedelta(seconds=0.25)

    assert reconciler.reconcile(KEY) == pytest.approx(0.5)


class FakeLeaseApi(KubernetesClient):
    """The API server's side of one Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def request(
        self, method: str, _path: str, body: Any = None, _query: object = None, _content: str = ""
    ) -> Any:
        if method == "GET":
            if self.lease is None:
                raise ApiError(NOT_FOUND, "no lease")
            return self.lease
        if method == "PUT" and body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(CONFLICT, "modified")
        self.version += 1
        self.lease = {
            **body,
            "metadata": {**body["metadata"], "resourceVersion": str(self.version)},
        }
        return self.lease

    @property
    def transitions(self) -> int:
        """Number of times that another candidate has taken the lease."""
        assert self.lease is not None
        transitions: int = self.lease["spec"]["leaseTransitions"]
        return transitions


def test_the_metrics_of_a_deleted_jobs_workers_are_forgotten() -> None:
    cluster, scrapes = ModelCluster(), list[str]()
    worker = pod(0, address="10.0.0.1")

    def scrape(address: str) -> str:
        scrapes.append(address)
        return f'everstep_worker_steps_total{{worker="{worker.name}"}} 1'

    reconciler = Reconciler(
        cluster,
        Metrics(),
        now=lambda: cluster.now,
        progress=ProgressReader(scrape),
        joining=JoinReader(scrape),
    )
    reconciler.reconcile(KEY)
    (uid,) = reconciler.uids.values()

    def scrapes_of_both_readers() -> int:
        scrapes.clear()
        reconciler.progress.share(uid, [worker], cluster.now)
        reconciler.joining.joined_pods(uid, [worker])
        return len(scrapes)

    assert [scrapes_of_both_readers() for _ in range(2)] == [2, 0]
    cluster.deleted = True
    reconciler.reconcile(KEY)

    assert not reconciler.uids
    assert scrapes_of_both_readers() == 2


def test_the_second_candidate_leads_only_after_the_lease_of_the_first_has_expired() -> None:
    time, leases = [0.0], FakeLeaseApi()
    first, second = (Candidate(leases, "ns", name, clock=lambda: time[0]) for name in ("a", "b"))
    assert first.try_to_lead()
    assert leases.transitions == 0
    assert not second.try_to_lead()

    time[0] += LEASE_SECONDS - 1
    assert first.try_to_lead()
    assert not second.try_to_lead()

    time[0] += LEASE_SECONDS + 1
    assert second.try_to_lead()
    assert leases.transitions == 1
    assert not first.try_to_lead(), "a candidate that does not renew loses the lease"


def test_a_released_lease_is_free_immediately() -> None:
    leases = FakeLeaseApi()
    first, second = (Candidate(leases, "ns", name) for name in ("a", "b"))
    assert first.try_to_lead()

    first.release()

    assert second.try_to_lead()


class UnavailableLeaseApi(KubernetesClient):
    """An API server that does not respond."""

    def __init__(self) -> None:
        pass

    def request(self, *_: object) -> Any:
        raise TimeoutError("no response")


def loss_times(api: KubernetesClient) -> list[float]:
    """Return when a leader reports that its lease is lost, in seconds since its last renewal."""
    time, losses = [0.0], list[float]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            time[0] += timeout or 0.0
            return time[0] > 10 * LEASE_SECONDS

    candidate = Candidate(api, "ns", "leader", clock=lambda: time[0])
    keep_leading(candidate, Stop(), lambda: losses.append(time[0]))
    return losses


def test_a_lost_lease_is_reported_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    taken_lease = FakeLeaseApi()
    assert Candidate(taken_lease, "ns", "other").try_to_lead()

    assert loss_times(taken_lease) == [RENEW_SECONDS]
    assert caplog.messages[-1] == "the lease is lost: another controller holds it"

    assert loss_times(UnavailableLeaseApi()) == [LEASE_SECONDS - RENEW_SECONDS]
    assert caplog.messages[-1] == "the lease is lost: it was not renewed in time"


@pytest.mark.parametrize("renewals", [0, 1, 2])
def test_a_leader_whose_requests_block_reports_the_loss_before_its_lease_expires(
    renewals: int,
) -> None:
    time, writes, losses = [0.0], list[float](), list[float]()

    class BlockingLeaseApi(FakeLeaseApi):
        """An API server that responds at the end of the timeout, and not at all after some renewals."""

        def request(self, method: str, *arguments: Any) -> Any:
            started_at, time[0] = time[0], time[0] + REQUEST_SECONDS
            if self.version > renewals:
                raise TimeoutError("no response")
            response = super().request(method, *arguments)
            if method != "GET":
                writes.append(started_at)
            return response

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            time[0] += timeout or 0.0
            return time[0] > 10 * LEASE_SECONDS

    candidate = Candidate(BlockingLeaseApi(), "ns", "leader", clock=lambda: time[0])
    assert candidate.try_to_lead()
    keep_leading(candidate, Stop(), lambda: losses.append(time[0]))

    assert len(writes) == 1 + renewals
    assert losses[0] <= writes[-1] + LEASE_SECONDS, "another candidate may lead from then on"


# A controller that becomes the leader; `operator` is the body of its operator's `run`.
PROCESS = """
import asyncio, itertools, os, signal, sys, threading, time
from controller import leader
from controller.__main__ import Process, parse

async def run(stop):
    {operator}

def try_to_lead():
    process.candidate.renewed_at = time.monotonic()
    return next(answers)

leader.RENEW_SECONDS = 0.1
answers = itertools.chain([True], itertools.repeat({keeps_lease}))
process = Process(parse(["--leader-elect", "--metrics-port=0", "--kubeconfig", sys.argv[1]]))
process.candidate.try_to_lead = try_to_lead
process.candidate.release = lambda: print("released")
process.operator.run = run
sys.exit(process.run())
"""
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: t}}]
"""


def run_process(folder: Path, operator: str, *, keeps_lease: bool) -> tuple[int, str]:
    """Return the exit code and the output of a controller."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    script = PROCESS.format(operator=operator, keeps_lease=keeps_lease)
    result = subprocess.run(
        [sys.executable, "-c", script, str(kubeconfig)],
        check=False, timeout=100, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return result.returncode, result.stdout


def test_a_controller_that_loses_its_lease_does_not_wait_for_a_pass_in_progress(
    tmp_path: Path,
) -> None:
    endless_pass = "await asyncio.to_thread(threading.Event().wait)"

    assert run_process(tmp_path, endless_pass, keeps_lease=False) == (1, "")


def test_sigterm_stops_a_controller_that_has_just_become_the_leader(tmp_path: Path) -> None:
    """At this time, kopf does not handle signals yet."""
    interrupted_start = "os.kill(os.getpid(), signal.SIGTERM); await stop.wait()"

    assert run_process(tmp_path, interrupted_start, keeps_lease=True) == (0, "released\n")


def test_a_candidate_on_standby_is_healthy_and_tries_again_after_an_error() -> None:
    attempts_before_stop, heartbeats = 3, list[None]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == RENEW_SECONDS
            if len(heartbeats) == attempts_before_stop:
                self.set()
            return self.is_set()

    candidate = Candidate(UnavailableLeaseApi(), "ns", "standby")
    assert not wait_to_lead(candidate, Stop(), lambda: heartbeats.append(None))
    assert len(heartbeats) == attempts_before_stop

    assert wait_to_lead(Candidate(FakeLeaseApi(), "ns", "leader"), Stop(), lambda: None)


def test_a_key_that_is_added_while_it_is_processed_is_taken_again_afterwards() -> None:
    async def scenario() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("a")
        assert await queue.take() == "a"
        queue.add("a")
        take_task = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        assert not take_task.done(), "two concurrent passes over one job would conflict"
        queue.done("a")
        assert await take_task == "a"

    asyncio.run(scenario())


def test_failures_of_a_key_back_off_and_a_success_resets_the_delay() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)

    delays = [queue.failed("a") for _ in range(12)]
    queue.done("a")

    assert delays[:3] == [0.2, 0.4, 0.8]
    assert delays[-1] == 60.0
    assert queue.failed("a") == 0.2


def body(url: str) -> str:
    """Return the body of a successful response."""
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
def test_the_kubelet_probes_the_controller_at_a_pods_address_of_either_family(host: str) -> None:
    with stopping(serve(Metrics(), 0, lambda: True)) as port:
        assert body(f"http://{host}:{port}/healthz") == "ok\n"


def test_the_health_check_fails_while_the_event_loop_hangs() -> None:
    with (
        stopping(serve(Metrics(), 0, lambda: False)) as port,
        pytest.raises(urllib.error.HTTPError, match="503") as error,
    ):
        body(f"http://127.0.0.1:{port}/healthz")
    error.value.close()


def test_jobs_are_counted_by_condition_until_they_are_deleted() -> None:
    metrics = Metrics()
    with stopping(serve(metrics, 0, lambda: True)) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        metrics.observe_job(("ns", "job"), decide(job(), pod(0)).status, job().spec)
        assert 'elasticjob_jobs{condition="Running"} 1.0' in body(url)

        metrics.forget(("ns", "job"))

        assert 'elasticjob_jobs{condition="Running"} 0.0' in body(url)


def test_a_cause_of_restarts_is_exported_before_its_first_restart() -> None:
    """Otherwise, `increase()` would not count the first restart."""
    labels = {"cause": "node_lost"}
    assert Metrics().registry.get_sample_value("elasticjob_worker_restarts_total", labels) == 0


def sample(metrics: Metrics, name: str) -> float | None:
    """Return a value of the job ns/job."""
    return metrics.registry.get_sample_value(name, {"namespace": "ns", "elasticjob": "job"})


def test_the_metrics_count_the_workers_of_each_job_until_it_is_deleted() -> None:
    metrics, elastic_job = Metrics(), job(spec(3, min_replicas=2))
    metrics.forget(("ns", "job"))  # a job that was never observed

    metrics.observe_job(("ns", "job"), decide(elastic_job, pod(0)).status, elastic_job.spec)

    assert sample(metrics, "elasticjob_replicas") == 3
    assert sample(metrics, "elasticjob_desired_workers") == 3
    assert sample(metrics, "elasticjob_min_replicas") == 2
    assert sample(metrics, "elasticjob_running_workers") == 1
    metrics.forget(("ns", "job"))
    assert sample(metrics, "elasticjob_running_workers") is None


def test_a_suspended_or_finished_job_needs_no_workers() -> None:
    suspended_job = job(spec(suspend=True))
    finished_status = decide(job(), pod(0, phase="Succeeded", exit_code=0)).status

    for elastic_job, status in (
        (suspended_job, decide(suspended_job).status),
        (job(), finished_status),
    ):
        metrics = Metrics()
        metrics.observe_job(("ns", "job"), status, elastic_job.spec)

        assert sample(metrics, "elasticjob_min_replicas") == 0
        assert sample(metrics, "elasticjob_replicas") == 0


def test_idle_connections_do_not_delay_the_health_check(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("controller.metrics._SilentHandler.timeout", 600.0)
    with stopping(serve(Metrics(), 0, lambda: True)) as port:
        address = ("127.0.0.1", port)
        with socket.create_connection(address), socket.create_connection(address):
            assert body(f"http://127.0.0.1:{port}/healthz") == "ok\n", (
                "the kubelet would restart the controller"
            )
        monkeypatch.setattr("controller.metrics._SilentHandler.timeout", 0.2)
        with socket.create_connection(address, timeout=10) as connection:
            assert connection.recv(1) == b"", "a client that sends nothing is disconnected"
    assert "Traceback" not in capfd.readouterr().err


def test_a_status_survives_serialization() -> None:
    status = decide(job(), pod(0), pod(1, "Failed", exit_code=1)).status

    assert Status.from_json(status.to_json()) == status


def test_the_status_of_the_upstream_controller_can_be_read() -> None:
    assert Status.from_json({"conditions": None, "replicaStatuses": None}) == Status()


@pytest.mark.parametrize(("own_namespace", "expected"), [(None, "elastic-job"), ("own", "own")])
def test_the_controller_runs_the_jobs_of_its_own_namespace_by_default(
    monkeypatch: pytest.MonkeyPatch, own_namespace: str | None, expected: str
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    if own_namespace:
        monkeypatch.setenv("POD_NAMESPACE", own_namespace)

    options = parse([])

    assert (options.namespace, options.all_namespaces) == (expected, False)


def test_one_namespace_conflicts_with_all_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--namespace", "a", "--all-namespaces"])

    assert "--all-namespaces: not allowed with argument --namespace" in capsys.readouterr().err
