"""Conversion of Kubernetes objects to the input of the autoscaler's decision. Pure.

On AKS the autoscaler is part of the cloud, and each pool enables or disables it. On EKS it is a
pod in the cluster, which its command line configures: without the pod, nothing is scaled.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from cloudtwin import quantities
from cloudtwin.accounts import scale_set
from cloudtwin.capacity.autoscaler import (
    ZONE_LABEL,
    LabelRequirement,
    PeerSelector,
    PendingPod,
    PoolNode,
    Resources,
    ScalablePool,
    Toleration,
)
from cloudtwin.capacity.pools import Pool
from cloudtwin.images.recipes import image_name
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.model import GPU_RESOURCE

IMAGE = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"
ENDED_PHASES = {"Succeeded", "Failed"}
GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
# Source: ParseDuration in Go's package time, 2026-11-27.
GO_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|h|m|s)")
GO_DURATION = re.compile(rf"([+-]?)(0|(?:{GO_PART.pattern})+)")
Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AutoscalerPod:
    """An autoscaler that runs as a pod.

    Attributes:
        namespace: its namespace, and the namespace of its ConfigMap.
        flags: the values of each flag that its command line sets with `=`.
    """

    namespace: str
    flags: Mapping[str, tuple[str, ...]]

    @property
    def ignored_taints(self) -> frozenset[str]:
        """The keys of taints that are removed soon after a machine's start."""
        values = (*self.flags.get("startup-taint", ()), *self.flags.get("ignore-taint", ()))
        return frozenset(key for value in values for key in value.split(","))

    @property
    def idle_seconds(self) -> float | None:
        """The idle time after which a machine is removed; None without the flag."""
        values = self.flags.get("scale-down-unneeded-time", ())
        return duration_seconds(values[-1]) if values else None


def find_autoscaler(pods: Sequence[Object]) -> AutoscalerPod | None:
    """Return the autoscaler that runs in the cluster, or None."""
    for pod in pods:
        container = pod["spec"]["containers"][0]
        is_autoscaler = image_name(container["image"]) == IMAGE
        if is_autoscaler and pod.get("status", {}).get("phase") == "Running":
            flags: dict[str, tuple[str, ...]] = {}
            for argument in (*container.get("command", ()), *container.get("args", ())):
                name, separator, value = argument.removeprefix("--").partition("=")
                if separator:
                    flags[name] = (*flags.get(name, ()), value)
            return AutoscalerPod(namespace=pod["metadata"]["namespace"], flags=flags)
    return None


def scalable_pools(
    pools: Sequence[Pool],
    offers: Mapping[str, Resources],
    autoscaler: AutoscalerPod | None,
    priorities: Mapping[str, int],
    shortages: Mapping[str, int],
    time_factor: float = 1.0,
) -> list[ScalablePool]:
    """Return the pools whose size may change.

    Args:
        pools: all pools.
        offers: resources of a new machine of each pool.
        autoscaler: the autoscaler that runs as a pod.
        priorities: pool -> priority, 0 by default.
        shortages: the pools for which the cloud has no capacity.
        time_factor: simulated seconds per real second.

    Raises:
        ValueError: the autoscaler's idle time is not a valid duration.
    """
    scalable = []
    for pool in pools:
        enabled = autoscaler is not None if pool.cloud == "aws" else pool.autoscaled
        if not enabled or pool.min_size == pool.max_size:
            continue
        declared_seconds = autoscaler.idle_seconds if autoscaler else None
        idle_seconds = pool.idle_seconds if declared_seconds is None else declared_seconds
        scalable.append(
            ScalablePool(
                pool=replace(pool, idle_seconds=idle_seconds / time_factor),
                offers=offers[pool.key],
                priority=priorities.get(pool.key, 0),
                ignored_taints=autoscaler.ignored_taints if autoscaler else frozenset(),
                out_of_capacity=pool.key in shortages,
            )
        )
    return scalable


