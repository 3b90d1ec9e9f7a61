"""Operations on Node objects: readiness, draining, deletion."""

import http
import time
from collections.abc import Mapping
from typing import Any

from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes.model import GPU_RESOURCE, MachineSpec, Role

NODES = "/api/v1/nodes"
DRAIN_POLL_SECONDS = 0.2
MAX_EVENT_MESSAGE = 1024  # limit of events.k8s.io/v1 in bytes
# Taints of a Node that is not Ready; they are removed a moment after it is Ready.
NOT_READY_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def nodes(client: KubernetesClient) -> dict[str, dict[str, Any]]:
    """Return the Node objects by name."""
    return {node["metadata"]["name"]: node for node in client.get(NODES)["items"]}


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return True if a Node is Ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_schedulable(node: Mapping[str, Any]) -> bool:
    """Return True if a Node accepts new pods."""
    return not node.get("spec", {}).get("unschedulable", False)


def is_usable(node: Mapping[str, Any], spec: MachineSpec) -> bool:
    """Return True if a Node is Ready, has no not-ready taint and offers the GPUs of its machine.

    The GPUs of a cloud machine are not expected: they appear when a device plugin is installed.
    """
    allocatable = node.get("status", {}).get("allocatable", {})
    gpus = spec.gpus if spec.role is Role.GPU and not spec.cloud else 0
    taints = {taint["key"] for taint in node.get("spec", {}).get("taints", [])}
    return (
        is_ready(node)
        and not taints & NOT_READY_TAINTS
        and int(allocatable.get(GPU_RESOURCE, 0)) >= gpus
    )


def set_schedulable(client: KubernetesClient, name: str, *, schedulable: bool) -> None:
    """Uncordon or cordon a Node."""
    client.merge(f"{NODES}/{name}", {"spec": {"unschedulable": None if schedulable else True}})


def warn(client: KubernetesClient, name: str, reason: str, message: str) -> None:
    """Record an event of type Warning for a Node, which may not exist yet."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "metadata": {"generateName": f"{name}."},
        # Kubelets use the name as the uid, so that `kubectl describe node` finds the event.
        "involvedObject": {"kind": "Node", "name": name, "uid": name},
        "type": "Warning",
        "reason": reason,
        "message": message.encode()[:MAX_EVENT_MESSAGE].decode(errors="ignore"),
        "source": {"component": "cloudtwin", "host": name},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    client.post("/api/v1/namespaces/default/events", event)


def delete(client: KubernetesClient, name: str) -> None:
    """Delete the Node of a machine that is gone, and its pods.

    Kubernetes' pod garbage collector would delete the pods after 40 to 60 s, which is too slow for tests.
    Nothing runs on a machine that is gone, so no pod can run twice.
    """
    client.delete(f"{NODES}/{name}")
    for pod in pods_on(client, name):
        _delete_pod(client, pod)


def pods_on(client: KubernetesClient, name: str) -> list[dict[str, Any]]:
    """Return the pods bound to a Node."""
    pods: list[dict[str, Any]] = client.get(f"/api/v1/pods?fieldSelector=spec.nodeName={name}")[
        "items"
    ]
    return pods


def drain(client: KubernetesClient, name: str, timeout_seconds: float) -> None:
    """Cordon a Node and evict its pods, as `kubectl drain` does, within disruption budgets and without DaemonSets.

    Raises:
        TwinError: a pod remains after the timeout; the Node stays cordoned.
    """
    set_schedulable(client, name, schedulable=False)
    deadline = time.monotonic() + timeout_seconds
    refusals: dict[str, str] = {}
    while pods := [pod for pod in pods_on(client, name) if is_evictable(pod)]:
        refusals = {_label(pod): reason for pod in pods if (reason := _evict(client, pod))}
        if time.monotonic() > deadline:
            raise _not_drained_error(name, timeout_seconds, pods, refusals)
        time.sleep(DRAIN_POLL_SECONDS)


def begin_drain(client: KubernetesClient, name: str) -> None:
    """Cordon a Node and request the eviction of each pod once, as a cloud does before it reclaims a machine."""
    set_schedulable(client, name, schedulable=False)
    for pod in pods_on(client, name):
        if is_evictable(pod):
            _evict(client, pod)


def is_drained(client: KubernetesClient, name: str) -> bool:
    """Return True if a Node is cordoned and has no evictable pods."""
    node = client.get(f"{NODES}/{name}")
    return not is_schedulable(node) and not any(is_evictable(pod) for pod in pods_on(client, name))


def is_evictable(pod: Mapping[str, Any]) -> bool:
    """Return True if draining a Node evicts this pod: it belongs to no DaemonSet and is not a static pod."""
    metadata = pod["metadata"]
    if "kubernetes.io/config.mirror" in metadata.get("annotations", {}):
        return False
    return all(owner["kind"] != "DaemonSet" for owner in metadata.get("ownerReferences", []))


def _evict(client: KubernetesClient, pod: Mapping[str, Any]) -> str | None:
    """Request the eviction of a pod; return the reason for a temporary refusal, or None."""
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata:
        return None
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # A new pod of the same name must not be evicted instead.
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    try:
        client.post(f"{_path(pod)}/eviction", eviction)
    except ApiError as error:
        if error.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
            return None
        if error.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            return error.message
        raise
    return None


def _delete_pod(client: KubernetesClient, pod: Mapping[str, Any]) -> None:
    """Delete exactly this pod; do nothing if it is gone or another pod has its name."""
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    try:
        client.request("DELETE", _path(pod), body)
    except ApiError as error:
        if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
            raise


def _not_drained_error(
    name: str,
    seconds: float,
    pods: list[dict[str, Any]],
    refusals: Mapping[str, str],
) -> TwinError:
    lines = [
        f"  {_label(pod)}: {refusals.get(_label(pod), 'is still terminating')}" for pod in pods
    ]
    return TwinError(
        f"{name!r} could not be drained within {seconds:.0f} s. Remaining pods:\n"
        + "\n".join(lines),
        "The node is cordoned. Drain it again, or make it usable again with `return`.",
    )


def _path(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _label(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
