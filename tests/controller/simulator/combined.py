"""The in-memory cluster of a job that may combine zones, capacity and limits; a pod is bound before it starts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from controller.api import ElasticJob
from controller.objects import Node
from controller.timestamps import format_time
from everstep.catalog.names import (
    CAPACITY_LABEL,
    ON_DEMAND,
    PLACEMENT_ANNOTATION,
    ZONE_LABEL,
)
from tests.controller.simulator.limits import ON_DEMAND_USD, SPOT_USD, is_on_demand
from tests.controller.simulator.zones import ZONES, ZonedCluster

POOLS = [
    {"capacity": "spot", "usdPerHour": SPOT_USD},
    {"capacity": "onDemand", "usdPerHour": ON_DEMAND_USD},
]


class CombinedCluster(ZonedCluster):
    """A cluster with spot machines by zone, and as many on-demand machines as requested.

    Attributes:
        max_replicas: greatest maximum number of workers that the job has had.
    """

    def __init__(
        self,
        replicas: int,
        times: Mapping[str, float] | None,
        *,
        max_replicas: int,
        follows_capacity: bool,
        spending: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(replicas, times)
        self.max_replicas = max_replicas
        self.source["metadata"]["creationTimestamp"] = format_time(self.now)
        spec = self.source["spec"]
        spec["maxReplicas"] = max_replicas
        if times is None:
            del self.source["metadata"]["annotations"][PLACEMENT_ANNOTATION]
        if follows_capacity:
            self.follow_capacity()
        if spending is not None:
            spec["spending"] = {"pools": POOLS, **spending}

    # Used by the controller.

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        nodes = super().nodes(names)
        return {name: node and replace(node, labels=_labels(name)) for name, node in nodes.items()}

    def count_schedulable(self, job: ElasticJob) -> int:
        self._request()
        zones = [job.status.placement.zone] if job.status.placement else list(ZONES)
        return sum(max(self._free(zone), 0) for zone in zones)

    # Used by the model and the tests.

    @property
    def desired_replicas(self) -> int:
        """Greatest number of pods: spot and on-demand workers, in the zone of the group and in its previous zone.

        Surplus workers stay until their deletion is complete.
        """
        self.max_replicas = max(self.max_replicas, self.source["spec"]["maxReplicas"])
        return 4 * self.max_replicas

    def used_machines(self, zone: str) -> int:
        pods = [*self.pods.values(), *self.placeholder_pods.values()]
        return sum(node_zone(pod) == zone and not is_on_demand(pod) for pod in pods)

    def _free(self, zone: str) -> int:
        lost_nodes = sum(
            node_zone(pod) == zone and not is_on_demand(pod) and not self.has_live_node(pod)
            for pod in self.pods.values()
        )
        return self.machines[zone] - self.used_machines(zone) + lost_nodes

    def schedule(self, name: str) -> None:
        """Bind a pod, or start it if it has a node."""
        pod = self.pods[name]
        if "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] != "Pending":
            return
        if "nodeName" not in pod["spec"]:
            self._bind(pod)
        elif self.has_live_node(pod):
            conditions = pod["status"]["conditions"]
            self._report(pod, "Running", {"running": {"startedAt": format_time(self.now)}})
            pod["status"] |= {
                "podIP": f"ip-of-{pod['metadata']['uid']}",
                "conditions": conditions,
            }

    def _bind(self, pod: dict[str, Any]) -> bool:
        zone = (pod["spec"].get("nodeSelector") or {}).get(ZONE_LABEL)
        if is_on_demand(pod):
            node = f"{zone or ZONES[0]}/{ON_DEMAND}/{pod['metadata']['uid']}"
        else:
            free = [name for name in ([zone] if zone else ZONES) if self._free(name) > 0]
            if not free:
                return False
            node = f"{free[0]}/{pod['metadata']['uid']}"
        pod["spec"]["nodeName"] = node
        self.nodes_up[node] = True
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": format_time(self.now),
        }
        pod["status"]["conditions"] = [condition]
        return True

    def set_machines(self, zone: str, machines: int) -> None:
        """Set the number of spot machines of a zone; pods of lost machines are lost, too."""
        self.machines[zone] = machines
        pods = [*self.placeholder_pods.values(), *self.pods.values()]
        bound = [
            pod
            for pod in pods
            if node_zone(pod) == zone and not is_on_demand(pod) and self.has_live_node(pod)
        ]
        for pod in bound[: max(len(bound) - machines, 0)]:
            self.placeholder_pods.pop(pod["metadata"]["name"], None)
            self.nodes_up.pop(pod["spec"]["nodeName"], None)
            self.lost_uids.add(pod["metadata"]["uid"])

    def interrupt(self, name: str) -> None:
        if "nodeName" in self.pods[name]["spec"]:
            super().interrupt(name)

    def running_workers(self) -> list[str]:
        return [name for name, pod in self.pods.items() if self._runs(pod)]


def _labels(node: str) -> dict[str, str]:
    zone, capacity, *_ = node.split("/")
    return {ZONE_LABEL: zone} | ({CAPACITY_LABEL: ON_DEMAND} if capacity == ON_DEMAND else {})


def node_zone(pod: Mapping[str, Any]) -> str:
    """Return the zone of a pod's node; empty without a node."""
    node = pod["spec"].get("nodeName", "")
    return str(node).split("/")[0] if node else ""
