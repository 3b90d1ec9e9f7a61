"""What the twin asks of Kubernetes: is a Node ready, empty it, forget it."""

import http
import time
from collections.abc import Mapping
from typing import Any

from everstep.errors import EverstepError
from twin.nodes.api import Api, ApiError
from twin.nodes.machine_config import GPU
from twin.nodes.model import MachineSpec, Role

NODES = "/api/v1/nodes"
POLL_SECONDS = 0.2
# What keeps pods away while a Node is not Ready; it is taken away a moment after the Node is.
ABSENT = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def nodes(api: Api) -> dict[str, dict[str, Any]]:
    """Return the Node objects by name."""
    return {node["metadata"]["name"]: node for node in api.get(NODES)["items"]}


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a Node says that it is Ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_schedulable(node: Mapping[str, Any]) -> bool:
    """Whether new pods may come to a Node."""
    return not node.get("spec", {}).get("unschedulable", False)


def offers(node: Mapping[str, Any], spec: MachineSpec) -> bool:
    """Whether a Node is Ready, for pods as well, and has the GPUs its machine was given.

    A cloud's machine has GPUs when somebody has installed a device plugin, which nobody here waits for.
    """
    allocatable = node.get("status", {}).get("allocatable", {})
    gpus = spec.gpus if spec.role is Role.GPU and not spec.cloud else 0
    taints = {taint["key"] for taint in node.get("spec", {}).get("taints", [])}
    return is_ready(node) and not taints & ABSENT and int(allocatable.get(GPU, 0)) >= gpus


def set_schedulable(api: Api, name: str, *, schedulable: bool) -> None:
    """Cordon a Node or take that back."""
    api.merge(f"{NODES}/{name}", {"spec": {"unschedulable": None if schedulable else True}})


def forget(api: Api, name: str) -> None:
    """Delete the Node of a machine that is no more, and the pods that were on it.

    Kubernetes's own collector would delete those pods as well, after 40 to 60 s; a twin's time is compressed,
    like its tolerations. Nothing runs on a machine that is gone, so nothing can run twice.
    """
    api.delete(f"{NODES}/{name}")
    for pod in pods_on(api, name):
        _delete_at_once(api, pod)


def pods_on(api: Api, name: str) -> list[dict[str, Any]]:
    """Return the pods bound to a Node."""
    pods: list[dict[str, Any]] = api.get(f"/api/v1/pods?fieldSelector=spec.nodeName={name}")[
        "items"
    ]
    return pods


def drain(api: Api, name: str, timeout_seconds: float) -> None:
    """Cordon a Node and evict its pods, as `kubectl drain` does: disruption budgets hold, daemons stay.

    Raises:
        EverstepError: a pod is still there after so long; the Node stays cordoned.
    """
    set_schedulable(api, name, schedulable=False)
    deadline = time.monotonic() + timeout_seconds
    refusals: dict[str, str] = {}
    while pods := [pod for pod in pods_on(api, name) if is_evictable(pod)]:
        refusals = {_label(pod): reason for pod in pods if (reason := _evict(api, pod))}
        if time.monotonic() > deadline:
            raise _not_drained(name, timeout_seconds, pods, refusals)
        time.sleep(POLL_SECONDS)


def begin_drain(api: Api, name: str) -> None:
    """Cordon a Node and ask once for the eviction of each of its pods, as a cloud does that is about to take it."""
    set_schedulable(api, name, schedulable=False)
    for pod in pods_on(api, name):
        if is_evictable(pod):
            _evict(api, pod)


def is_drained(api: Api, name: str) -> bool:
    """Whether a Node is cordoned and empty but for what draining leaves there."""
    node = api.get(f"{NODES}/{name}")
    return not is_schedulable(node) and not any(is_evictable(pod) for pod in pods_on(api, name))


def is_evictable(pod: Mapping[str, Any]) -> bool:
    """Whether draining a Node means this pod, as `kubectl drain` sees it: no daemon and no static pod."""
    metadata = pod["metadata"]
    if "kubernetes.io/config.mirror" in metadata.get("annotations", {}):
        return False
    return all(owner["kind"] != "DaemonSet" for owner in metadata.get("ownerReferences", []))


def _evict(api: Api, pod: Mapping[str, Any]) -> str | None:
    """Ask for the eviction of a pod; return why it was refused for now, or None."""
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata:
        return None
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # Its successor of the same name must not be evicted in its place.
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    try:
        api.post(f"{_path(pod)}/eviction", eviction)
    except ApiError as error:
        if error.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
            return None
        if error.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            return error.message
        raise
    return None


def _delete_at_once(api: Api, pod: Mapping[str, Any]) -> None:
    """Delete this very pod; one that is gone already, or whose successor has its name, is left alone."""
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    try:
        api.request("DELETE", _path(pod), body)
    except ApiError as error:
        if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
            raise


def _not_drained(
    name: str,
    seconds: float,
    pods: list[dict[str, Any]],
    refusals: Mapping[str, str],
) -> EverstepError:
    lines = [
        f"  {_label(pod)}: {refusals.get(_label(pod), 'is still terminating')}" for pod in pods
    ]
    return EverstepError(
        f"{name!r} could not be drained within {seconds:.0f} s. Still there:\n" + "\n".join(lines),
        "The node takes no new pods. Drain it again, or let it be used again with `return`.",
    )


def _path(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _label(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
