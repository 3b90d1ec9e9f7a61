"""An autoscaler's decision: more machines for unschedulable pods, fewer where machines are idle. Pure.

It follows the Kubernetes cluster autoscaler: for each unschedulable pod, it looks for a pool whose new
machine could run the pod, in the order of priorities. A pool for which the cloud has no capacity
is skipped, so that a job falls back from spot to the next pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloudtwin.capacity.pools import Pool
from cloudtwin.nodes.model import Taint

ZONE_LABEL = "topology.kubernetes.io/zone"  # set in the template of a new node, as on both clouds


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that a machine offers or a pod requests.

    Attributes:
        milli_cpu: thousandths of a CPU.
        memory: bytes.
        gpus: whole GPUs.
        pods: number of pods.
    """

    milli_cpu: int = 0
    memory: int = 0
    gpus: int = 0
    pods: int = 0

    def covers(self, other: "Resources") -> bool:
        """Return True if these resources cover `other`."""
        remaining = self - other
        return min(remaining.milli_cpu, remaining.memory, remaining.gpus, remaining.pods) >= 0

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            milli_cpu=self.milli_cpu - other.milli_cpu,
            memory=self.memory - other.memory,
            gpus=self.gpus - other.gpus,
            pods=self.pods - other.pods,
        )


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A toleration of a pod. An empty effect matches all effects; an empty key with `Exists` matches all keys."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return True if the toleration matches a taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True, kw_only=True)
class LabelRequirement:
    """A requirement on one label, of a pod's node affinity or of a label selector.

    Attributes:
        key: key of the label.
        operator: In, NotIn, Exists or DoesNotExist; in a node affinity Gt or Lt, too.
        values: values to compare with.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if labels match the requirement, as in the scheduler."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                number = _integer(value)
                if number is None:
                    return False
                bound = int(self.values[0])
                return number > bound if self.operator == "Gt" else number < bound
        raise ValueError(f"{self.operator!r} is not an operator of a label requirement")


def _integer(label: str | None) -> int | None:
    """Return the integer in the value of a label; None if it is not one."""
    try:
        return None if label is None else int(label)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class PeerSelector:
    """The selector of the pods with which a pod must share a zone.

    Attributes:
        namespaces: their namespaces.
        requirements: requirements on their labels, all of which they meet; empty: all pods.
    """

    namespaces: frozenset[str]
    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return True if a pod with this namespace and these labels is selected."""
        return namespace in self.namespaces and all(
            requirement.matches(labels) for requirement in self.requirements
        )


@dataclass(frozen=True, kw_only=True)
class PendingPod:
    """An unschedulable pod.

    Attributes:
        name: namespace and name.
        requests: requested resources.
        selector: labels that its machine must have.
        node_terms: terms of its required node affinity, of which its machine must match one; empty: any machine.
        tolerations: its tolerations.
        peers: selector of the pods with which it must share a zone; None: it may run in any zone.
        zones: the zones of these peers; empty: no peer is scheduled, and the pod may run in any zone.
    """

    name: str
    requests: Resources
    selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    peers: PeerSelector | None = None
    zones: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PoolNode:
    """A machine of a pool, with the properties that the decision uses.

    Attributes:
        name: its name.
        pool: its pool.
        free_resources: resources that no pod requests.
        idle_seconds: time for which only DaemonSet pods and static pods have run there; 0 while other pods run, or the
            Node is not Ready.
    """

    name: str
    pool: str
    free_resources: Resources
    idle_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScalablePool:
    """A pool whose size the autoscaler may change.

    Attributes:
        pool: the pool.
        offers: resources of a new machine, minus the requests of its DaemonSet pods if an existing machine shows them.
        priority: pools of higher priority grow first.
        ignored_taints: keys of taints that are removed soon after the start.
        out_of_capacity: True if the cloud has no capacity for it now.
    """

    pool: Pool
    offers: Resources
    priority: int = 0
    ignored_taints: frozenset[str] = frozenset()
    out_of_capacity: bool = False

    def obstacle(self, pod: PendingPod) -> str:
        """Return the reason why a new machine could not run a pod; empty if it could."""
        labels = {**self.pool.machine("any").labels, ZONE_LABEL: self.pool.zone}
        for key, value in pod.selector.items():
            if labels.get(key) != value:
                return f"it has no label {key}={value}"
        if pod.node_terms and not any(_matches_term(labels, term) for term in pod.node_terms):
            return "its labels do not match the pod's node affinity"
        if pod.zones and self.pool.zone not in pod.zones:
            zones = ", ".join(sorted(pod.zones))
            return f"it is in {self.pool.zone}, and the pod must share a zone with pods in {zones}"
        for taint in self.pool.all_taints:
            blocks = taint.effect != "PreferNoSchedule" and taint.key not in self.ignored_taints
            if blocks and not any(toleration.tolerates(taint) for toleration in pod.tolerations):
                return f"the pod does not tolerate {taint.key}={taint.value}:{taint.effect}"
        if not self.offers.covers(pod.requests):
            return f"it offers {self.offers}, the pod requests {pod.requests}"
        return ""


