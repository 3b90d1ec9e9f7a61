"""The autoscaler of a twin: reads the cluster at intervals and returns decisions.

Only idle times are remembered. After a restart they begin at 0, so machines are removed later.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudtwin.capacity import autoscaler, observation
from cloudtwin.capacity.autoscaler import Resources, ScalingDecision
from cloudtwin.capacity.observation import AutoscalerPod, Object
from cloudtwin.capacity.pools import Pool
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.linux import memory
from cloudtwin.nodes.machine import configuration

SCAN_SECONDS = 3.0  # the cluster autoscaler scans every 10 s
PODS_PER_NODE = 110


@dataclass
class Scaler:
    """The autoscaler of one twin.

    Attributes:
        api: a client of its cluster.
    """

    api: KubernetesClient
    _next_scan: float = 0.0
    _idle_since: dict[str, float] = field(default_factory=dict)

    def decide(
        self,
        pools: Sequence[Pool],
        pool_by_machine: Mapping[str, str],
        shortages: Mapping[str, int],
        time_factor: float,
    ) -> ScalingDecision | None:
        """Return the changes of pools, or None.

        It is None between two scans, if no pool can be scaled, and if the cluster does not respond.

        Args:
            pools: all pools.
            pool_by_machine: key of the pool of each machine that stays.
            shortages: the pools for which the cloud has no capacity.
            time_factor: simulated seconds per real second.
        """
        now = time.monotonic()
        if now < self._next_scan or not any(pool.min_size < pool.max_size for pool in pools):
            return None
        self._next_scan = now + SCAN_SECONDS
        try:
            pods: list[Object] = self.api.get("/api/v1/pods")["items"]
            autoscaler_pod = observation.find_autoscaler(pods)
            if not autoscaler_pod and not any(pool.autoscaled for pool in pools):
                return None
            nodes = {
                name: n
                for name, n in node_objects.nodes(self.api).items()
                if name in pool_by_machine
            }
            priorities = self._priorities(autoscaler_pod, pools)
        except (ApiError, OSError):
            return None
        offers = {
            pool.key: observation.resources_of_new_node(pool, pool_by_machine, nodes, pods)
            or nominal_resources(pool)
            for pool in pools
        }
        try:
            scalable = observation.scalable_pools(
                pools, offers, autoscaler_pod, priorities, shortages, time_factor
            )
        except ValueError as error:  # the cluster autoscaler would not start
            reason = f"a flag of the autoscaler's pod is invalid: {error}"
            return ScalingDecision(sizes={}, remove=(), reasons=(reason,))
        pool_by_key = {scalable_pool.pool.key: scalable_pool.pool for scalable_pool in scalable}
        pool_nodes = observation.pool_nodes(
            pool_by_key, pool_by_machine, nodes, pods, self._idle_seconds(nodes, pods)
        )
        return autoscaler.decide(
            scalable, pool_nodes, observation.pending_pods(pods, _zones(nodes))
        )

    def _idle_seconds(
        self, nodes: Mapping[str, Object], pods: Sequence[Object]
    ) -> dict[str, float]:
        now = time.monotonic()
        idle_names = {
            name
            for name, node in nodes.items()
            if node_objects.is_ready(node) and not observation.is_busy(name, pods)
        }
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle_names}
        return {name: now - since for name, since in self._idle_since.items()}

    def _priorities(
        self, autoscaler: AutoscalerPod | None, pools: Sequence[Pool]
    ) -> dict[str, int]:
        namespace = autoscaler.namespace if autoscaler else "kube-system"
        path = f"/api/v1/namespaces/{namespace}/configmaps/{observation.PRIORITIES}"
        try:
            return observation.priorities_of(self.api.get(path), pools)
        except ApiError:
            return {}  # without the ConfigMap, all pools have the same priority


def _zones(nodes: Mapping[str, Object]) -> dict[str, str]:
    """Return the zone of each machine that has one."""
    labels = {name: node["metadata"].get("labels") or {} for name, node in nodes.items()}
    zone = autoscaler.ZONE_LABEL
    return {
        name: str(node_labels[zone])
        for name, node_labels in labels.items()
        if node_labels.get(zone)
    }


def nominal_resources(pool: Pool) -> Resources:
    """Return the nominal resources of a machine, for a pool that has no machine to compute them from."""
    return Resources(
        milli_cpu=1000 * (os.cpu_count() or 1),
        memory=configuration.offered_bytes(pool.role, memory.usable_bytes()),
        gpus=pool.gpus,
        pods=PODS_PER_NODE,
    )
