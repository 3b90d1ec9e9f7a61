"""Interconnect tests in a cluster, whose objects are always removed. The cluster is a strict fake."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from everstep.catalog.names import EFA_RESOURCE, JOB_NAME_LABEL
from everstep.cli.interconnect.in_cluster import COLLECTIONS, CORE, INDEX_LABEL, ClusterRun
from everstep.cli.interconnect.manifests import NAME, ClusterTest
from everstep.cli.kubernetes_client import ClusterUnreachableError, KubernetesClient
from everstep.errors import EverstepError
from everstep.progress import Silent
from tests.everstep.cli.interconnect.test_manifests import elastic_job

JOB_PATH = f"{COLLECTIONS['Job']}/{NAME}"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}


class FakeCluster:
    """A cluster with the objects that were created, and with pods in a given phase.

    Attributes:
        objects: path -> manifest of each existing object.
        end_condition: condition of a created Job; empty while it runs.
        end_reason: reason of this condition.
        conditions: conditions of each pod.
        timeouts: number of requests that time out once the Job exists.
    """

    def __init__(self, phase: str = "Succeeded", end_condition: str = "Complete") -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.created_kinds: list[str] = []
        self.phase, self.end_condition, self.end_reason = phase, end_condition, ""
        self.elastic_job: dict[str, Any] = elastic_job()
        self.nodes: list[dict[str, Any]] = []
        self.conditions: list[dict[str, str]] = []
        self.logs = "the log"
        self.timeouts = 0

    def _respond(self) -> None:
        """Raise an error for the remaining timeouts, which begin when the Job exists."""
        if self.timeouts and JOB_PATH in self.objects:
            self.timeouts -= 1
            raise ClusterUnreachableError("the cluster does not respond: timed out", "Wait.")

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        self._respond()
        if path.endswith("/elasticjobs/fashion"):
            return self.elastic_job or missing or {}
        if path == "/api/v1/nodes":
            return {"items": self.nodes}
        if path.startswith(f"{CORE}/pods?labelSelector={JOB_NAME_LABEL}"):
            return {"items": [self._pod(index) for index in range(3)] if self.objects else []}
        if path.startswith(f"{CORE}/events?"):
            return {"items": [{"message": "exceeded quota: everstep"}]}
        assert path == JOB_PATH, f"unexpected request for {path}"
        return self.objects.get(path) or missing or {}

    def _pod(self, index: int) -> dict[str, Any]:
        labels = {INDEX_LABEL: str(index)}
        return {
            "metadata": {"name": f"{NAME}-{index}", "labels": labels},
            "spec": {"nodeName": f"gpu-{index}"},
            "status": {"phase": self.phase, "conditions": self.conditions},
        }

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        key = f"{path}/{body['metadata']['name']}"
        assert key not in self.objects, "the API server refuses a second object of the same name"
        self.created_kinds.append(str(body["kind"]))
        self.objects[key] = dict(body)
        if body["kind"] == "Job" and self.end_condition:
            self.objects[key]["status"] = {
                "conditions": [
                    {"type": self.end_condition, "status": "True", "reason": self.end_reason}
                ]
            }

    def delete(self, path: str) -> None:
        self._respond()
        self.objects.pop(path, None)

    def text(self, path: str) -> str:
        self._respond()
        return self.logs


def run(
    cluster: FakeCluster, efa: int | None = None, sleep: Callable[[float], None] = lambda _: None
) -> list[str]:
    test = ClusterTest(nodes=3, efa=efa, arguments=[], seconds=60)
    client = cast("KubernetesClient", cluster)
    return ClusterRun(client, "fashion", sleep).run(test, wait_seconds=0, progress=Silent())


def test_a_test_returns_the_logs_of_all_pods_and_leaves_nothing() -> None:
    cluster = FakeCluster()

    assert run(cluster) == ["the log"] * 3
    assert cluster.created_kinds == ["ConfigMap", "Service", "Job"]
    assert not cluster.objects


def test_an_api_server_that_does_not_respond_for_a_while_does_not_end_the_test() -> None:
    cluster = FakeCluster()
    cluster.timeouts = 3

    assert run(cluster) == ["the log"] * 3
    assert cluster.timeouts == 0
    assert not cluster.objects


def test_deletions_that_time_out_leave_no_objects() -> None:
    cluster, interruptions = FakeCluster(phase="Running", end_condition=""), [KeyboardInterrupt]

    def lose_the_connection(seconds: float) -> None:
        if interruptions:
            cluster.timeouts = 3
            raise interruptions.pop()

    with pytest.raises(KeyboardInterrupt):
        run(cluster, sleep=lose_the_connection)

    assert not cluster.objects


def test_an_api_server_that_does_not_respond_for_a_minute_ends_the_test() -> None:
    cluster = FakeCluster()
    cluster.timeouts = 1000
    clock_times = itertools.count(step=10.0)
    test = ClusterTest(nodes=3, efa=None, arguments=[], seconds=60)
    client = cast("KubernetesClient", cluster)

    with pytest.raises(ClusterUnreachableError):
        ClusterRun(client, "fashion", lambda _: None, lambda: next(clock_times)).run(
            test, wait_seconds=0, progress=Silent()
        )

    assert cluster.timeouts < 1000 - 7


def test_ctrl_c_removes_all_objects() -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    cluster = FakeCluster(phase="Running", end_condition="")

    with pytest.raises(KeyboardInterrupt):
        run(cluster, sleep=interrupt)

    assert cluster.created_kinds
    assert not cluster.objects


def test_a_job_that_is_deleted_meanwhile_ends_the_test() -> None:
    cluster = FakeCluster(phase="Running", end_condition="")

    def delete_job(seconds: float) -> None:
        cluster.objects.clear()

    with pytest.raises(EverstepError, match=f"the Job {NAME} was deleted"):
        run(cluster, sleep=delete_job)


def test_a_pod_that_is_lost_during_the_test_ends_it_with_its_log() -> None:
    cluster = FakeCluster(phase="Failed", end_condition="Failed")
    cluster.logs = "error: rank 0 failed: Connection closed by peer"

    with pytest.raises(EverstepError, match=f"{NAME}-0 on gpu-0 was lost") as failure:
        run(cluster)

    assert "rank 0 failed" in failure.value.fix
    assert not cluster.objects


def test_a_test_that_exceeds_its_timeout_is_distinguished_from_a_lost_pod() -> None:
    cluster = FakeCluster(end_condition="Failed")
    cluster.end_reason = "DeadlineExceeded"

    with pytest.raises(EverstepError, match=r"did not end within 60 s \(--timeout\)") as failure:
        run(cluster)

    assert "--timeout" in failure.value.fix
    assert not cluster.objects


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [([UNSCHEDULABLE], "0/3 nodes are available"), ([], "exceeded quota: everstep")],
)
def test_pods_that_do_not_start_are_reported_with_the_reason(
    conditions: list[dict[str, str]], reason: str
) -> None:
    cluster = FakeCluster(phase="Pending", end_condition="")
    cluster.conditions = conditions

    with pytest.raises(EverstepError, match=f"0 of 3 pods started within 0 s: {reason}") as failure:
        run(cluster)

    assert "The training fashion may use the nodes" in failure.value.fix
    assert not cluster.objects


def test_a_stack_without_a_job_is_refused() -> None:
    cluster = FakeCluster()
    cluster.elastic_job = {}

    with pytest.raises(EverstepError, match="there is no ElasticJob fashion"):
        run(cluster)

    assert not cluster.created_kinds


def test_a_second_test_is_refused_and_does_not_disturb_the_first() -> None:
    cluster = FakeCluster()
    cluster.objects[JOB_PATH] = {"status": {}}

    with pytest.raises(EverstepError, match="another test is running"):
        run(cluster)

    assert JOB_PATH in cluster.objects


def test_objects_that_a_killed_test_left_are_replaced() -> None:
    cluster = FakeCluster()
    cluster.objects = {f"{path}/{NAME}": {} for path in COLLECTIONS.values()}
    cluster.objects[JOB_PATH] = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}

    assert run(cluster) == ["the log"] * 3


def test_adapters_that_no_node_has_are_refused_before_anything_is_created() -> None:
    cluster = FakeCluster()
    cluster.nodes = [{"metadata": {"name": "a"}, "status": {"allocatable": {EFA_RESOURCE: "1"}}}]

    with pytest.raises(EverstepError, match="--efa 4: a node of this stack has 1 EFA adapters"):
        run(cluster, efa=4)

    assert not cluster.created_kinds


def test_nodes_yet_to_be_created_are_assumed_to_have_the_adapters_of_the_workers() -> None:
    cluster = FakeCluster()
    cluster.elastic_job = elastic_job(**{EFA_RESOURCE: "4"})

    assert run(cluster, efa=4)
