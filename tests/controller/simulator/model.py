"""An in-memory cluster: API server, kubelets and clock, so that a test can run thousands of passes.

It replaces `controller.client.KubernetesClient` with the guarantees of the API server that the
controller relies on: unique names, optimistic concurrency for statuses, and uid preconditions for
deletions. All objects except nodes are JSON in the format of the API, so parsing is tested too.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

from urllib3.exceptions import HTTPError

from controller.actions import Deletion, Event
from controller.api import ElasticJob
from controller.client import CONFLICT, ApiError, KubernetesClient
from controller.objects import Node, Pod
from controller.timestamps import format_time
from everstep.catalog.names import BOUNDS_ANNOTATION

NAME, NAMESPACE = "job", "ns"
KEY = (NAMESPACE, NAME)
TEMPLATE = {"spec": {"containers": [{"name": "elasticjob-worker", "image": "x"}]}}


class Crash(Exception):  # noqa: N818  (it simulates a crash; it is not an error)
    """A simulated crash of the controller's process."""


class WriteFault(Enum):
    """Faults of one write."""

    NONE = auto()
    BUSY = auto()  # refused because of too many requests
    ERROR = auto()  # refused because of an internal error
    FORBIDDEN = auto()  # refused, as by an exhausted quota or a webhook
    UNANSWERED = auto()  # applied, but the response is lost


REFUSALS = {WriteFault.BUSY: 429, WriteFault.ERROR: 500, WriteFault.FORBIDDEN: 403}


