"""A cluster in a dictionary: API server, kubelets and clock, for thousands of schedules a second.

It stands in for `controller.cluster.Cluster` and keeps the API server's promises that the
controller counts on: names are unique, a status is written only over the version that was read, a
deletion names the uid it means. Everything it holds is JSON of the API's own form, so that reading
is tested too.
"""

import copy
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.api import ElasticJob
from controller.clock import format_time
from controller.cluster import CONFLICT, Refused
from controller.observed import BOUNDS_ANNOTATION, Node, Pod
from controller.situation import Deletion, Event

NAME, NAMESPACE = "job", "ns"
KEY = (NAMESPACE, NAME)
TEMPLATE = {"spec": {"containers": [{"name": "elasticjob-worker", "image": "x"}]}}


class Crash(Exception):  # noqa: N818  (it is a death, not an error)
    """The controller's process dies here."""


class ModelCluster:
    """One job's cluster.

    Attributes:
        crash_in: calls that change something until the controller dies in one; None: it does not.
        created: uids of all pods ever made, in order.
        writes: how often anything was written.
        failures: how often a worker failed by itself.
    """

    def __init__(self, replicas: int = 3, **run_policy: Any) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.nodes_up: dict[str, bool] = {"n0": True, "n1": True, "n2": True}
        self.unready: dict[str, datetime] = {}
        self.crash_in: int | None = None
        self.created: list[str] = []
        self.writes = 0
        self.failures = 0
        self.told: list[Event] = []
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

    # What the controller calls.

    def job(self, _namespace: str, _name: str) -> Any:
        return None if self.deleted else copy.deepcopy(self.source)

    def owned(self, kind: str, *_: str) -> list[Any]:
        return copy.deepcopy(list((self.pods if kind == "pods" else self.services).values()))

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        return {
            name: Node(name=name, unready_since=self.unready.get(name))
            if name in self.nodes_up
            else None
            for name in names
        }

    def refusal(self, _job: ElasticJob) -> None:
        return None

    def write_status(self, source: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        self._write()
        if source["metadata"]["resourceVersion"] != self.source["metadata"]["resourceVersion"]:
            raise Refused(CONFLICT, "the object has been modified")
        self.source["status"] = copy.deepcopy(dict(status))
        self._touch()

    def create(self, kind: str, _namespace: str, body: Mapping[str, Any]) -> None:
        self._write()
        held, name = self.pods if kind == "pods" else self.services, body["metadata"]["name"]
        if name in held:
            raise Refused(CONFLICT, f"{name} already exists")
        made = copy.deepcopy(dict(body))
        made["metadata"] |= {
            "uid": f"{name}#{len(self.created)}",
            "creationTimestamp": format_time(self.now),
        }
        if kind == "pods":
            assert len(self.pods) < self.followed, "never more pods than workers asked for"
            made["status"] = {"phase": "Pending"}
            self.created.append(made["metadata"]["uid"])
        held[name] = made

    def delete_pod(self, _namespace: str, deletion: Deletion) -> None:
        self._write()
        pod = self.pods.get(deletion.pod.name)
        if pod is None or pod["metadata"]["uid"] != deletion.pod.uid:
            return
        if deletion.force or "nodeName" not in pod["spec"]:
            del self.pods[deletion.pod.name]
        elif "deletionTimestamp" not in pod["metadata"]:
            self.ask_to_go(deletion.pod.name)

    def tell_bounds(self, job: ElasticJob, pod: Pod) -> None:
        self._write()
        held = self.pods.get(pod.name)
        if held is not None and held["metadata"]["uid"] == pod.uid and job.spec is not None:
            held["metadata"]["annotations"][BOUNDS_ANNOTATION] = job.spec.bounds

    def delete_service(self, _namespace: str, name: str) -> None:
        self._write()
        self.services.pop(name, None)

    def delete_job(self, _job: ElasticJob) -> None:
        self._write()
        self.deleted = True
        self.pods.clear()
        self.services.clear()

    def tell(self, _job: ElasticJob, event: Event, _now: datetime) -> None:
        self.told.append(event)

    # What the world does.

    @property
    def replicas(self) -> int:
        replicas: int = self.source["spec"]["replicaSpecs"]["Worker"]["replicas"]
        return replicas

    @property
    def followed(self) -> int:
        """Workers asked for by the newest spec without faults: 0 is no valid bound."""
        spec = self.source["spec"]
        if not spec["maxReplicas"]:
            spec = self.source["status"]["lastValidSpec"]
        replicas: int = spec["replicaSpecs"]["Worker"]["replicas"]
        return replicas

    def scale(self, replicas: int) -> None:
        self.source["spec"]["replicaSpecs"]["Worker"]["replicas"] = replicas
        self.source["metadata"]["generation"] += 1
        self._touch()

    def ask_to_go(self, name: str) -> None:
        metadata = self.pods[name]["metadata"]
        metadata["deletionGracePeriodSeconds"] = 30
        metadata["deletionTimestamp"] = format_time(self.now + timedelta(seconds=30))

    def place(self, name: str) -> None:
        """Let a pod that waits be put on a machine and start."""
        pod = self.pods[name]
        up = sorted(node for node, well in self.nodes_up.items() if well)
        if "nodeName" in pod["spec"] or not up or "deletionTimestamp" in pod["metadata"]:
            return
        pod["spec"]["nodeName"] = up[index_of(pod) % len(up)]
        self._say(pod, "Running", {"running": {"startedAt": format_time(self.now)}})

    def end(self, name: str, code: int) -> None:
        pod = self.pods[name]
        if pod["status"]["phase"] != "Running" or not self.served(pod):
            return
        self.failures += 1 <= code < 128
        started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        ended = {"exitCode": code, "startedAt": started, "finishedAt": format_time(self.now)}
        self._say(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def served(self, pod: Mapping[str, Any]) -> bool:
        return self.nodes_up.get(pod["spec"].get("nodeName", ""), False)

    def let_go(self) -> None:
        """Let kubelets finish the deletions that they were asked for."""
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"] and (
                self.served(pod) or "nodeName" not in pod["spec"]
            ):
                del self.pods[name]

    def hang(self, node: str) -> None:
        if self.nodes_up.get(node):
            self.nodes_up[node] = False
            self.unready[node] = self.now

    def vanish(self, node: str) -> None:
        self.nodes_up.pop(node, None)
        self.unready.pop(node, None)

    def bring(self, node: str) -> None:
        self.nodes_up[node] = True
        self.unready.pop(node, None)

    def _write(self) -> None:
        self.writes += 1
        if self.crash_in is None:
            return
        self.crash_in -= 1
        if self.crash_in < 0:
            self.crash_in = None
            raise Crash

    def _touch(self) -> None:
        metadata = self.source["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def _say(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        container = {"name": "elasticjob-worker", "state": state, "restartCount": 0}
        pod["status"] = {"phase": phase, "containerStatuses": [container]}


def index_of(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["replica-index"])
