"""Operations on Nodes and their pods: readiness, drains and deletions."""

from typing import Any

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.model import MachineSpec, Role


def node(
    ready: str = "True", gpus: int | None = None, *, unschedulable: bool | None = None
) -> dict[str, Any]:
    allocatable = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    spec = {} if unschedulable is None else {"unschedulable": unschedulable}
    return {
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable},
    }


def pod(
    name: str = "p", owner: str | None = "ReplicaSet", phase: str = "Running", **metadata: object
) -> dict[str, Any]:
    owners = [{"kind": owner}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": "u",
            "ownerReferences": owners,
            **metadata,
        },
        "status": {"phase": phase},
    }


class RecordingClient(KubernetesClient):
    """A client that records requests and returns fixed responses."""

    def __init__(self, pods: list[dict[str, Any]], refusal: ApiError | None = None) -> None:
        self.pods, self.refusal = pods, refusal
        self.requests: list[tuple[Any, ...]] = []

    def get(self, path: str) -> dict[str, Any]:
        self.requests.append(("GET", path))
        return {"items": self.pods}

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(("PATCH", path, body))
        return {}

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(("POST", path, body))
        if self.refusal:
            raise self.refusal
        self.pods = []
        return {}

    def delete(self, path: str) -> None:
        self.requests.append(("DELETE", path))

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        self.requests.append((method, path, body))
        if self.refusal:
            raise self.refusal
        return {}


def test_a_gpu_machine_is_usable_when_its_node_is_ready_and_reports_its_gpus() -> None:
    gpu, system = MachineSpec("g", Role.GPU, 2), MachineSpec("s", Role.SYSTEM, 2)

    assert node_objects.is_usable(node(gpus=2), gpu)
    assert not node_objects.is_usable(node(gpus=1), gpu)
    assert not node_objects.is_usable(node(), gpu)
    assert node_objects.is_usable(node(), system)
    assert not node_objects.is_usable(node("Unknown", gpus=2), gpu)
    assert not node_objects.is_usable({}, system)


@pytest.mark.parametrize("kind", ["not-ready", "unreachable"])
def test_a_machine_is_not_usable_before_pods_can_be_scheduled(kind: str) -> None:
    system = MachineSpec("s", Role.SYSTEM, 2)
    tainted_node = node()
    tainted_node["spec"]["taints"] = [{"key": f"node.kubernetes.io/{kind}", "effect": "NoExecute"}]

    assert node_objects.is_ready(tainted_node)
    assert not node_objects.is_usable(tainted_node, system)

    tainted_node["spec"]["taints"] = [{"key": "everstep.dev/spot", "effect": "NoSchedule"}]
    assert node_objects.is_usable(tainted_node, system), (
        "a pool's own taint stays and must not count"
    )


@pytest.mark.parametrize(
    ("drained_pod", "evictable"),
    [
        (pod(), True),
        (pod(owner=None), True),
        (pod(owner="DaemonSet"), False),
        (pod(phase="Succeeded"), True),
        (pod(phase="Failed"), True),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), False),
    ],
)
def test_draining_keeps_only_pods_of_daemon_sets_and_static_pods(
    drained_pod: dict[str, Any], evictable: bool
) -> None:
    assert node_objects.is_evictable(drained_pod) is evictable


def test_draining_cordons_first_and_evicts_pods_by_uid() -> None:
    api = RecordingClient([pod()])

    node_objects.drain(api, "gpu-0", 5)

    assert api.requests[0] == ("PATCH", "/api/v1/nodes/gpu-0", {"spec": {"unschedulable": True}})
    [eviction] = [entry for entry in api.requests if entry[0] == "POST"]
    assert eviction[1] == "/api/v1/namespaces/n/pods/p/eviction"
    assert eviction[2]["deleteOptions"]["preconditions"] == {"uid": "u"}, (
        "a new pod of the same name must not be evicted"
    )


def test_a_disruption_budget_that_blocks_eviction_is_named_at_the_timeout() -> None:
    api = RecordingClient([pod()], ApiError(429, "Cannot evict: the budget etcd needs 2", {}))

    with pytest.raises(TwinError) as error:
        node_objects.drain(api, "gpu-0", -1)

    assert "n/p: Cannot evict: the budget etcd needs 2" in error.value.problem


def test_draining_waits_for_a_terminating_pod_without_evicting_it_again() -> None:
    api = RecordingClient([pod(deletionTimestamp="now")])

    with pytest.raises(TwinError, match="is still terminating"):
        node_objects.drain(api, "gpu-0", -1)

    assert not [entry for entry in api.requests if entry[0] == "POST"]


def test_deleting_a_node_deletes_its_pods_by_uid() -> None:
    api = RecordingClient([pod()])

    node_objects.delete(api, "gpu-0")

    assert ("DELETE", "/api/v1/nodes/gpu-0") in api.requests
    verb, path, body = api.requests[-1]
    assert (verb, path) == ("DELETE", "/api/v1/namespaces/n/pods/p")
    assert body == {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}, (
        "a new pod of the same name must stay"
    )


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_was_already_deleted_is_not_an_error(status: int) -> None:
    node_objects.delete(
        RecordingClient([pod()], ApiError(status, 'pods "p" not found', {})), "gpu-0"
    )


def test_a_refused_deletion_of_a_pod_is_an_error() -> None:
    with pytest.raises(ApiError, match="403: no"):
        node_objects.delete(RecordingClient([pod()], ApiError(403, "no", {})), "gpu-0")


def test_the_message_of_a_warning_is_truncated_to_the_limit_in_bytes() -> None:
    api = RecordingClient([])

    node_objects.warn(api, "gpu-0", "ImageAliasFailed", "é" * 1000)

    assert api.requests[-1][2]["message"] == "é" * 512