class ModelCluster(KubernetesClient):
    """One job's cluster.

    Attributes:
        nodes_up: whether each existing node responds, by name.
        unready: times since which nodes have not responded, by name.
        crash_in: number of writes that succeed before the controller crashes; None for no crash.
        created_uids: uids of all pods ever created, in order.
        write_faults: faults of the next writes, in order.
        changes: changes by others that happen immediately before a request of the controller, by the number of
            requests before it.
        most_desired: greatest desired number of workers since the current pass began, since a pass keeps the spec that
            it has read.
        writes: number of writes, including failed ones.
        failures: number of failures of workers with the current template.
    """

    def __init__(self, replicas: int = 3, **run_policy: Any) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.nodes_up: dict[str, bool] = {"n0": True, "n1": True, "n2": True}
        self.unready: dict[str, datetime] = {}
        self.crash_in: int | None = None
        self.write_faults: list[WriteFault] = []
        self.changes: dict[int, Callable[[], object]] = {}
        self.is_changed_by_others = False
        self.most_desired = replicas
        self.created_uids: list[str] = []
        self.writes = 0
        self.failures = 0
        self.events: list[Event] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.services: dict[str, dict[str, Any]] = {}
        self.deleted = False
        worker = {"replicas": replicas, "restartPolicy": "ExitCode", "template": TEMPLATE}
        self.source: dict[str, Any] = {
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "uid": "u",
                "generation": 1,
                "resourceVersion": "1",
            },
            "spec": {
                "rdzvEndpoint": "etcd:2379",
                "minReplicas": 1,
                "maxReplicas": 6,
                "RunPolicy": run_policy,
                "replicaSpecs": {"Worker": worker},
            },
        }

    # Used by the controller.

    def job(self, _namespace: str, _name: str) -> Any:
        self._request()
        # Another controller's pass, inside the current one, does not end it.
        if not self.is_changed_by_others:
            self.most_desired = 0
        self._observe_desired()
        return None if self.deleted else copy.deepcopy(self.source)

    def owned_objects(self, kind: str, *_: str) -> list[Any]:
        self._request()
        return copy.deepcopy(list((self.pods if kind == "pods" else self.services).values()))

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        self._request()
        return {
            name: Node(name=name, unready_since=self.unready.get(name))
            if name in self.nodes_up
            else None
            for name in names
        }

    def pod_rejection(self, _job: ElasticJob) -> None:
        return None

    def forget(self, _uid: str) -> None:
        """Do nothing: no result of a dry run is kept."""

    def write_status(self, source: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        with self._write():
            if source["metadata"]["resourceVersion"] != self.source["metadata"]["resourceVersion"]:
                raise ApiError(CONFLICT, "the object has been modified")
            self.source["status"] = copy.deepcopy(dict(status))
            self._touch()

    def create(self, kind: str, _namespace: str, body: Mapping[str, Any]) -> None:
        with self._write():
            objects, name = self.pods if kind == "pods" else self.services, body["metadata"]["name"]
            if name in objects:
                raise ApiError(CONFLICT, f"{name} already exists")
            new_object = copy.deepcopy(dict(body))
            new_object["metadata"] |= {
                "uid": f"{name}#{len(self.created_uids)}",
                "creationTimestamp": format_time(self.now),
            }
            if kind == "pods":
                self._observe_desired()
                assert len(self.pods) < self.most_desired, (
                    "there are never more pods than were desired since the pass began"
                )
                new_object["status"] = {"phase": "Pending"}
                self.created_uids.append(new_object["metadata"]["uid"])
            objects[name] = new_object

    def delete_pod(self, _namespace: str, deletion: Deletion) -> None:
        with self._write():
            pod = self.pods.get(deletion.pod.name)
            if pod is None or pod["metadata"]["uid"] != deletion.pod.uid:
                return
            if deletion.force or "nodeName" not in pod["spec"]:
                del self.pods[deletion.pod.name]
            elif "deletionTimestamp" not in pod["metadata"]:
                self.request_deletion(deletion.pod.name)

    def update_bounds(self, job: ElasticJob, pod: Pod) -> None:
        with self._write():
            existing = self.pods.get(pod.name)
            if (
                existing is not None
                and existing["metadata"]["uid"] == pod.uid
                and job.spec is not None
            ):
                existing["metadata"]["annotations"][BOUNDS_ANNOTATION] = job.spec.bounds

    def delete_service(self, _namespace: str, name: str) -> None:
        with self._write():
            self.services.pop(name, None)

    def delete_job(self, _job: ElasticJob) -> None:
        with self._write():
            self.deleted = True
            self.pods.clear()
            self.services.clear()

    def record_event(self, _job: ElasticJob, event: Event, _now: datetime) -> None:
        self.events.append(event)

    # Used by the model and the tests.

    @property
    def replicas(self) -> int:
        replicas: int = self.source["spec"]["replicaSpecs"]["Worker"]["replicas"]
        return replicas

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        """Conditions of the job by type, in the order of its status."""
        return {condition["type"]: condition for condition in self.source["status"]["conditions"]}

    @property
    def desired_replicas(self) -> int:
        """Number of workers in the newest valid spec; a bound of 0 is invalid."""
        spec = self.source["spec"]
        if not spec["maxReplicas"]:
            spec = self.source["status"]["lastValidSpec"]
        replicas: int = spec["replicaSpecs"]["Worker"]["replicas"]
        return replicas

    def scale(self, replicas: int) -> None:
        self.source["spec"]["replicaSpecs"]["Worker"]["replicas"] = replicas
        self.source["metadata"]["generation"] += 1
        self._touch()

    def edit_template(self) -> None:
        """Set a new image of the workers; earlier failures no longer count."""
        self.source["metadata"]["generation"] += 1
        image = f"x:{self.source['metadata']['generation']}"
        template = {"spec": {"containers": [{"name": "elasticjob-worker", "image": image}]}}
        self.source["spec"]["replicaSpecs"]["Worker"]["template"] = template
        self.failures = 0
        self._touch()

    def _is_current(self, pod: Mapping[str, Any]) -> bool:
        """Return True if a pod has the image of the newest template."""
        template = self.source["spec"]["replicaSpecs"]["Worker"]["template"]
        image: str = template["spec"]["containers"][0]["image"]
        return bool(pod["spec"]["containers"][0]["image"] == image)

    def request_deletion(self, name: str) -> None:
        metadata = self.pods[name]["metadata"]
        metadata["deletionGracePeriodSeconds"] = 30
        metadata["deletionTimestamp"] = format_time(self.now + timedelta(seconds=30))

    def schedule(self, name: str) -> None:
        """Schedule and start a pending pod."""
        pod = self.pods[name]
        live_nodes = sorted(node for node, is_up in self.nodes_up.items() if is_up)
        if "nodeName" in pod["spec"] or not live_nodes or "deletionTimestamp" in pod["metadata"]:
            return
        pod["spec"]["nodeName"] = live_nodes[index_of(pod) % len(live_nodes)]
        self._report(pod, "Running", {"running": {"startedAt": format_time(self.now)}})

    def end(self, name: str, code: int) -> None:
        pod = self.pods[name]
        if pod["status"]["phase"] != "Running" or not self.has_live_node(pod):
            return
        self.failures += 1 <= code < 128 and self._is_current(pod)
        started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        terminated = {"exitCode": code, "startedAt": started, "finishedAt": format_time(self.now)}
        self._report(pod, "Failed" if code else "Succeeded", {"terminated": terminated})

    def has_live_node(self, pod: Mapping[str, Any]) -> bool:
        return self.nodes_up.get(pod["spec"].get("nodeName", ""), False)

    def finish_deletions(self) -> None:
        """Finish the requested deletions, as kubelets do."""
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"] and (
                self.has_live_node(pod) or "nodeName" not in pod["spec"]
            ):
                del self.pods[name]

    def hang(self, node: str) -> None:
        if self.nodes_up.get(node):
            self.nodes_up[node] = False
            self.unready[node] = self.now

    def vanish(self, node: str) -> None:
        self.nodes_up.pop(node, None)
        self.unready.pop(node, None)

    def boot(self, node: str) -> None:
        self.nodes_up[node] = True
        self.unready.pop(node, None)

    def _request(self) -> None:
        """Let others change the cluster before a request of the controller."""
        due = {number - 1: change for number, change in self.changes.items()}
        change = due.pop(-1, None)
        self.changes = due
        if change is not None:
            self._observe_desired()
            self.is_changed_by_others = True
            try:
                change()
            finally:
                self.is_changed_by_others = False
            self._observe_desired()

    def _observe_desired(self) -> None:
        self.most_desired = max(self.most_desired, self.desired_replicas)

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Apply a write in the block, with the next fault."""
        self._request()
        self.writes += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Crash
        fault = self.write_faults.pop(0) if self.write_faults else WriteFault.NONE
        if fault in REFUSALS:
            raise ApiError(REFUSALS[fault], f"{fault.name.lower()}")
        yield
        if fault is WriteFault.UNANSWERED:
            raise HTTPError("the response is lost")

    def _touch(self) -> None:
        metadata = self.source["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def _report(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        container = {"name": "elasticjob-worker", "state": state, "restartCount": 0}
        pod["status"] = {"phase": phase, "containerStatuses": [container]}


def index_of(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["replica-index"])