def priorities_of(config_map: Object, pools: Sequence[Pool]) -> dict[str, int]:
    """Return the pools' priorities in the autoscaler's ConfigMap; if several patterns match, the highest.

    The autoscaler ignores an invalid ConfigMap, so that all pools have the same priority. Source: expander/priority in
    github.com/kubernetes/autoscaler, 2026-11-27.
    """
    text = (config_map.get("data") or {}).get("priorities", "")
    priorities: dict[str, int] = {}
    try:
        table: Mapping[Any, Sequence[str]] = yaml.safe_load(text) or {}
        for priority, patterns in table.items():
            for pool in pools:
                if any(re.search(pattern, _group_name(pool)) for pattern in patterns):
                    priorities[pool.key] = max(
                        int(priority), priorities.get(pool.key, int(priority))
                    )
    except (yaml.YAMLError, re.error, AttributeError, TypeError, ValueError):
        return {}
    return priorities


def _group_name(pool: Pool) -> str:
    """Return the cloud's name for the group of machines of a pool, which priorities refer to."""
    if pool.cloud == "aws":
        return f"eks-{pool.name}-00000000-0000-0000-0000-000000000000"
    return scale_set(pool.name)


def _peers(pod: Object) -> PeerSelector | None:
    """Return the selector of the pods whose zone a pod must share; None if it need not share a zone.

    It is in the first term of the pod's required affinity whose topology is the zone. Further terms of this kind
    and selectors of namespaces are ignored.
    """
    affinity = (pod["spec"].get("affinity") or {}).get("podAffinity") or {}
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        if term.get("topologyKey") == ZONE_LABEL:
            selector = term.get("labelSelector")
            if selector is None:  # unlike an empty selector, it selects no pod
                return None
            labels = sorted((selector.get("matchLabels") or {}).items())
            return PeerSelector(
                namespaces=frozenset(term.get("namespaces") or (pod["metadata"]["namespace"],)),
                requirements=(
                    *(LabelRequirement(key=k, operator="In", values=(v,)) for k, v in labels),
                    *map(_requirement, selector.get("matchExpressions") or ()),
                ),
            )
    return None


def _requirement(expression: Object) -> LabelRequirement:
    return LabelRequirement(
        key=expression["key"],
        operator=expression["operator"],
        values=tuple(expression.get("values") or ()),
    )


def _node_terms(pod: Object) -> tuple[tuple[LabelRequirement, ...], ...]:
    """Return the terms of a pod's required node affinity.

    A field, such as `metadata.name`, is treated as a label that new machines lack.
    """
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return tuple(
        tuple(
            _requirement(item)
            for item in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
        )
        for term in required.get("nodeSelectorTerms") or ()
    )


def _zones_of_peers(
    pod: Object, pods: Sequence[Object], zones: Mapping[str, str]
) -> frozenset[str]:
    """Return the zones of the scheduled pods whose zone a pod must share."""
    selector = _peers(pod)
    peers = [
        peer
        for peer in pods
        if selector
        and selector.matches(peer["metadata"]["namespace"], peer["metadata"].get("labels") or {})
        and peer.get("status", {}).get("phase") not in ENDED_PHASES
    ]
    peer_zones = (zones.get(peer["spec"].get("nodeName") or "", "") for peer in peers)
    return frozenset(filter(None, peer_zones))


def pending_pods(
    pods: Sequence[Object], zones: Mapping[str, str] | None = None
) -> list[PendingPod]:
    """Return the unschedulable pods.

    Args:
        pods: all pods of the cluster.
        zones: the zone of each machine.
    """
    return [
        PendingPod(
            name=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
            requests=requests_of(pod),
            selector=pod["spec"].get("nodeSelector") or {},
            node_terms=_node_terms(pod),
            tolerations=tuple(_toleration(t) for t in pod["spec"].get("tolerations") or ()),
            peers=_peers(pod),
            zones=_zones_of_peers(pod, pods, zones or {}),
        )
        for pod in pods
        if pod.get("status", {}).get("phase") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
        and any(
            c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable"
            for c in pod["status"].get("conditions", ())
        )
    ]


