"""What an autoscaler sees of a cluster: Kubernetes's objects, turned into what the decision is made of. Pure.

On AKS the autoscaler is the cloud's own, and a pool says whether it may size it. On EKS it is a pod of the
cluster's owner: where none runs nothing is sized, and what its command line says is what holds.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import yaml

from twin.clouds.capacity.autoscaler import Node, Pod, Room, Template, Toleration
from twin.clouds.capacity.pools import Pool
from twin.nodes import cluster

NAME = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"
GPU = "nvidia.com/gpu"
ENDED = {"Succeeded", "Failed"}
SUFFIXES: dict[str, int | str] = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "m": "0.001",
}  # fmt: skip
SPANS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """An autoscaler that runs as a pod.

    Attributes:
        namespace: where its settings are too.
        flags: its command line; of a flag that is given twice, all values.
    """

    namespace: str
    flags: Mapping[str, tuple[str, ...]]

    @property
    def ignored(self) -> frozenset[str]:
        """The taints that it takes for passing."""
        given = (*self.flags.get("startup-taint", ()), *self.flags.get("ignore-taint", ()))
        return frozenset(key for value in given for key in value.split(","))

    @property
    def idle_seconds(self) -> float | None:
        """How long a machine must be idle; None where nothing is said."""
        given = self.flags.get("scale-down-unneeded-time", ())
        return span(given[-1]) if given else None


def find_autoscaler(pods: Sequence[Object]) -> Autoscaler | None:
    """Return the autoscaler that runs in the cluster, if one does."""
    for pod in pods:
        container = pod["spec"]["containers"][0]
        image = container["image"].rpartition("/")[2].partition(":")[0]
        if image == NAME and pod.get("status", {}).get("phase") == "Running":
            flags: dict[str, tuple[str, ...]] = {}
            for argument in (*container.get("command", ()), *container.get("args", ())):
                name, given, value = argument.removeprefix("--").partition("=")
                if given:
                    flags[name] = (*flags.get(name, ()), value)
            return Autoscaler(namespace=pod["metadata"]["namespace"], flags=flags)
    return None


def templates(
    pools: Sequence[Pool],
    rooms: Mapping[str, Room],
    found: Autoscaler | None,
    priorities: Mapping[str, int],
    short: Mapping[str, int],
    factor: float = 1.0,
) -> list[Template]:
    """Return the pools that may be sized, as the decision wants them.

    Args:
        pools: all there are.
        rooms: what a machine of each pool offers to pods.
        found: the autoscaler that runs as a pod.
        priorities: of pools; those that are not named have none.
        short: the pools that the cloud has no capacity for.
        factor: how fast time passes.
    """
    made = []
    for pool in pools:
        runs = found is not None if pool.cloud == "aws" else pool.autoscaled
        if not runs or pool.minimum == pool.maximum:
            continue
        idle = (found and found.idle_seconds) or pool.idle_seconds
        made.append(
            Template(
                pool=replace(pool, idle_seconds=idle / factor),
                offers=rooms[pool.name],
                priority=priorities.get(pool.name, 0),
                ignored=found.ignored if found else frozenset(),
                short=pool.name in short,
            )
        )
    return made


def group_name(pool: Pool) -> str:
    """Return what the cloud calls the group of machines behind a pool; priorities are given by that name."""
    return f"eks-{pool.name}-00000000" if pool.cloud == "aws" else f"aks-{pool.name}-00000000-vmss"


def priorities_of(config_map: Object, pools: Sequence[Pool]) -> dict[str, int]:
    """Return the priority of each pool that the autoscaler's ConfigMap names: of several the highest."""
    text = config_map.get("data", {}).get("priorities", "")
    table: Any = yaml.safe_load(text) or {}
    given: dict[str, int] = {}
    for priority, patterns in table.items() if isinstance(table, dict) else ():
        for pool in pools:
            if any(re.search(pattern, group_name(pool)) for pattern in patterns):
                given[pool.name] = max(int(priority), given.get(pool.name, int(priority)))
    return given


