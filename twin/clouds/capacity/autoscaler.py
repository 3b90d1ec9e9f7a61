"""How an autoscaler sizes pools: more machines for pods that fit nowhere, fewer where nothing runs. Pure.

After Kubernetes's cluster autoscaler: it looks at pods that the scheduler has given up on, asks of each pool
whether a fresh machine of it would take the pod, and lets priorities decide between pools. A pool the cloud has no
capacity for is passed over, so that the next in order is grown: that is how a job falls back from spot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from twin.clouds.capacity.pools import Pool
from twin.nodes.model import Taint


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a machine offers or a pod wants: processors in thousandths, memory in bytes, whole GPUs, pods."""

    milli_cpu: int = 0
    memory: int = 0
    gpus: int = 0
    pods: int = 0

    def holds(self, other: "Room") -> bool:
        """Whether the other fits in."""
        return (
            self.milli_cpu >= other.milli_cpu
            and self.memory >= other.memory
            and self.gpus >= other.gpus
            and self.pods >= other.pods
        )

    def without(self, other: "Room") -> "Room":
        """Return what is left when the other has moved in."""
        return Room(
            milli_cpu=self.milli_cpu - other.milli_cpu,
            memory=self.memory - other.memory,
            gpus=self.gpus - other.gpus,
            pods=self.pods - other.pods,
        )


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """What a pod puts up with; empty fields match all, as in Kubernetes."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether it makes up for a taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that the scheduler found no machine for.

    Attributes:
        name: with its namespace.
        wants: what it asks for.
        selector: labels that its machine must have.
        tolerations: what it puts up with.
    """

    name: str
    wants: Room
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of a pool.

    Attributes:
        name: its name.
        pool: the pool it was made for.
        free: what is left of it.
        idle_seconds: for how long nothing but daemons has run there; 0 while something does.
    """

    name: str
    pool: str
    free: Room
    idle_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Template:
    """A pool, as an autoscaler sees it.

    Attributes:
        pool: the pool.
        offers: what a fresh machine of it has for pods, when its daemons run.
        priority: pools of higher priority grow first.
        ignored: keys of taints that will be gone soon.
        short: whether the cloud has no capacity for it now.
    """

    pool: Pool
    offers: Room
    priority: int = 0
    ignored: frozenset[str] = frozenset()
    short: bool = False

    def takes(self, pod: Pod) -> str:
        """Return why a fresh machine of the pool would not take a pod; empty if it would."""
        labels = self.pool.machine("any").labels
        for key, value in pod.selector.items():
            if labels.get(key) != value:
                return f"it has no label {key}={value}"
        for taint in self.pool.all_taints:
            hard = taint.effect != "PreferNoSchedule" and taint.key not in self.ignored
            if hard and not any(toleration.covers(taint) for toleration in pod.tolerations):
                return f"the pod does not tolerate {taint.key}={taint.value}:{taint.effect}"
        if not self.offers.holds(pod.wants):
            return f"it offers {self.offers}, the pod wants {pod.wants}"
        return ""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What an autoscaler wants.

    Attributes:
        sizes: new sizes of pools that are to grow.
        remove: machines that are no longer needed.
        reasons: why, a line each; also why a pod has to wait.
    """

    sizes: Mapping[str, int]
    remove: tuple[str, ...]
    reasons: tuple[str, ...]


def decide(
    templates: Sequence[Template], nodes: Sequence[Node], waiting: Sequence[Pod]
) -> Decision:
    """Decide how pools are to be sized.

    Args:
        templates: the pools that may be sized.
        nodes: their machines.
        waiting: the pods that fit nowhere now.

    Returns:
        What is to change. While pods wait nothing is taken away: what is idle now may serve them in a moment.
    """
    growth = _Growth(sorted(templates, key=lambda t: (-t.priority, t.pool.name)), nodes)
    for pod in waiting:
        growth.place(pod)
    remove = () if waiting else _idle(templates, nodes)
    reasons = [*growth.reasons, *(f"{name}: idle for long enough" for name in remove)]
    return Decision(sizes=growth.sizes, remove=remove, reasons=tuple(reasons))


class _Growth:
    """Places pods one after another on machines that come anyway, else on new ones."""

    def __init__(self, templates: Sequence[Template], nodes: Sequence[Node]) -> None:
        self.sizes: dict[str, int] = {}
        self.reasons: list[str] = []
        self._templates = templates
        there = {t.pool.name: sum(n.pool == t.pool.name for n in nodes) for t in templates}
        # Wanted and not there yet: they will take pods without anybody's doing.
        self._coming = [
            Node(name="", pool=t.pool.name, free=t.offers)
            for t in templates
            if not t.short
            for _ in range(t.pool.desired - there[t.pool.name])
        ]
        # There, and free: a pod may be Pending only because the machine came a moment ago.
        self._coming += nodes

    def place(self, pod: Pod) -> None:
        """Find room for a pod, in a new machine if need be."""
        templates = {t.pool.name: t for t in self._templates}
        for index, node in enumerate(self._coming):
            template = templates.get(node.pool)
            if template and not template.takes(pod) and node.free.holds(pod.wants):
                self._coming[index] = replace(node, free=node.free.without(pod.wants))
                return
        refusals = []
        for template in self._templates:
            name = template.pool.name
            size = self.sizes.get(name, template.pool.desired)
            if why := self._why_not(template, pod, size):
                refusals.append(f"{name}: {why}")
                continue
            self.sizes[name] = size + 1
            self._coming.append(Node(name="", pool=name, free=template.offers.without(pod.wants)))
            self.reasons.append(f"{name} grows to {size + 1} for {pod.name}")
            return
        self.reasons.append(f"{pod.name} has to wait: {'; '.join(refusals) or 'there is no pool'}")

    def _why_not(self, template: Template, pod: Pod, size: int) -> str:
        if why := template.takes(pod):
            return why
        if size >= template.pool.maximum:
            return f"it has {size} machines, its maximum"
        return "the cloud has no capacity" if template.short else ""


def _idle(templates: Sequence[Template], nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the machines that have been idle for long enough, the longest first, down to each pool's minimum."""
    remove: list[str] = []
    for template in templates:
        pool = template.pool
        mine = [node for node in nodes if node.pool == pool.name]
        idle = [
            node for node in mine if node.idle_seconds and node.idle_seconds >= pool.idle_seconds
        ]
        spare = max(min(len(mine), pool.desired) - pool.minimum, 0)
        idle.sort(key=lambda node: (-node.idle_seconds, node.name))
        remove += [node.name for node in idle[:spare]]
    return tuple(remove)
