"""An honest stand-in for kubelets: it says of pods what a kubelet would say, and runs nothing.

The API server, the scheduler, the garbage collector and the node controllers around it are the real
ones. What it cannot show is how processes behave; the twin with machines does.
"""

import threading
from datetime import UTC, datetime

from kubernetes import client

BEAT_SECONDS = 2.0  # the node controller calls a node dead after 8 s of silence
LOOK_SECONDS = 0.05
SIGTERM_CODE = 143


class FakeKubelet:
    """All kubelets of a small cluster of machines that do not exist.

    Attributes:
        exit_on_request: what a worker exits with when it is asked to go.
    """

    def __init__(self, api: client.ApiClient, namespace: str, nodes: tuple[str, ...]) -> None:
        self.core = client.CoreV1Api(api)
        self.leases = client.CoordinationV1Api(api)
        self.namespace = namespace
        self.nodes = set(nodes)
        self.ends: dict[str, int] = {}
        self.exit_on_request = SIGTERM_CODE
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=work, daemon=True)
            for work in ((self._beat, BEAT_SECONDS), (self._look, LOOK_SECONDS))
        ]

    def start(self) -> None:
        for name in self.nodes:
            self._join(name)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def lose(self, name: str) -> None:
        """Let a machine vanish, and its Node with it, as a cloud does."""
        self.nodes.discard(name)
        self.core.delete_node(name)

    def bring(self, name: str) -> None:
        """Let a machine (re)join."""
        self._join(name)
        self.nodes.add(name)

    def fall_silent(self, name: str) -> None:
        """Let a machine hang: its Node stays and nobody serves its pods."""
        self.nodes.discard(name)

    def end(self, pod: str, code: int) -> None:
        """Let a worker's process end by itself."""
        found = self.core.read_namespaced_pod(pod, self.namespace)
        self._say_ended(found, code)

    def evict(self, pod: str) -> None:
        """Let the kubelet evict a pod for want of resources: no container status is left."""
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }
        body = {"status": {**status, "containerStatuses": None}}
        self.core.patch_namespaced_pod_status(pod, self.namespace, body)

    def cordon(self, *, on: bool) -> None:
        """Let no machine take new pods, or let them take pods again."""
        for name in self.nodes:
            self.core.patch_node(name, {"spec": {"unschedulable": on}})

    def _repeat(self, work, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                work()
            except client.ApiException as error:
                if error.status not in (404, 409, 422):  # the pod moved on between look and word
                    raise

    def _join(self, name: str) -> None:
        lease_spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": _now(micro=True),
        }
        room = {"cpu": "64", "memory": "64Gi", "pods": "200"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}
        times = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        status = {"capacity": room, "allocatable": room, "conditions": [{**ready, **times}]}
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

    def _beat(self) -> None:
        for name in tuple(self.nodes):
            body = {"spec": {"renewTime": _now(micro=True)}}
            self.leases.patch_namespaced_lease(name, "kube-node-lease", body)

    def _look(self) -> None:
        for pod in self.core.list_namespaced_pod(self.namespace).items:
            if pod.spec.node_name not in self.nodes:
                continue
            if pod.metadata.deletion_timestamp is not None:
                self._let_go(pod)
            elif pod.status.phase == "Pending":
                self._say_running(pod)

    def _let_go(self, pod: client.V1Pod) -> None:
        if pod.status.phase == "Running":
            self._say_ended(pod, self.exit_on_request)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        self.core.delete_namespaced_pod(pod.metadata.name, self.namespace, body=options)

    def _say_running(self, pod: client.V1Pod) -> None:
        self._say(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)

    def _say_ended(self, pod: client.V1Pod, code: int) -> None:
        ended = {"exitCode": code, "startedAt": _now(), "finishedAt": _now(), "reason": "Error"}
        if code == 0:
            ended["reason"] = "Completed"
        self._say(pod, "Failed" if code else "Succeeded", {"terminated": ended}, ready=False)

    def _say(self, pod: client.V1Pod, phase: str, state: dict, *, ready: bool) -> None:
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