def waiting(pods: Sequence[Object]) -> list[Pod]:
    """Return the pods that the scheduler found no machine for."""
    return [
        Pod(
            name=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
            wants=wants(pod),
            selector=pod["spec"].get("nodeSelector") or {},
            tolerations=tuple(_toleration(t) for t in pod["spec"].get("tolerations") or ()),
        )
        for pod in pods
        if pod.get("status", {}).get("phase") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
        and any(
            c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable"
            for c in pod["status"].get("conditions", ())
        )
    ]


def machines(
    pools: Mapping[str, Pool],
    groups: Mapping[str, str],
    nodes: Mapping[str, Object],
    pods: Sequence[Object],
    idle: Mapping[str, float],
) -> list[Node]:
    """Return the machines that may take pods.

    Args:
        pools: by name.
        groups: the pool of each machine.
        nodes: Kubernetes's, by name.
        pods: all of the cluster.
        idle: for how long each machine has been without work.
    """
    found = []
    for name, node in nodes.items():
        pool = pools.get(groups.get(name, ""))
        if pool and cluster.is_schedulable(node):
            free = _offer(node, pool)
            for pod in _living_on(name, pods):
                free = free.without(wants(pod))
            found.append(
                Node(name=name, pool=pool.name, free=free, idle_seconds=idle.get(name, 0.0))
            )
    return found


def fresh_room(
    pool: Pool,
    groups: Mapping[str, str],
    nodes: Mapping[str, Object],
    pods: Sequence[Object],
    otherwise: Room,
) -> Room:
    """Return what a new machine of a pool offers: as one that is there does, less what its daemons take."""
    for name, node in nodes.items():
        if groups.get(name) == pool.name:
            room = _offer(node, pool)
            for pod in _living_on(name, pods):
                if not cluster.is_evictable(pod):
                    room = room.without(wants(pod))
            return room
    return otherwise


def busy(name: str, pods: Sequence[Object]) -> bool:
    """Whether anything but daemons runs on a machine."""
    return any(cluster.is_evictable(pod) for pod in _living_on(name, pods))


def wants(pod: Object) -> Room:
    """Return what a pod asks for: its containers together, or one that runs before them if that is more."""
    spec = pod["spec"]
    together = [_requests(container) for container in spec["containers"]]
    before = [_requests(container) for container in spec.get("initContainers") or ()]
    return Room(
        milli_cpu=_most([r.milli_cpu for r in together], [r.milli_cpu for r in before]),
        memory=_most([r.memory for r in together], [r.memory for r in before]),
        gpus=_most([r.gpus for r in together], [r.gpus for r in before]),
        pods=1,
    )


def quantity(text: str | float) -> Decimal:
    """Return the number that a quantity of Kubernetes stands for.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text))
    if not found or found[2] not in SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(found[1]) * Decimal(SUFFIXES[found[2]])


def span(text: str) -> float:
    """Return the seconds of a span of time as Go writes it, such as `10m` or `1h30m`.

    Raises:
        ValueError: it is none.
    """
    parts = re.findall(r"([0-9.]+)(ms|h|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no span of time")
    return sum(float(number) * SPANS[unit] for number, unit in parts)


def _offer(node: Object, pool: Pool) -> Room:
    offered = node.get("status", {}).get("allocatable", {})
    return Room(
        milli_cpu=int(quantity(offered.get("cpu", 0)) * 1000),
        memory=int(quantity(offered.get("memory", 0))),
        # A machine that has just come has its GPUs only when its device plugin runs: they count already.
        gpus=int(offered.get(GPU, 0)) or pool.gpus,
        pods=int(offered.get("pods", 0)),
    )


def _living_on(name: str, pods: Sequence[Object]) -> list[Object]:
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == name and pod.get("status", {}).get("phase") not in ENDED
    ]


def _requests(container: Object) -> Room:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Room(
        milli_cpu=int(quantity(asked.get("cpu", 0)) * 1000),
        memory=int(quantity(asked.get("memory", 0))),
        gpus=int(asked.get(GPU, 0)),
    )


def _toleration(given: Object) -> Toleration:
    return Toleration(
        key=given.get("key") or "",
        operator=given.get("operator") or "Equal",
        value=given.get("value") or "",
        effect=given.get("effect") or "",
    )


def _most(together: Sequence[int], before: Sequence[int]) -> int:
    return max(sum(together), *before, 0)
