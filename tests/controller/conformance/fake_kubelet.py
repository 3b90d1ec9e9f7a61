"""Simulated kubelets: they report the same pod statuses as a kubelet, but run nothing.

The API server, the scheduler, the garbage collector and the node controllers are real. The behavior
of processes is tested on a twin with machines.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

RENEW_SECONDS = 2.0  # the node controller marks a node as unreachable after 8 s without a renewal
SYNC_SECONDS = 0.05
SIGTERM_CODE = 143
RETRIED_STATUSES = (404, 409, 422, 429)
"""Errors after which a kubelet tries again: the object is gone or has changed, or there are too many requests."""


def accepts_workers(node: Any) -> bool:
    """Return True if workers can be scheduled on a node: it has no taint of the node controllers.

    Other taints, such as a pool's, are permanent and do not count.
    """
    taints = [taint.key for taint in node.spec.taints or ()]
    return not node.spec.unschedulable and not any(
        key.startswith("node.kubernetes.io/") for key in taints
    )


class FakeKubelet:
    """All kubelets of a small cluster of machines that do not exist.

    Attributes:
        workers: names of the nodes for workers.
        sigterm_exit_code: exit code of a worker that gets SIGTERM.
    """

    def __init__(self, api: client.ApiClient, namespace: str, nodes: tuple[str, ...]) -> None:
        self.core: Any = client.CoreV1Api(api)  # the stubs accept no JSON bodies
        self.leases: Any = client.CoordinationV1Api(api)
        self.namespace = namespace
        self.workers = nodes
        self.nodes = set(nodes)
        self.sigterm_exit_code = SIGTERM_CODE
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=work, daemon=True)
            for work in ((self._renew_leases, RENEW_SECONDS), (self._sync_pods, SYNC_SECONDS))
        ]

    def start(self) -> None:
        for name in self.nodes:
            self._join(name)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(100)

    def lose(self, name: str) -> None:
        """Remove a machine and its Node, as a cloud does."""
        self.nodes.discard(name)
        self.core.delete_node(name)

    def boot(self, name: str) -> None:
        """Join a new or returning machine."""
        self._join(name)
        self.nodes.add(name)

    def freeze(self, name: str) -> None:
        """Freeze a machine: its Node stays, and its pods are no longer updated."""
        self.nodes.discard(name)

    def end(self, pod: str, code: int) -> None:
        """Terminate a worker's process with an exit code."""
        worker = self.core.read_namespaced_pod(pod, self.namespace)
        self._report_ended(worker, code)

    def evict(self, pod: str) -> None:
        """Evict a pod under resource pressure: no container status is left."""
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }
        body = {"status": {**status, "containerStatuses": None}}
        self.core.patch_namespaced_pod_status(pod, self.namespace, body)

    def cordon(self, *, on: bool) -> None:
        """Cordon or uncordon all machines."""
        for name in self.nodes:
            self.core.patch_node(name, {"spec": {"unschedulable": on}})

    def _repeat(self, work: Callable[[], None], seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                work()
            except client.ApiException as error:
                if error.status not in RETRIED_STATUSES and error.status < 500:
                    raise
            except HTTPError:  # the API server does not respond, as on a busy machine
                continue

    def _join(self, name: str) -> None:
        lease_spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": _now(micro=True),
        }
        resources = {"cpu": "64", "memory": "64Gi", "pods": "200"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}
        times = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{**ready, **times}],
        }
        self.core.create_node(
            {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        )
        self.core.patch_node_status(name, {"status": status})
        lease = {"metadata": {"name": name}, "spec": lease_spec}
        try:
            self.leases.create_namespaced_lease("kube-node-lease", lease)
        except client.ApiException as error:
            if error.status != 409:
                raise

    def _renew_leases(self) -> None:
        for name in tuple(self.nodes):
            body = {"spec": {"renewTime": _now(micro=True)}}
            self.leases.patch_namespaced_lease(name, "kube-node-lease", body)

    def _sync_pods(self) -> None:
        for pod in self.core.list_namespaced_pod(self.namespace).items:
            if pod.spec.node_name not in self.nodes:
                continue
            if pod.metadata.deletion_timestamp is not None:
                self._finish_deletion(pod)
            elif pod.status.phase == "Pending":
                self._report_running(pod)

    def _finish_deletion(self, pod: Any) -> None:
        if pod.status.phase == "Running":
            self._report_ended(pod, self.sigterm_exit_code)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        self.core.delete_namespaced_pod(pod.metadata.name, self.namespace, body=options)

    def _report_running(self, pod: Any) -> None:
        self._report(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)

    def _report_ended(self, pod: Any, code: int) -> None:
        terminated = {
            "exitCode": code,
            "startedAt": _now(),
            "finishedAt": _now(),
            "reason": "Error",
        }
        if code == 0:
            terminated["reason"] = "Completed"
        self._report(
            pod, "Failed" if code else "Succeeded", {"terminated": terminated}, ready=False
        )

    def _report(self, pod: Any, phase: str, state: dict[str, Any], *, ready: bool) -> None:
        statuses = [
            {"name": container.name, "image": container.image, "imageID": "", "ready": ready,
             "restartCount": 0, "state": state}
            for container in pod.spec.containers
        ]  # fmt: skip
        body = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"phase": phase, "containerStatuses": statuses},
        }
        self.core.patch_namespaced_pod_status(pod.metadata.name, self.namespace, body)


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
