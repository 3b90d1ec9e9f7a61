"""The queue, the lease, the metrics and the command line."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from controller.__main__ import parse
from controller.client import CONFLICT, NOT_FOUND, ApiError, KubernetesClient
from controller.joining import JoinReader
from controller.leader import (
    LEASE_SECONDS,
    RENEW_SECONDS,
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


def test_the_second_candidate_leads_only_after_the_lease_of_the_first_expired() -> None:
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


def test_a_key_is_processed_once_at_a_time_and_queued_again_meanwhile() -> None:
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
    with urllib.request.urlopen(url, timeout=100) as response:
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
    """Otherwise the rate of the first restart would be unknown."""
    labels = {"cause": "node_lost"}
    assert Metrics().registry.get_sample_value("elasticjob_worker_restarts_total", labels) == 0


def sample(metrics: Metrics, name: str) -> float | None:
    """Return a value of the job ns/job."""
    return metrics.registry.get_sample_value(name, {"namespace": "ns", "elasticjob": "job"})


def test_metrics_have_the_workers_of_each_job_until_it_is_deleted() -> None:
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
        with socket.create_connection(address, timeout=100) as connection:
            assert connection.recv(1) == b"", "a client that sends nothing is disconnected"
    assert "Traceback" not in capfd.readouterr().err


def test_a_status_survives_serialization() -> None:
    status = decide(job(), pod(0), pod(1, "Failed", exit_code=1)).status

    assert Status.from_json(status.to_json()) == status


def test_the_status_of_the_upstream_controller_can_be_read() -> None:
    assert Status.from_json({"conditions": None, "replicaStatuses": None}) == Status()


@pytest.mark.parametrize(("own_namespace", "expected"), [(None, "elastic-job"), ("own", "own")])
def test_the_jobs_of_the_pods_namespace_are_run_by_default(
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
