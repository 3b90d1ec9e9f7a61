"""The queue, the lease, the metrics and the command line."""

import asyncio
import urllib.error
import urllib.request

import pytest

from controller.__main__ import parse
from controller.cluster import CONFLICT, NOT_FOUND, Refused
from controller.leader import LEASE_SECONDS, Candidate
from controller.metrics import Metrics, serve
from controller.status import Status
from controller.workqueue import WorkQueue
from tests.controller.unit.worlds import decide, job, pod


class Leases:
    """The API server's side of one Lease."""

    def __init__(self) -> None:
        self.lease: dict | None = None
        self.version = 0

    def request(self, method: str, _path: str, body: dict | None = None):
        if method == "GET":
            if self.lease is None:
                raise Refused(NOT_FOUND, "no lease")
            return self.lease
        if method == "PUT" and body["metadata"]["resourceVersion"] != str(self.version):
            raise Refused(CONFLICT, "modified")
        self.version += 1
        self.lease = {
            **body,
            "metadata": {**body["metadata"], "resourceVersion": str(self.version)},
        }
        return self.lease


def test_the_second_candidate_leads_only_after_the_first_was_silent_for_a_lease():
    time, leases = [0.0], Leases()
    first, second = (Candidate(leases, "ns", name, clock=lambda: time[0]) for name in ("a", "b"))
    assert first.try_to_lead()
    assert not second.try_to_lead()

    time[0] += LEASE_SECONDS - 1
    assert first.try_to_lead()
    assert not second.try_to_lead()

    time[0] += LEASE_SECONDS + 1
    assert second.try_to_lead()
    assert leases.lease["spec"]["leaseTransitions"] == 2
    assert not first.try_to_lead(), "who was silent has lost it"


def test_a_lease_that_is_given_back_is_free_at_once():
    leases = Leases()
    first, second = (Candidate(leases, "ns", name) for name in ("a", "b"))
    assert first.try_to_lead()

    first.give_back()

    assert second.try_to_lead()


def test_a_key_is_in_one_pass_at_a_time_and_is_not_forgotten_meanwhile():
    async def story() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("a")
        assert await queue.take() == "a"
        queue.add("a")
        taking = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        assert not taking.done(), "two passes over one job would fight"
        queue.done("a")
        assert await taking == "a"

    asyncio.run(story())


def test_failures_of_a_key_wait_ever_longer_and_a_success_forgives():
    async def story() -> list[float]:
        queue = WorkQueue[str](clock=lambda: 0.0)
        waits = [queue.failed("a") for _ in range(12)]
        queue.done("a")
        return [*waits, queue.failed("a")]

    waits = asyncio.run(story())
    assert waits[:3] == [0.2, 0.4, 0.8]
    assert waits[-2:] == [60.0, 0.2]


def test_metrics_count_jobs_by_condition_and_health_tells_of_a_hang():
    metrics, alive = Metrics(), [True]
    metrics.saw(("ns", "job"), decide(job(), pod(0)).status)
    server = serve(metrics, 0, lambda: alive[0])
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        page = urllib.request.urlopen(f"{base}/metrics").read().decode()
        assert 'elasticjob_jobs{condition="Running"} 1.0' in page
        assert 'elasticjob_worker_restarts_total{cause="node_lost"} 0.0' in page
        assert urllib.request.urlopen(f"{base}/healthz").read() == b"ok\n"
        alive[0] = False
        with pytest.raises(urllib.error.HTTPError, match="503") as hung:
            urllib.request.urlopen(f"{base}/healthz")
        hung.value.close()
        metrics.forget(("ns", "job"))
        assert (
            'elasticjob_jobs{condition="Running"} 0.0'
            in urllib.request.urlopen(f"{base}/metrics").read().decode()
        )
    finally:
        server.shutdown()
        server.server_close()


def test_a_status_reads_back_as_it_was_written():
    status = decide(job(), pod(0), pod(1, "Failed", exit_code=1)).status

    assert Status.read(status.write()) == status


def test_what_the_upstream_controller_wrote_can_be_read():
    assert Status.read({"conditions": None, "replicaStatuses": None}) == Status()


def test_one_namespace_is_the_default_and_excludes_all():
    assert parse([]).namespace == "elastic-job"
    with pytest.raises(SystemExit):
        parse(["--namespace", "a", "--all-namespaces"])
