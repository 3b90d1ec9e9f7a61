"""The in-memory cluster with zones: each has some machines, to which the scheduler assigns pods."""

import copy
import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from controller.api import ElasticJob
from controller.client import CONFLICT, ApiError
from controller.objects import Placeholder, read_placeholder
from controller.timestamps import format_time, parse_time
from everstep.catalog.names import (
    DEADLINE_ANNOTATION,
    PLACEHOLDER_LABEL,
    PLACEMENT_ANNOTATION,
    SCALING_ANNOTATION,
    SCALING_CAPACITY,
    ZONE_LABEL,
)
from tests.controller.simulator.model import ModelCluster, index_of

ZONES = ("a", "b", "c")


class Fault(Enum):
    """Faults of the workers' metrics."""

    NONE = auto()
    LATE = auto()  # the metrics from before the first step
    PARTIAL = auto()  # the metrics of every second worker only
    LOST = auto()  # no response


class ZonedCluster(ModelCluster):
    """A cluster whose machines are counted by zone; a pod in a zone that shrinks loses its node.

    Attributes:
        machines: number of machines that each zone offers.
        placeholder_pods: JSON of the placeholders, by name.
        joined_uids: uids of the pods that have joined the group.
        lost_uids: uids of the workers and placeholders whose machine was lost or got an interruption notice.
        fault: fault of the workers' metrics that the controller observes.
    """

    def __init__(self, replicas: int, times: Mapping[str, float] | None = None) -> None:
        super().__init__(replicas)
        self.machines = dict.fromkeys(ZONES, 0)
        self.placeholder_pods: dict[str, dict[str, Any]] = {}
        self.joined_uids: set[str] = set()
        self.lost_uids: set[str] = set()
        self.fault = Fault.NONE
        annotation = {"zones": list(ZONES), **(times or {})}
        self.source["metadata"]["annotations"] = {PLACEMENT_ANNOTATION: json.dumps(annotation)}
        self.source["spec"]["maxReplicas"] = replicas
        self.nodes_up = {}

    # Used by the controller.

    def placeholders(self, _job: object = None) -> list[Placeholder]:
        return [
            read_placeholder(copy.deepcopy(source)) for source in self.placeholder_pods.values()
        ]

    def scrape(self, address: str) -> str:
        """Return the metrics of the worker at an address."""
        pod = next(pod for pod in self.pods.values() if pod["status"].get("podIP") == address)
        is_missing = self.fault is Fault.PARTIAL and index_of(pod) % 2
        if self.fault is Fault.LOST or is_missing or not self.has_live_node(pod):
            raise OSError
        steps = int(pod["metadata"]["uid"] in self.joined_uids and self.fault is not Fault.LATE)
        return f'everstep_worker_steps_total{{worker="{pod["metadata"]["name"]}"}} {steps}'

    def count_schedulable(self, job: ElasticJob) -> int:
        zones = [job.status.placement.zone] if job.status.placement else list(ZONES)
        return sum(self.machines[zone] - self.used_machines(zone) for zone in zones)

    def delete_placeholder(self, _namespace: str, placeholder: Placeholder) -> None:
        with self._write():
            existing = self.placeholder_pods.get(placeholder.name)
            if existing is not None and existing["metadata"]["uid"] == placeholder.uid:
                del self.placeholder_pods[placeholder.name]

    def create(self, kind: str, namespace: str, body: Mapping[str, Any]) -> None:
        if PLACEHOLDER_LABEL not in body["metadata"].get("labels", {}):
            super().create(kind, namespace, body)
            return
        with self._write():
            name = body["metadata"]["name"]
            if name in self.placeholder_pods:
                raise ApiError(CONFLICT, f"{name} already exists")
            placeholder = copy.deepcopy(dict(body))
            placeholder["metadata"] |= {
                "uid": f"{name}#{self.writes}",
                "creationTimestamp": format_time(self.now),
            }
            placeholder["status"] = {"phase": "Pending"}
            self.placeholder_pods[name] = placeholder

    # Used by the model and the tests.

    @property
    def desired_replicas(self) -> int:
        return 2 * self.replicas  # in a move, workers of two zones

    def follow_capacity(self) -> None:
        """Let the job follow capacity."""
        self.source["metadata"]["annotations"][SCALING_ANNOTATION] = SCALING_CAPACITY

    def used_machines(self, zone: str) -> int:
        """Return the number of pods that were bound to a machine of a zone, even if it is lost."""
        pods = [*self.pods.values(), *self.placeholder_pods.values()]
        return sum("nodeName" in pod["spec"] and zone_of(pod) == zone for pod in pods)

    def schedule(self, name: str) -> None:
        pod = self.pods[name]
        if "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
            return
        if self._bind(pod):
            self._report(pod, "Running", {"running": {"startedAt": format_time(self.now)}})
            pod["status"]["podIP"] = f"ip-of-{pod['metadata']['uid']}"

    def join(self) -> None:
        """Let workers that run join the group, up to its maximum; its members stay."""
        running = [pod["metadata"]["uid"] for pod in self.pods.values() if self._runs(pod)]
        self.joined_uids &= set(running)
        candidates = [uid for uid in running if uid not in self.joined_uids]
        self.joined_uids.update(
            candidates[: self.source["spec"]["maxReplicas"] - len(self.joined_uids)]
        )

    def schedule_placeholders(self) -> None:
        for pod in self.placeholder_pods.values():
            if "nodeName" not in pod["spec"] and self._bind(pod):
                condition = {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": format_time(self.now),
                }
                pod["status"] = {"phase": "Running", "conditions": [condition]}

    def set_machines(self, zone: str, machines: int) -> None:
        """Set the number of machines of a zone; pods of lost machines are lost, too."""
        self.machines[zone] = machines
        pods = [*self.placeholder_pods.values(), *self.pods.values()]
        bound_pods = [pod for pod in pods if "nodeName" in pod["spec"] and zone_of(pod) == zone]
        for pod in bound_pods[: max(len(bound_pods) - machines, 0)]:
            self.placeholder_pods.pop(pod["metadata"]["name"], None)
            # The pod of a worker stays until it is deleted.
            self.nodes_up.pop(pod["spec"]["nodeName"], None)
            self.lost_uids.add(pod["metadata"]["uid"])

    def interrupt(self, name: str) -> None:
        """Annotate a running worker's pod with an interruption notice for its machine."""
        pod = self.pods[name]
        if self._runs(pod):
            pod["metadata"].setdefault("annotations", {})[DEADLINE_ANNOTATION] = format_time(
                self.now
            )
            self.lost_uids.add(pod["metadata"]["uid"])

    def end_interrupted(self) -> None:
        """Remove the machines that have an interruption notice."""
        for pod in self.pods.values():
            if DEADLINE_ANNOTATION in pod["metadata"].get("annotations", {}):
                self.nodes_up.pop(pod["spec"]["nodeName"], None)

    def workers(self) -> Counter[str]:
        """Return the number of running workers in each zone."""
        return Counter(zone_of(pod) for pod in self.pods.values() if self._runs(pod))

    def awaited_workers(self, zone: str, seconds: float) -> int:
        """Return how many running workers of a zone have not joined and have run for less than `seconds`."""
        return sum(
            zone_of(pod) == zone
            and self._runs(pod)
            and pod["metadata"]["uid"] not in self.joined_uids
            and self.now - started_at(pod) < timedelta(seconds=seconds)
            for pod in self.pods.values()
        )

    def _runs(self, pod: Mapping[str, Any]) -> bool:
        """Return True if a worker runs, and is not being deleted."""
        running = pod["status"]["phase"] == "Running" and self.has_live_node(pod)
        return running and "deletionTimestamp" not in pod["metadata"]

    def _bind(self, pod: dict[str, Any]) -> bool:
        zone = zone_of(pod)
        lost_nodes = sum(
            "nodeName" in other["spec"] and zone_of(other) == zone and not self.has_live_node(other)
            for other in self.pods.values()
        )
        if self.used_machines(zone) - lost_nodes >= self.machines[zone]:
            return False
        node = f"{zone}-{pod['metadata']['uid']}"
        pod["spec"]["nodeName"] = node
        self.nodes_up[node] = True
        return True


def zone_of(pod: Mapping[str, Any]) -> str:
    zone: str = pod["spec"]["nodeSelector"][ZONE_LABEL]
    return zone


def started_at(pod: Mapping[str, Any]) -> datetime:
    running = pod["status"]["containerStatuses"][0]["state"]["running"]
    start = parse_time(running["startedAt"])
    assert start is not None
    return start