def _matches_term(labels: Mapping[str, str], term: Sequence[LabelRequirement]) -> bool:
    """Return True if labels match all requirements of a term; an empty term matches no machine."""
    return bool(term) and all(requirement.matches(labels) for requirement in term)


@dataclass(frozen=True, kw_only=True)
class ScalingDecision:
    """A decision of the autoscaler.

    Attributes:
        sizes: desired sizes of the pools that grow.
        remove: machines that are no longer needed.
        reasons: one line for each change and each pod that stays pending, or one line about an invalid
            flag of the autoscaler.
    """

    sizes: Mapping[str, int]
    remove: tuple[str, ...]
    reasons: tuple[str, ...]


def decide(
    pools: Sequence[ScalablePool], nodes: Sequence[PoolNode], pending: Sequence[PendingPod]
) -> ScalingDecision:
    """Return the changes of the pools' sizes.

    While pods are pending, no machine is removed: a machine that is idle now may run them in a moment.

    Args:
        pools: the pools whose size may change.
        nodes: their machines.
        pending: the unschedulable pods.
    """
    placement = _Placement(sorted(pools, key=lambda p: (-p.priority, p.pool.key)), nodes)
    for pod in pending:
        placement.place(pod)
    remove = () if pending else _idle_names(pools, nodes)
    reasons = [*placement.reasons, *(f"{name}: idle for long enough" for name in remove)]
    return ScalingDecision(sizes=placement.sizes, remove=remove, reasons=tuple(reasons))


class _Placement:
    """Assignment of pods to machines that exist or are expected, else to new ones."""

    def __init__(self, pools: Sequence[ScalablePool], nodes: Sequence[PoolNode]) -> None:
        self.sizes: dict[str, int] = {}
        self.reasons: list[str] = []
        self._pools = {scalable.pool.key: scalable for scalable in pools}
        # Expected machines come first. A pod may be pending only because its machine is new.
        self._nodes = [
            PoolNode(name="", pool=name, free_resources=scalable.offers)
            for name, scalable in self._pools.items()
            if not scalable.out_of_capacity
            for _ in range(scalable.pool.desired_size - sum(node.pool == name for node in nodes))
        ]
        self._nodes += nodes
        self._zone_of: dict[PeerSelector, str] = {}

    def place(self, pod: PendingPod) -> None:
        """Assign a pod to a machine, a new one if no other can run it."""
        if pod.peers and not pod.zones and pod.peers in self._zone_of:
            pod = replace(pod, zones=frozenset({self._zone_of[pod.peers]}))
        zone = self._place(pod)
        if pod.peers and zone is not None:
            self._zone_of.setdefault(pod.peers, zone)

    def _place(self, pod: PendingPod) -> str | None:
        """Assign a pod; return the zone of its machine, None if it stays pending."""
        for index, node in enumerate(self._nodes):
            pool = self._pools.get(node.pool)
            if pool and not pool.obstacle(pod) and node.free_resources.covers(pod.requests):
                self._nodes[index] = replace(
                    node, free_resources=node.free_resources - pod.requests
                )
                return pool.pool.zone
        obstacles = []
        for name, pool in self._pools.items():
            size = self.sizes.get(name, pool.pool.desired_size)
            if obstacle := self._obstacle(pool, pod, size):
                obstacles.append(f"{name}: {obstacle}")
                continue
            self.sizes[name] = size + 1
            self._nodes.append(
                PoolNode(name="", pool=name, free_resources=pool.offers - pod.requests)
            )
            self.reasons.append(f"{name} grows to {size + 1} for {pod.name}")
            return pool.pool.zone
        reason = "; ".join(obstacles) or "there is no pool"
        self.reasons.append(f"{pod.name} stays pending: {reason}")
        return None

    def _obstacle(self, pool: ScalablePool, pod: PendingPod, size: int) -> str:
        if obstacle := pool.obstacle(pod):
            return obstacle
        if size >= pool.pool.max_size:
            return f"it has {size} machines, its maximum"
        return "the cloud has no capacity" if pool.out_of_capacity else ""


def _idle_names(pools: Sequence[ScalablePool], nodes: Sequence[PoolNode]) -> tuple[str, ...]:
    """Return the machines to remove as idle, longest idle first, down to each pool's min_size."""
    remove: list[str] = []
    for scalable in pools:
        pool = scalable.pool
        members = [node for node in nodes if node.pool == pool.key]
        idle = [n for n in members if n.idle_seconds and n.idle_seconds >= pool.idle_seconds]
        surplus = max(min(len(members), pool.desired_size) - pool.min_size, 0)
        idle.sort(key=lambda node: (-node.idle_seconds, node.name))
        remove += [node.name for node in idle[:surplus]]
    return tuple(remove)