def pool_nodes(
    pools: Mapping[str, Pool],
    pool_by_machine: Mapping[str, str],
    nodes: Mapping[str, Object],
    pods: Sequence[Object],
    idle: Mapping[str, float],
) -> list[PoolNode]:
    """Return the schedulable machines of pools.

    Args:
        pools: pools by key.
        pool_by_machine: key of the pool of each machine.
        nodes: the Node objects, by name.
        pods: all pods of the cluster.
        idle: idle seconds of machines.
    """
    result = []
    for name, node in nodes.items():
        pool = pools.get(pool_by_machine.get(name, ""))
        if pool and node_objects.is_schedulable(node):
            free_resources = _allocatable(node, pool)
            for pod in _pods_on(name, pods):
                free_resources -= requests_of(pod)
            result.append(
                PoolNode(
                    name=name,
                    pool=pool.key,
                    free_resources=free_resources,
                    idle_seconds=idle.get(name, 0.0),
                )
            )
    return result


def resources_of_new_node(
    pool: Pool,
    pool_by_machine: Mapping[str, str],
    nodes: Mapping[str, Object],
    pods: Sequence[Object],
) -> Resources | None:
    """Return the resources of a new machine of a pool, computed from an existing one; None if the pool has none."""
    for name, node in nodes.items():
        if pool_by_machine.get(name) == pool.key:
            offers = _allocatable(node, pool)
            for pod in _pods_on(name, pods):
                if not node_objects.is_evictable(pod):
                    offers -= requests_of(pod)
            return offers
    return None


def is_busy(name: str, pods: Sequence[Object]) -> bool:
    """Return True if a machine runs pods other than DaemonSet pods and static pods."""
    return any(node_objects.is_evictable(pod) for pod in _pods_on(name, pods))


def requests_of(pod: Object) -> Resources:
    """Return a pod's requests as the scheduler computes them.

    Init containers run one at a time before the others; a sidecar, an init container with `restartPolicy: Always`, runs
    alongside all containers after it. Source:
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers, 2026-11.
    """
    spec = pod["spec"]
    containers = [_requests(container) for container in spec["containers"]]
    init_containers = [
        (_requests(container), container.get("restartPolicy") == "Always")
        for container in spec.get("initContainers") or ()
    ]
    overhead = _requests({"resources": {"requests": spec.get("overhead")}})

    def effective_request(field: str) -> int:
        running = highest = 0
        for requests, is_sidecar in init_containers:
            with_container = running + getattr(requests, field)
            highest = max(highest, with_container)
            running = with_container if is_sidecar else running
        running += sum(getattr(requests, field) for requests in containers)
        return int(max(running, highest) + getattr(overhead, field))

    return Resources(
        milli_cpu=effective_request("milli_cpu"),
        memory=effective_request("memory"),
        gpus=effective_request("gpus"),
        pods=1,
    )


def duration_seconds(text: str) -> float:
    """Return the seconds of a Go duration such as `10m` or `1h30m`.

    Raises:
        ValueError: the text is not a valid duration.
    """
    match = GO_DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a valid duration")
    sign = -1 if match[1] == "-" else 1
    return sign * sum(float(number) * GO_UNITS[unit] for number, unit in GO_PART.findall(match[2]))


def _allocatable(node: Object, pool: Pool) -> Resources:
    allocatable = node.get("status", {}).get("allocatable", {})
    return Resources(
        milli_cpu=quantities.thousandths(allocatable.get("cpu", 0)),
        memory=quantities.units(allocatable.get("memory", 0)),
        # A new machine reports its GPUs only when its device plugin runs.
        gpus=quantities.units(allocatable.get(GPU_RESOURCE, 0)) or pool.gpus,
        pods=quantities.units(allocatable.get("pods", 0)),
    )


def _pods_on(name: str, pods: Sequence[Object]) -> list[Object]:
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == name
        and pod.get("status", {}).get("phase") not in ENDED_PHASES
    ]


def _requests(container: Object) -> Resources:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Resources(
        milli_cpu=quantities.thousandths(requests.get("cpu", 0)),
        memory=quantities.units(requests.get("memory", 0)),
        gpus=quantities.units(requests.get(GPU_RESOURCE, 0)),
    )


def _toleration(toleration: Object) -> Toleration:
    return Toleration(
        key=toleration.get("key") or "",
        operator=toleration.get("operator") or "Equal",
        value=toleration.get("value") or "",
        effect=toleration.get("effect") or "",
    )
